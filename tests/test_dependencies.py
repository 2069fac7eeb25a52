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


def test_pip_and_conda_install_the_same_in_ranges_with_a_lower_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert [each for each in requirements if not re.fullmatch(r"[a-z0-9-]+>=\d+(\.\d+)+", each)] == []
    wanted = {each.name: str(each.specifier) for each in map(Requirement, requirements)}
    wanted["pytorch"] = wanted.pop("torch") + " cpu*"  # every other package has the same name as on PyPI
    wanted["torchvision"] += " cpu*"
    wanted["python"] = project["requires-python"]
    assert wanted["python"] == ">=" + ".".join(map(str, cli.OLDEST_PYTHON))
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert conda["channels"] == ["conda-forge"]
    [*by_pip, course] = conda["dependencies"].pop()["pip"]  # what conda-forge has not
    assert course == "-e .", "the course itself, in place"
    asked = (entry.split(maxsplit=1) for entry in conda["dependencies"] + by_pip if " " in entry)
    assert dict(asked) == wanted
