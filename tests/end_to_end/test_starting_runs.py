"""Experiments whose runs start from others, from the command line to the report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SETS, Command

TASKS = ("--set", "tasks.seeds=1", "--set", "tasks.epochs=1")


def runs_of(folder: Path) -> dict[str, dict[str, object]]:
    """Spec and facts of every trained run."""
    found = {}
    for path in folder.glob("runs/*/done.json"):
        spec = json.loads((path.parent / "spec.json").read_text())["spec"]
        found[path.parent.name] = {
            **json.loads(path.read_text()), "spec": spec, "plan": json.loads((path.parent / "plan.json").read_text()),
            "scores": len(list(path.parent.glob("scores/*.json"))),
        }  # fmt: skip
    return found


def arms_of(folder: Path) -> list[str]:
    with next(folder.glob("out/table.csv")).open(newline="") as lines:
        return [row["arm"] for row in csv.DictReader(lines)]


def test_training_algorithms_side_by_side(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Joint, two-stage and adversarial at equal FLOPs, the parent's included; the parent itself has no scores."""
    words = ["sweep", "training-algorithm", "--corpus", text, "--tasks", table, "--budget", "flops=3e9", *SETS, *TASKS]
    done = workbench(*words, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = runs_of(tmp_path)
    two_stage = next(run for run in runs.values() if run["spec"]["start"])  # type: ignore[index]
    parent = runs[two_stage["plan"]["parent"]["run_id"]]  # type: ignore[index]
    assert parent["spec"]["objective"] == "bert-mlm" and parent["scores"] == 0  # type: ignore[index]
    arms = [run for run in runs.values() if run["scores"] and run["steps"]]
    assert len(arms) == 3 and two_stage in arms
    for run in arms:
        assert 0.97 * 3e9 < run["flops"]["matmul"] <= 3e9  # type: ignore[index]
    assert {"adversarial", "rtd", "rtd, two-stage"} <= set(arms_of(tmp_path))


def test_causal_first_and_then_masked(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Five arms at equal FLOPs, the causal parents' included, and a baseline for each kind of encoder."""
    words = ["sweep", "biphasic", "--corpus", text, "--tasks", table, "--budget", "flops=3e9", *SETS, *TASKS]
    done = workbench(*words, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs: dict[str, Any] = runs_of(tmp_path)
    arms = [run for run in runs.values() if run["scores"] and run["steps"]]
    started = {run["spec"]["start"]["share"]: run for run in arms if run["spec"]["start"]}
    assert len(arms) == 5 and sorted(started) == [0.25, 0.5, 0.75]
    for run in arms:
        assert 0.96 * 3e9 < run["flops"]["matmul"] <= 3e9
    for share, run in started.items():
        parent = runs[run["plan"]["parent"]["run_id"]]
        assert (run["spec"]["objective"], parent["spec"]["objective"]) == ("bert-mlm", "causal-lm")
        assert (run["spec"]["encoder"]["causal"], parent["spec"]["encoder"]["causal"]) == (None, True)
        assert parent["scores"] == 0 and parent["flops"]["matmul"] == pytest.approx(share * 3e9, rel=0.1)
    names = arms_of(tmp_path)
    assert {f"bert-mlm, after {share} % causal-lm" for share in (25, 50, 75)} < set(names)
    assert {"bert-mlm", "causal-lm"} < set(names)
    bare = [run["spec"] for run in runs.values() if not run["steps"]]
    assert {(spec["objective"], spec["encoder"]["causal"]) for spec in bare} == {
        ("bert-mlm", None),
        ("causal-lm", True),
    }


@pytest.mark.slow
def test_branches_of_one_trunk_beside_whole_runs(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Five budgets twice, two workers: five pieces of trunk, each trained once, and every branch goes on from one."""
    words = ["sweep", "efficiency", "--corpus", text, "--tasks", table, "--budget", "tokens=160000", *SETS, *TASKS]
    done = workbench(*words, "--match", "tokens", "--out", "out", "--workers", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = runs_of(tmp_path)
    kinds: dict[str, list[int]] = {}
    for run in runs.values():
        spec = run["spec"]
        if spec["budget"]["steps"] != 0:  # type: ignore[index]
            kinds.setdefault(spec["schedule"]["kind"], []).append(run["steps"])  # type: ignore[index, arg-type]
    assert {kind: len(steps) for kind, steps in kinds.items()} == {"linear": 5, "wsd": 5, "constant": 5}
    assert sorted(kinds["linear"]) == sorted(kinds["wsd"]) == [39, 78, 156, 312, 625]
    assert sorted(kinds["constant"]) == [31, 62, 125, 250, 500]
    assert {"rtd", "rtd, branch of a trunk"} <= {name.partition(", schedule")[0] for name in arms_of(tmp_path)}
