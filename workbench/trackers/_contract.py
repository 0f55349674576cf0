"""A template for a tracker of one's own, and a check that a tracker keeps its contract."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import trackers
from workbench.errors import InputError
from workbench.registry import file_of
from workbench.spec.experiment import blaming
from workbench.trackers import Score, TrackedRun

# NAME stands for a title, NAME_ for the name of the file, and FILE for its path.
TEMPLATE = '''"""NAME: a table of each run's rows and scores, beside the run. This line is for people who open the file.

A tracker is a file with two functions, `available` and `open`. Commands copy runs to it, in a process of its own:

    workbench check FILE
    workbench run ablation --track FILE
    workbench track ablation --to FILE
"""

from pathlib import Path

# Import the packages of the tool inside `open`: this file is also read by commands that copy nothing.


def available():
    """Return None if copies can be made here, else why not and what to do."""
    # import importlib.util
    # if importlib.util.find_spec("my_tool") is None:
    #     return "the package my_tool is not installed; pip install my_tool"
    return None


def open(run):
    """Begin the copy of a run, in place of any copy of it that an earlier call began.

    run.run_id, run.study     the names of the run and of its study ("" if it is in none)
    run.config                settings by dotted keys, as {"optim.lr": 0.0005, "env.machine.cpu": "..."}
    run.tags, run.notes       what people wrote about the run
    run.reached               rows up to this step exist already; run.stored() yields them
    run.folder / "mirrors"    a place for files of your own
    run.say("...")            tells the user something about the copy
    """
    return Copy(run)


class Copy:
    """The open copy of one run. An error in a method ends the copy with a warning, and never the run."""

    def __init__(self, run):
        self.run = run
        self.file = Path(run.folder, "mirrors", "NAME_.csv").open("w", encoding="utf-8")
        self.file.write("step,name,value\\n")

    def log(self, rows):
        """Add rows in order, from the run's first step on: [{"step": 1, "loss": 9.2, "flops/matmul": 1e9}, ...]."""
        for row in rows:
            for name, value in row.items():
                if name != "step":
                    self.file.write(f"{row['step']},{name},{value!r}\\n")
        self.file.flush()

    def finish(self, scores, files):
        """Add scores and files, and close the copy. run.state, run.tags and run.notes are those of now.

        A score has .name, as "score/CoLA", .value, and .step, None for the end of training. Files are there if
        `workbench track --artifacts` asks for them: {"encoder": folder, "report": file}.
        """
        for score in scores:
            self.file.write(f"{'' if score.step is None else score.step},{score.name},{score.value!r}\\n")
        self.file.close()
'''
ROWS = tuple({"step": step, "seconds": step / 4, "loss": 1 / step, "flops/matmul": 1e9 * step} for step in range(1, 8))
SCORES = (Score("score/order", 50.0), Score("score/order", 40.0, 3), Score("untrained/order", 12.5))


def check(word: str) -> list[str]:
    """Make copies of an invented run by a tracker, given by its name or file, and return what was done, as sentences.

    The copies are made twice, as of a run that is resumed, and go where the tracker puts its copies. Raises InputError
    with the first breach of the contract.
    """
    trackers.find(word)
    tracker, done = trackers.load(word), list[str]()
    file = file_of(tracker)  # type: ignore[arg-type]

    def call(what: str, function: Callable[..., Any], *given: Any) -> Any:
        with blaming(file, f"{what} raised", "tracker"):
            return function(*given)

    with tempfile.TemporaryDirectory(prefix="workbench-") as store:
        folder = Path(store) / "workbench-check-s0"
        (folder / "mirrors").mkdir(parents=True)
        (folder / "encoder").mkdir()
        (folder / "encoder" / "config.json").write_text("{}", encoding="utf-8")
        for begun, ends in ((0, "interrupted"), (4, "done")):
            run = TrackedRun(
                folder.name, folder, "workbench-check", tags=("checked",), notes='2026-01-01 a note, "quoted" and é',
                config={"optim.lr": 1e-3, "tying": None, "encoder.causal": True}, reached=begun,
                stored=lambda: ROWS[:4],
            )  # fmt: skip
            handle = call("open(run)", tracker.open, run)
            for method in ("log", "finish"):
                if not callable(getattr(handle, method, None)):
                    raise InputError(f"tracker {file}: open(run) returns {handle!r:.60}, which has no {method}()")
            for start in range(0, len(ROWS), 3):
                call("log(rows)", handle.log, ROWS[start : start + 3])
            run.state = ends
            call("finish(scores, files)", handle.finish, SCORES, {"encoder": folder / "encoder"} if begun else {})
            done.append(f"a copy of {len(ROWS)} rows and {len(SCORES)} scores of a run that is {ends}")
        handle = call("open(run)", tracker.open, TrackedRun(folder.name, folder, ""))
        call("finish(scores, files) without rows", handle.finish, [], {})
        done.append("a copy of a run without rows and scores")
    return done
