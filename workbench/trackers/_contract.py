"""A check that a tracker keeps its contract, on a run that is made up."""

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
