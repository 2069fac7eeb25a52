"""pyproject.toml and environment.yml ask for the same packages, in ranges with a lower bound."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from course_utils import __main__ as cli
from course_utils.lab import setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it to Python 3.10

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]
REQUIREMENTS = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
CONDA_NAMES = {"torch": "pytorch"}  # every other package has the same name on conda-forge as on PyPI
CPU_BUILDS = ("pytorch", "torchvision")


def conda_packages() -> dict[str, tuple[str, str]]:
    """Name of each conda package: its version range and its build."""
    specs = [entry.split() for entry in ENVIRONMENT["dependencies"] if isinstance(entry, str)]
    return {name: (rest[0] if rest else "", rest[1] if rest[1:] else "") for name, *rest in specs}


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_requirement_is_a_range_with_a_lower_bound(requirement):
    assert re.fullmatch(r"[a-z0-9-]+>=\d+(\.\d+)+", requirement), requirement


def test_conda_asks_for_the_same_packages_with_the_same_bounds():
    wanted = {}
    for requirement in REQUIREMENTS:
        name, bound = setup.split_requirement(requirement)
        wanted[CONDA_NAMES.get(name, name)] = f">={bound}"
    found = {name: version for name, (version, _) in conda_packages().items() if name not in ("python", "pip")}
    assert found == wanted


def test_conda_takes_cpu_builds_of_pytorch_and_torchvision_only():
    builds = {name: build for name, (_, build) in conda_packages().items() if build}
    assert builds == dict.fromkeys(CPU_BUILDS, "cpu*")


def test_conda_installs_the_course_itself_in_place_and_uses_one_channel():
    assert {"pip": ["-e ."]} in ENVIRONMENT["dependencies"]
    assert ENVIRONMENT["channels"] == ["conda-forge"]


def test_every_place_names_the_same_oldest_python():
    oldest = ".".join(map(str, setup.OLDEST_PYTHON))
    assert cli.OLDEST_PYTHON == setup.OLDEST_PYTHON
    assert PROJECT["requires-python"] == conda_packages()["python"][0] == f">={oldest}"


def test_the_reader_for_a_bare_python_reads_what_a_toml_reader_reads():
    assert setup.read_requirements(TEXT) == REQUIREMENTS
    assert setup.read_requirements(TEXT, dev=False) == PROJECT["dependencies"]
