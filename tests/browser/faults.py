"""What axe-core finds in a part of a page."""

import pytest

OUTPUTS = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output"

# A rule, and a mark in the element's markup: what axe finds and we cannot mend, with the reason.
KNOWN = {
    ("image-alt", '<img src="data:image/'): "JupyterLab shows a picture without the alt text in its metadata",
    ("aria-input-field-name", "noUi-handle"): "ipywidgets ties a slider's label to nothing; its value is announced",
}


def find_faults(page, part: str = OUTPUTS) -> list[str]:
    """Rule and markup of every fault but the `KNOWN` ones. Skips where the package with axe-core is missing."""
    reason = "axe is not installed: pip install -e '.[browser]'"
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=reason)
    violations = axe.Axe().run(page, context=part).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:300]}"
        for fault in violations
        for node in fault["nodes"]
        if not any(fault["id"] == rule and mark in node["html"] for rule, mark in KNOWN)
    ]
