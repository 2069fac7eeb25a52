"""A small language model: plain PyTorch with the names of transformers' Llama, and SmolLM2's weights from a package."""
