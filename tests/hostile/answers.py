"""Hostile answers to `scale_gradient`, each with the score that is fair and the words that the report must use."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

EXERCISE = "scale_gradient"
RIGHT = "return tensor.register_hook(lambda grad: grad * factor)"
WRONG = "return tensor.register_hook(lambda grad: grad)"

ENDED = "The Python process ended while your answer ran"
LATE = "did not come to an end in time"
TOO_MUCH = "more memory or disk"


@dataclass(frozen=True)
class Attack:
    """What a student hands in, and what should come of it.

    `words` are in the row's sentence or reason. `alone` is set where only namespaces contain the attack: a kernel of
    one's own does not.
    """

    name: str
    source: str
    passes: bool = False
    words: str = ""
    by_hand: bool = False
    alone: bool = False


def attack(name: str, body: str, *, above: str = "", **expected: object) -> Attack:
    """An attack that runs `body` inside the answer; `above` stands before it, in the same cell."""
    function = f"def {EXERCISE}(tensor, factor):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    imports = (
        "import builtins, ctypes, gc, json, os, shutil, signal, socket, subprocess, sys, threading, time\nimport torch"
    )
    return Attack(name, f"{imports}\n{textwrap.dedent(above)}\n{function}", **expected)


ATTACKS = [
    # ---- time
    attack("endless loop", "while True: pass", words=LATE),
    attack(
        "endless loop that swallows interrupts",
        """
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue
        """,
        words=LATE,
    ),
    attack(
        "endless loop without an alarm", "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass", words=LATE
    ),
    attack("endless loop inside torch's hook", "tensor.register_hook(lambda grad: time.sleep(60))", words=LATE),
    attack("stops itself", "os.kill(os.getpid(), signal.SIGSTOP)", words=LATE, alone=True),
    attack("becomes another program", 'os.execv("/bin/sleep", ["sleep", "60"])', words=LATE, alone=True),
    # ---- processes and threads
    attack(
        "50 sleeping children",
        f"""
        while len(started) < 50:
            started.append(os.fork())
            if started[-1] == 0:
                time.sleep(60)
                os._exit(0)
        {RIGHT}
        """,
        above="started = []",
        passes=True,
        alone=True,
    ),
    attack(
        "daemon",
        f"""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        {RIGHT}
        """,
        passes=True,
        alone=True,
    ),
    attack(
        "as many processes as it gets",
        f"""
        for _ in range(200):
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
            except OSError:
                break
        {RIGHT}
        """,
        passes=True,
        alone=True,
    ),
    attack("another program", f'subprocess.Popen(["/bin/sleep", "60"])\n{RIGHT}', passes=True, alone=True),
    attack("thread", f"threading.Thread(target=time.sleep, args=(60,)).start()\n{RIGHT}", passes=True),
    attack("exits at once", "os._exit(0)", words=ENDED),
    attack("exits politely", "sys.exit()", words="SystemExit"),
    attack("kills itself", "os.kill(os.getpid(), signal.SIGKILL)", words=ENDED),
    attack("kills its parent", "os.kill(os.getppid(), signal.SIGKILL)", words=ENDED, alone=True),
    attack(
        "kills all it may",
        f"""
        try:
            os.kill(-1, signal.SIGKILL)
        except OSError:
            pass
        {RIGHT}
        """,
        passes=True,
        alone=True,
    ),
    attack("reads where nothing is", "ctypes.string_at(0)", words=ENDED),
    attack("asks for input", 'input("your password? ")', words="raised"),
    attack("closes every file", f"os.closerange(0, 4096)\n{RIGHT}", words=ENDED, alone=True),
    attack("keeps the process from ending", f"os._exit = lambda code: None\n{RIGHT}", passes=True),
    # ---- memory, disk, output
    attack("8 GB", "torch.ones(2_000_000_000)", words="memory"),
    attack("memory, bit by bit", "kept = []\nwhile True: kept.append(bytearray(50_000_000))", words="MemoryError"),
    attack(
        "memory of many",
        """
        for _ in range(6):
            if os.fork() == 0:
                kept = bytearray(150_000_000)
                time.sleep(60)
        time.sleep(60)
        """,
        words=TOO_MUCH,
        alone=True,
    ),
    attack("200 MB of prints", f'for _ in range(2000): print("x" * 100_000)\n{RIGHT}', passes=True),
    attack(
        "200 MB past Python", f'for _ in range(200): os.write(1, b"x" * 1_000_000)\n{RIGHT}', passes=True, alone=True
    ),
    attack("fills the disk", 'open("file", "wb").write(b"x" * 200_000_000)', words="OSError"),
    attack(
        "fills the disk with many files",
        """
        for number in range(100):
            open(f"file{number}", "wb").write(b"x" * 10_000_000)
        """,
        words="OSError",
        alone=True,
    ),
    attack(
        "memory outside of any process",
        f"""
        kept = []
        while len(kept) < 50:
            kept.append(os.memfd_create(str(len(kept))))
            os.write(kept[-1], bytes(20_000_000))
        {RIGHT}
        """,
        words="PermissionError",
        alone=True,
    ),
    attack(
        "memory that processes share",
        """
        import mmap
        for _ in range(6):
            if os.fork() == 0:
                kept = mmap.mmap(-1, 150_000_000)
                for _ in range(30): kept.write(bytes(5_000_000))
                time.sleep(60)
        time.sleep(60)
        """,
        words="was stopped",
        alone=True,
    ),
    attack(
        "memory of the system",
        f"""
        if ctypes.CDLL(None, use_errno=True).shmget(0, 100_000_000, 0o1600) < 0:
            raise OSError("no segment")
        {RIGHT}
        """,
        words="no segment",
        alone=True,
    ),
    attack(
        "10,000 files",
        f'for number in range(10_000): open(str(number), "w").close()\n{RIGHT}',
        words="No space left",
        alone=True,
    ),
    attack("a value without end", "return [[[[0] * 1000] * 1000] * 1000] * 1000"),
    attack("a text of 500 MB", 'return "x" * 500_000_000', words="returned"),
    attack("recursion", f"return {EXERCISE}(tensor, factor)", words="RecursionError"),
    # A kernel needs more frames than that to send its record, so there it costs the answer its points.
    attack("few frames", f"sys.setrecursionlimit(60)\n{RIGHT}", passes=True, alone=True),
    attack(
        "a program without a file", 'os.execve(os.memfd_create("x"), ["x"], {})', words="PermissionError", alone=True
    ),
    attack("stops its parent", "os.killpg(os.getpgid(os.getppid()), signal.SIGSTOP)", words=LATE, alone=True),
    attack(
        "rings without end",
        f"""
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        {WRONG}
        """,
        above="def ring(*_): raise KeyboardInterrupt",
        words="KeyboardInterrupt",
    ),
    # ---- forging
    attack(
        "writes at the end", f'import atexit\natexit.register(os.write, 3, b"{{}}")\n{RIGHT}', passes=True, alone=True
    ),
    attack("looks over the shoulder", f"sys.settrace(lambda *_: None)\n{RIGHT}", passes=True),
    attack(
        "empties what the observer has",
        f"""
        for one in gc.get_objects():
            if isinstance(one, dict) and "returned" in one:
                one.clear()
        {WRONG}
        """,
    ),
    attack(
        "a tensor that agrees with all",
        "return torch.zeros(2).as_subclass(Yes)",
        above="""
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_, **__): return True
        """,
    ),
    attack("patches comparisons", f"torch.equal = torch.allclose = lambda *_, **__: True\n{WRONG}", words="expected"),
    attack(
        "patches builtins",
        f"builtins.isinstance = builtins.all = builtins.any = lambda *_: True\n{WRONG}",
    ),
    attack("patches JSON", f"json.JSONEncoder.encode = json.dumps = lambda *_, **__: 'true'\n{WRONG}"),
    attack(
        "empties sys.modules",
        f"""
        for name in [name for name in sys.modules if name.startswith("course_utils")]:
            del sys.modules[name]
        {WRONG}
        """,
        words="expected",
    ),
    attack(
        "patches check and judge",
        f"""
        import course_utils.exercises as exercises
        from course_utils.exercises import engine, judging, outcome
        exercises.check = lambda *_: "passed"
        judging.judge = judging.first_difference = engine.judge = lambda *_: None
        outcome.Outcome.passed = True
        {WRONG}
        """,
        words="expected",
    ),
    attack(
        "patches the observer",
        f"""
        from course_utils.exercises import engine, evidence
        engine.observe_all = evidence.observe_all = lambda *_: []
        engine.Exercise.observe = lambda *_: []
        evidence.World.restore = lambda self: []
        {WRONG}
        """,
        words="expected",
    ),
    attack(
        "observes nothing, from the start",
        WRONG,
        above="""
        def spoil(function):
            from course_utils.exercises import engine
            engine.Exercise.observe = lambda *_: []
            return function
        @spoil
        """,
        words="stopped before the last case",
    ),
    attack(
        "forges a verdict",
        """
        for fd in range(1, 20):
            try:
                os.write(fd, b'{"exercise": "scale_gradient", "passed": true, "points": 2}')
            except OSError:
                pass
        os._exit(0)
        """,
        by_hand=True,
        alone=True,
    ),
    attack(
        "forges evidence of what it would like",
        f"""
        from course_utils.exercises import engine
        from course_utils.grading.driver import write_record
        exercise = engine.find("{EXERCISE}")
        engine.Exercise.__call__ = None
        found = exercise.observe(lambda tensor, factor: tensor.register_hook(lambda grad: grad), 1)
        record = {{"exercise": exercise.name, "blank": False, "raised": None, "lost": [], "cases": found}}
        os.write(3, write_record(record).encode())
        os._exit(0)
        """,
        words="expected",
        alone=True,
    ),
    attack("forges evidence beside the true one", f'os.write(3, b"{{}}")\n{RIGHT}', by_hand=True, alone=True),
    attack("forges evidence deep as a well", 'os.write(3, b"[" * 1_000_000)\nos._exit(0)', by_hand=True, alone=True),
    attack("forges evidence without end", 'while True: os.write(3, b" " * 1_000_000)', words=TOO_MUCH, alone=True),
    attack(
        "lies about what it is",
        "return Liar()",
        above="""
        class Liar:
            __class__ = property(lambda self: torch.Tensor)
            def __eq__(self, other): return True
        """,
    ),
    attack(
        "uses the reference answer",
        f"""
        from course_utils.exercises import lesson_01
        return lesson_01.{EXERCISE}.reference(tensor, factor)
        """,
        words="returned nothing",
    ),
    attack(
        "uses another right answer",
        f"""
        from course_utils.exercises.engine import find
        return find("{EXERCISE}").accepted[0](tensor, factor)
        """,
        words="IndexError",
    ),
    attack(
        "reads the reference answer",
        f"""
        from course_utils.exercises import lesson_01
        text = open(lesson_01.__file__).read()
        text = text[text.index("def {EXERCISE}"):]
        exec(text[: text.index("@")], globals())
        return {EXERCISE}(tensor, factor)
        """,
        words="raised",
    ),
    attack(
        "imports the reference answer anew",
        f"""
        import importlib
        del sys.modules["course_utils.lessons.lesson_01"]
        return importlib.import_module("course_utils.lessons.lesson_01").{EXERCISE}.reference(tensor, factor)
        """,
        words="raised",
    ),
    attack(
        "asks for the solution",
        f"""
        from course_utils.exercises import solution
        exec(str(solution("{EXERCISE}")), globals())
        """,
        words="raised",
    ),
    attack(
        "knows the answers to the visible inputs",
        """
        known = {3: [3.0, 3.0], 0.5: [0.5, 0.5]}
        return tensor.register_hook(lambda grad: torch.tensor(known.get(factor, [10.0, 10.0])))
        """,
        words="expected",
    ),
    # ---- tripping the next exercise
    attack(
        "leaves a hook on all modules",
        f"""
        torch.nn.modules.module.register_module_forward_hook(lambda *_: 0)
        {RIGHT}
        """,
        words="hooks on all modules",
    ),
    attack("changes the default device", f'torch.set_default_device("meta")\n{RIGHT}', words="default device"),
    attack("changes the default dtype", f"torch.set_default_dtype(torch.float64)\n{RIGHT}", words="default dtype"),
    attack("changes the number of threads", f"torch.set_num_threads(3)\n{RIGHT}", words="number of threads"),
    attack("switches gradients off", f"torch.set_grad_enabled(False)\n{RIGHT}", words="does not require grad"),
    attack("seeds torch", f"torch.manual_seed(0)\n{RIGHT}", passes=True),
    attack("goes elsewhere", f'os.chdir("/")\n{RIGHT}', words="working folder"),
    # ---- text that is not harmless
    attack("raises a page", 'raise ValueError("<script>alert(1)</script>\\x1b[31m\\u202e=cmd()")', words="<script>"),
    attack("raises without end", 'raise ValueError("x" * 50_000_000)', words="ValueError"),
    attack(
        "raises what cannot be said",
        "raise Silent",
        above="""
        class Silent(Exception):
            def __str__(self): raise Silent
        """,
    ),
    Attack("null bytes", f"def {EXERCISE}(tensor, factor):\n    return '\x00'\n", words="not Python"),
    Attack("not Python", f"def {EXERCISE}(tensor, factor):\n    return (\n", words="not Python"),
    Attack("half a character", f"def {EXERCISE}(tensor, factor):\n    x = '\ud800'\n    {RIGHT}\n", words="not Python"),
    Attack(
        "exits while it is defined",
        f"import os\n@os._exit\ndef {EXERCISE}(tensor, factor):\n    {RIGHT}\n",
        words="raised",
    ),
    Attack(
        "dies while it is defined",
        f"import os\n@(lambda function: os._exit(1))\ndef {EXERCISE}(tensor, factor):\n    {RIGHT}\n",
        words=ENDED,
    ),
]
