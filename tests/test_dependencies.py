"""pyproject.toml and environment.yml ask for the same packages, in ranges with a lower bound."""

import re
import sys

import yaml
from packaging.requirements import Requirement

from course_utils import __main__ as cli
from course_utils.root import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it to Python 3.10

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
CONDA = dict(
    entry.split(maxsplit=1) for entry in ENVIRONMENT["dependencies"] if isinstance(entry, str) and " " in entry
)


def test_requirements_are_ranges_with_a_lower_bound():
    assert [each for each in REQUIREMENTS if not re.fullmatch(r"[a-z0-9-]+>=\d+(\.\d+)+", each)] == []


def test_conda_asks_for_the_same_packages_with_the_same_bounds_and_for_cpu_builds():
    wanted = {each.name: str(each.specifier) for each in map(Requirement, REQUIREMENTS)}
    wanted["pytorch"] = wanted.pop("torch") + " cpu*"  # every other package has the same name as on PyPI
    wanted["torchvision"] += " cpu*"
    assert {name: version for name, version in CONDA.items() if name != "python"} == wanted


def test_conda_installs_the_course_itself_in_place_and_uses_one_channel():
    assert {"pip": ["-e ."]} in ENVIRONMENT["dependencies"]
    assert ENVIRONMENT["channels"] == ["conda-forge"]


def test_every_place_names_the_same_oldest_python():
    oldest = ">=" + ".".join(map(str, cli.OLDEST_PYTHON))
    assert PROJECT["requires-python"] == CONDA["python"] == oldest
