"""NAME: a table of each run's rows and scores, beside the run. This line is for people who open the file.

A tracker is a file with two functions, `available` and `open`. Commands copy runs to it, in a process of its own:

    workbench check FILE
    workbench run ablation --track FILE
    workbench track ablation --to FILE

Import the packages of the tool inside `open`: this file is also read by commands that copy nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.trackers import Row, Score, TrackedRun


def available() -> str | None:
    """Return None if copies can be made here, else why not and what to do."""
    # import importlib.util
    # if importlib.util.find_spec("my_tool") is None:
    #     return "the package my_tool is not installed; pip install my_tool"
    return None


def open(run: TrackedRun) -> Copy:
    """Begin the copy of a run, in place of any copy of it that an earlier call began.

    run.run_id, run.study     the names of the run and of its study ("" if it is in none)
    run.config                settings by dotted keys, as {"optim.lr": 0.0005, "env.machine.cpu": "..."}
    run.tags, run.notes       what people wrote about the run
    run.reached               rows up to this step exist already; run.stored() yields them
    run.folder / "mirrors"    a place for files of your own
    run.say("...")            warns the user of a problem with the copy
    """
    return Copy(run)


class Copy:
    """The open copy of one run. An error in a method ends the copy with a warning, and never the run."""

    def __init__(self, run: TrackedRun) -> None:
        self.run = run
        self.path = Path(run.folder, "mirrors", "NAME_.csv")
        self.path.write_text("step,name,value\n", encoding="utf-8")

    def log(self, rows: Sequence[Row]) -> None:
        """Add rows in order, from the run's first step on: [{"step": 1, "loss": 9.2, "flops/matmul": 1e9}, ...]."""
        with self.path.open("a", encoding="utf-8") as file:
            for row in rows:
                file.writelines(f"{row['step']},{name},{value!r}\n" for name, value in row.items() if name != "step")

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add scores and files, and close the copy; state, tags and notes of the run are up to date.

        A score has a name, as "score/CoLA", a value, and a step, which is None for the end of training. Files are there
        if `workbench track --artifacts` asks for them: {"encoder": folder, "report": file}.
        """
        with self.path.open("a", encoding="utf-8") as file:
            for score in scores:
                file.write(f"{'' if score.step is None else score.step},{score.name},{score.value!r}\n")
