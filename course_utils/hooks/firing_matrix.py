"""Which hook fires in which situation: a table made by running, with a short program for each of its cells.

    print(write_proof("forward hook", "under no_grad"))     # a program that anybody can run
    run_cell("forward hook", "under no_grad")               # what it does with the installed torch: "once"
    load_matrix().outcome("forward hook", "under no_grad")  # what the stored table says

A table is stored for each version of torch that it was made with. To make one with the installed torch, in minutes:
python -m course_utils.hooks.firing_matrix
"""

import dataclasses
import functools
import itertools
import json
import linecache
import re
import sys
import types
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from packaging.version import Version
from torch.nn.modules import module as torch_module

from course_utils.root import ASSETS, CourseError
from course_utils.show import page_templates

_NUMBERS = itertools.count()  # the compiler remembers modules by name, so every proof has its own


@dataclasses.dataclass(frozen=True)
class Situation:
    """What runs `before` the hook is registered and `after`; a `slow` one needs a compiler or a group of processes."""

    after: str
    before: str = ""
    slow: bool = False


class Programs(NamedTuple):
    """The parts of all programs: how each of them starts, what registers each hook, and the situations, by name."""

    start: str
    hooks: dict[str, str]
    situations: dict[str, Situation]


@functools.cache
def read_programs() -> Programs:
    """Return the parts of all programs, which stand in `assets/firing_programs.txt`."""
    text = (ASSETS / "firing_programs.txt").read_text(encoding="utf-8")
    _, _, text = text.partition("# %% start\n")
    start, *parts = re.split(r"^# %% (hook|situation): (.+?)( \(slow\))?\n", text, flags=re.MULTILINE)
    programs = Programs(start, {}, {})
    for kind, name, slow, code in zip(parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=True):
        if kind == "hook":
            programs.hooks[name] = code
        else:
            before, _, after = code.rpartition("# the hook is registered here\n")
            programs.situations[name] = Situation(after, before, bool(slow))
    return programs


def write_proof(hook: str, situation: str) -> str:
    """Return the program of a cell: it prints how often the hook ran.

    Raises `CourseError` for an unknown hook or situation.
    """
    start, hooks, situations = read_programs()
    if hook not in hooks or situation not in situations:
        raise CourseError(f"there is no cell for {hook!r} and {situation!r}; choose from those of `read_programs()`")
    chosen = situations[situation]
    return f"{start}\n{chosen.before}{hooks[hook]}{chosen.after}print(len(runs))\n"


def run_cell(hook: str, situation: str) -> str:
    """Run the program of a cell; return "no", "once", "twice", "3 times", … or "raises" with the exception's name."""
    source, name = write_proof(hook, situation), f"proof_{next(_NUMBERS)}"
    proof = types.ModuleType(name)
    said: list[int] = []
    proof.print = said.append
    sys.modules[name] = proof  # so that a hook can be pickled, and its source be found
    linecache.cache[f"{name}.py"] = (len(source), None, source.splitlines(keepends=True), f"{name}.py")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, f"{name}.py", "exec"), vars(proof))
    except Exception as error:
        return f"raises {type(error).__name__}"
    finally:
        del sys.modules[name], linecache.cache[f"{name}.py"]
        _clean_up(vars(proof))
    return {0: "no", 1: "once", 2: "twice"}.get(said[-1], f"{said[-1]} times")


