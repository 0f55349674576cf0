"""Commands that start runs: what of their options reaches the runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import OBJECTIVES, rates

from workbench.bench import estimate
from workbench.cli import command, train
from workbench.errors import RankLost
from workbench.execution import devices, study_runner
from workbench.execution.study import Job
from workbench.options import RunOptions, SweepOptions
from workbench.spec import presets

NANO = presets.resolve("nano", {"budget.steps": 100})


def test_a_process_whose_others_are_gone_says_so_in_a_sentence(
    ended: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first process shows the last line of the others, which must therefore not be an internal error."""

    def lose() -> None:
        raise RankLost("another process ended")

    monkeypatch.setattr(devices, "follow_all", lose)
    assert ended("rank") == 1 and capsys.readouterr().err == "workbench: another process ended\n"


@pytest.mark.parametrize("kind", ["run", "sweep", "tune"])
def test_what_set_names_on_the_command_line_is_set_for_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "OBJECTIVES", OBJECTIVES)
    jobs: list[Job] = []
    monkeypatch.setattr(train, "_print_plan", lambda job, *rest: jobs.append(job))
    own = {"rtd": 3e-3, "bert-mlm": 2e-3}
    for sets, expected in (({}, own), ({"optim.lr": NANO.optim.lr}, dict.fromkeys(own, NANO.optim.lr))):
        given = {"objective": tuple(own), "set": sets}
        if kind == "run":
            train.run(RunOptions("ablation", **given), dry_run=True)
        elif kind == "sweep":
            train.sweep_(SweepOptions(over={"tying": "none"}, **given), dry_run=True)
        else:
            train.sweep_(SweepOptions("tune", {"options.weight": "1,2"}, **given), dry_run=True)
        assert rates(jobs.pop()) == expected


def test_a_rehearsed_plan_has_a_row_for_each_run_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = RunOptions("ablation", objective=("rtd", "bert-mlm"), budget="steps=700", seeds=3)
    train.run(options, dry_run=True, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert [(row["objective"], row["seed"]) for row in document["runs"]] == [
        (name, seed) for seed in range(3) for name in ("rtd", "bert-mlm")
    ]
    assert document["equal_compute"] and document["runs"][0]["steps"] == 700
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "search", "said"),
    [
        (SweepOptions("tune", trials=6, tuning_seeds=3, seeds=4), (6, 3, 4, 22),
         "6 trials of 3 seeds, then 4 seeds of the best settings"),
        (SweepOptions(over={"optim.lr": "1e-3..4e-3"}, trials=5, seeds=2), (5, 2, 0, 10), "5 trials of 2 seeds"),
    ],
)  # fmt: skip
def test_the_plan_of_a_search_has_the_price_of_all_its_runs(
    options: SweepOptions, search: tuple[int, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "training_seconds", lambda runs, host: [60.0 for _ in runs])
    monkeypatch.setattr(study_runner, "trained_already", lambda job, *rest: {spec.name for spec in job.specs})
    options = replace(options, objective=("rtd", "bert-mlm"), budget="steps=700", workers=2)
    train.sweep_(options, dry_run=True, as_json=True)
    assert tuple(json.loads(capsys.readouterr().out)["search"].values()) == search
    train.sweep_(options, dry_run=True)
    printed, runs = capsys.readouterr().out.splitlines(), 2 * search[-1]
    assert "trained already" not in "".join(printed), "trials are other runs than the planned ones"
    assert f"in place of each run of the table: {said}" in printed
    (price,) = (line for line in printed if line.startswith("pre-training time for "))
    assert price.startswith(f"pre-training time for all {runs} runs: about {runs // 2} min 0 s here")


@pytest.mark.parametrize(
    ("processes", "later", "expected"),
    [(1, False, ["command"]), (4, False, ["command", "dismiss"]), (4, True, ["follow"])],
)
def test_the_first_process_of_several_carries_a_command_out(
    processes: int, later: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others compute their parts, and are sent home also where the command fails."""
    called: list[str] = []
    monkeypatch.setattr(command, "launched", lambda: processes)
    monkeypatch.setattr(command, "follows", lambda: later)
    monkeypatch.setattr(devices, "follow_all", lambda: called.append("follow"))
    monkeypatch.setattr(devices, "dismiss", lambda: called.append("dismiss"))

    def carry_out() -> None:
        called.append("command")
        raise KeyboardInterrupt

    if "command" in expected:
        with pytest.raises(KeyboardInterrupt):
            command.as_command(carry_out, by_first=True)()
    else:
        command.as_command(carry_out, by_first=True)()
    assert called == expected
