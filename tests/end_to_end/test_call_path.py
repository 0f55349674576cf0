"""The way of a run from the command to the objective: few frames, and nothing planned or parsed twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drills.small import SETS, environment, write_text

ROOT = Path(__file__).parents[2]
# Carries the command line out with a profile function, and writes what was called in files of the package.
WATCHED = """
import collections, json, os, sys
import workbench
from workbench.cli import main

root = os.path.dirname(workbench.__file__) + os.sep
calls, before, frames = collections.Counter(), set(), []

def watch(frame, event, arg):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(root) or not code.co_flags & 1:
        return  # neither modules nor the bodies of classes
    name = f"{code.co_filename[len(root):]} {code.co_qualname}"
    calls[name] += 1
    if not frames:
        before.add((name, code.co_firstlineno))
    elif calls["execution/one_run.py _finish"] == 2:
        sys.setprofile(None)  # both runs are trained; the report calls many functions
    if name.startswith("objectives/") and name.endswith(" Objective.forward"):
        if not frames and not any(weight.is_meta for weight in frame.f_locals["self"].parameters()):
            while frame is not None:
                if frame.f_code.co_filename.startswith(root):
                    frames.append(f"{frame.f_code.co_filename[len(root):]} {frame.f_code.co_qualname}")
                frame = frame.f_back

sys.argv = ["workbench", *sys.argv[2:]]
sys.setprofile(watch)
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
    found = {"frames": frames[::-1], "before": len(before), "calls": calls}
    open(os.environ["WATCHED"], "w").write(json.dumps(found))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, workbench_cache: Path) -> dict[str, Any]:
    """What is called by a command with two runs of six steps."""
    folder = tmp_path_factory.mktemp("watched")
    text = write_text(folder / "small.txt")
    words = ["run", "ablation", "--objective", "rtd", "--objective", "bert-mlm", "--corpus", str(text), *SETS]
    words += ["--tasks", "none", "--budget", "steps=6", "--threads", "1"]
    surroundings = environment(workbench_cache) | {"WATCHED": str(folder / "found.json"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "", *words], cwd=folder, env=surroundings, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def test_at_most_ten_frames_lie_between_main_and_the_objective(watched: dict[str, Any]) -> None:
    frames = watched["frames"]
    assert frames[0].endswith(" main") and frames[-1].endswith(" Objective.forward")
    assert len(frames) <= 10, "\n".join(frames)
    assert not [frame for frame in frames if "<" in frame.replace("<locals>", "")], "work inside a comprehension"


def test_each_of_two_runs_is_planned_once_and_its_settings_are_checked_a_few_times(watched: dict[str, Any]) -> None:
    calls = watched["calls"]
    assert calls["training/plan.py plan"] == 2
    assert calls["spec/run_spec.py parse"] <= 8


def test_few_functions_run_before_the_first_step(watched: dict[str, Any]) -> None:
    assert watched["before"] <= MOST_FUNCTIONS, watched["before"]


MOST_FUNCTIONS = 450  # a bound that is lowered as modules are merged