def _clean_up(names: dict[str, object]) -> None:
    if "handle" in names:
        names["handle"].__exit__(None, None, None)
    torch_module._global_is_full_backward_hook = None  # torch remembers the kind after the last such hook is gone
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def measure_matrix(situations: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Run every cell of the situations, or of all, and return the outcomes, by hook and then by situation: minutes."""
    columns = situations or list(read_programs().situations)
    return {hook: {situation: run_cell(hook, situation) for situation in columns} for hook in read_programs().hooks}


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A stored table: the version of `torch` that it was made with, and its `outcomes` by hook and situation."""

    torch: str
    outcomes: dict[str, dict[str, str]]

    def outcome(self, hook: str, situation: str) -> str:
        """Return what a cell says, as `run_cell` does."""
        return self.outcomes[hook][situation]

    def differs(self, hook: str, situation: str) -> bool:
        """Whether the hook does something else than in the plain situation, the first one."""
        return self.outcome(hook, situation) != self.outcome(hook, next(iter(read_programs().situations)))


@functools.cache
def load_matrices() -> tuple[Matrix, ...]:
    """Return the stored tables, the newest torch first."""
    stored = json.loads((ASSETS / "firing_matrix.json").read_text(encoding="utf-8"))
    return tuple(Matrix(version, outcomes) for version, outcomes in stored.items())


def load_matrix() -> Matrix:
    """Return the stored table of the newest torch."""
    return load_matrices()[0]


def store_matrix() -> None:
    """Run all cells with the installed torch, and store them with the tables of other versions, the newest first."""
    file = ASSETS / "firing_matrix.json"
    tables = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    tables[torch.__version__.partition("+")[0]] = measure_matrix()
    written = []
    for version, outcomes in sorted(tables.items(), key=lambda table: Version(table[0]), reverse=True):
        rows = [f"  {json.dumps(hook)}: {json.dumps(row)}" for hook, row in outcomes.items()]
        written.append(f" {json.dumps(version)}: {{\n" + ",\n".join(rows) + "\n }")
    file.write_text("{\n" + ",\n".join(written) + "\n}\n", encoding="utf-8")


def list_changes(new: Matrix, old: Matrix) -> list[tuple[str, str, str, str]]:
    """Return (hook, situation, old outcome, new outcome) of each cell that two versions of torch fill differently."""
    return [
        (hook, situation, old.outcomes[hook][situation], outcome)
        for hook, row in new.outcomes.items()
        for situation, outcome in row.items()
        if old.outcomes.get(hook, {}).get(situation, outcome) != outcome
    ]


def render_changes(old: Matrix) -> str:
    """Return what is not as with an `old` torch in the newest table, as Markdown: a line for each kind of change."""
    new, hooks = load_matrix(), {}
    for hook, situation, was, now in list_changes(new, old):
        hooks.setdefault(f"- **{situation}:** with torch {old.torch} {was}, now {now}", []).append(hook)
    if not hooks:
        return f"torch {new.torch} does in every cell what torch {old.torch} does.\n"
    return "\n".join(f"{change}: {' · '.join(names)}." for change, names in hooks.items()) + "\n"


def render_matrix(matrix: Matrix, situations: Sequence[str] = (), page: str | None = None) -> str:
    """Return a table of these situations, or of all, as accessible HTML: a caption, headers, and words in every cell.

    Cells that differ from the plain situation are in bold type. With `page`, an address in which "{}" stands for
    `slug_of(hook)`, each cell is a link to its program there; `render_proofs` makes what the page holds.
    """
    template = page_templates().get_template("firing_matrix.html.j2")
    columns = situations or read_programs().situations
    return template.render(matrix=matrix, situations=columns, page=page, slug_of=slug_of)


def slug_of(name: str) -> str:
    """Return the name of a hook or a situation as it stands in an address: small letters, numbers and hyphens."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def render_proofs(hook: str, matrix: Matrix) -> str:
    """Return the programs of all cells of a hook as Markdown, each below a heading with the anchor of its situation."""
    start, _, situations = read_programs()
    parts = [f"# {hook[0].upper()}{hook[1:]}", "Each program starts with these lines:", f"```python\n{start}```"]
    for situation in situations:
        program = write_proof(hook, situation).removeprefix(start).lstrip("\n")
        parts += [f'<a id="{slug_of(situation)}"></a>', f"## {situation}: {matrix.outcome(hook, situation)}"]
        parts.append(f"```python\n{program}```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    store_matrix()
