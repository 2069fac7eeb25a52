"""The imports of the house point downwards, and pip and conda install the same for it."""

import re
import subprocess
import sys

import yaml
from packaging.requirements import Requirement

from course_utils import __main__ as cli
from course_utils import __version__
from course_utils.root import ROOT


def test_imports_point_downwards_and_never_in_a_circle():
    """The contracts are in pyproject.toml; `lint-imports` says where one is broken."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[done.stdout.find("Broken contracts") :] + done.stderr


def test_few_modules_stand_outside_the_rooms_and_guides_stand_in_them():
    assert len(list((ROOT / "course_utils").glob("*.py"))) <= 4
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"^### ", readme, re.MULTILINE), "guides are in rooms"


def test_the_version_is_said_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## ([\d.]+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert project["version"] == __version__ == cited["version"] == newest


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
    assert dict(entry.split(maxsplit=1) for entry in conda["dependencies"] + by_pip if " " in entry) == wanted
