"""Commands that start no run: what they refuse, and their exit codes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from workbench import cli
from workbench.cli.tools import doctor, flops, list_
from workbench.errors import InputError
from workbench.execution import study_power
from workbench.options import RunOptions, StudyOptions
from workbench.spec.presets import resolve
from workbench.training.plan import plan


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_power, "training_seconds", lambda runs, host: [10.0 for _ in runs])


@pytest.mark.parametrize("points", ["1e308", "1e10", "0", "nan", "inf"])
def test_a_deviation_that_no_scores_have_is_refused(points: str) -> None:
    """Products with it would overflow, and JSON has no infinity."""
    found = CliRunner().invoke(cli.app, ["plan-study", "ablation", "--sd", points, "--json"])
    assert found.exit_code == 2 and "--sd" in found.output


@pytest.mark.usefixtures("offline")
def test_the_exit_code_tells_of_problems(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(typer.Exit) as end:
        doctor(as_json=True)
    assert end.value.exit_code == 0 and {"what", "state", "found"} == set(json.loads(capsys.readouterr().out)[0])
    monkeypatch.setenv("WORKBENCH_CACHE", os.devnull + "/x")
    with pytest.raises(typer.Exit) as end:
        doctor()
    assert end.value.exit_code == 1 and "problem" in capsys.readouterr().out


def test_the_command_prints_a_table_or_one_document(
    quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.cli.tools import plan_study

    monkeypatch.setattr(study_power.designs, "__defaults__", ((3, 4),))
    options = RunOptions("ablation", objective=("rtd", "bert-mlm", "electra-15"), budget="flops=1e11")
    plan_study(options, sd=0.5)
    text, said = capsys.readouterr()
    assert "no kept study is within a factor of 10 of this budget" in said
    assert "3 arms; declared: rtd against bert-mlm; electra-15 against bert-mlm; rtd against electra-15" in text
    assert "scatter by 0.50 points, as assumed" in text and "gap, auto" in text
    plan_study(options, sd=0.5, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert [row["seeds"] for row in document["measures"][0]["designs"]] == [3, 4]
    with pytest.raises(InputError, match=r"--sd 0.5 and --noise-of x contradict each other"):
        plan_study(options, sd=0.5, noise_of="x")


def test_without_runs_kept_studies_give_the_noise_or_the_command_is_refused(
    quick: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from workbench.cli.tools import plan_study

    options = RunOptions("ablation", scale="micro", budget="flops=4e13", runs=tmp_path / "none")
    plan_study(options)
    printed = capsys.readouterr()
    assert "the noise is taken from kept studies: there are no runs in" in printed.err
    row = next(line for line in printed.out.splitlines() if line.startswith("STS-B"))
    assert "no objective is above a bag of words" in row and "ablation-micro-finetuned" in row
    plan_study(options, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["measures"] == [] and "STS-B" in {one["measure"] for one in document["kept_studies"]}
    with pytest.raises(InputError, match=r"there are no runs in .*; or assume the noise, as in --sd 2"):
        plan_study(RunOptions("ablation", budget="flops=1e11", runs=tmp_path / "none"))
    with pytest.raises(InputError, match="there are no runs in"):
        plan_study(options, noise_of="mine")


def test_a_list_that_is_not_there_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="list objektives: there is no list of this name; did you mean 'objectives'"):
        list_("objektives")


def test_the_price_of_a_run_is_that_of_its_spec(capsys: pytest.CaptureFixture[str]) -> None:
    flops(StudyOptions(scale="small", set={"data.length": 64}, budget={"steps": 7}), "bert-mlm", as_json=True)
    document = json.loads(capsys.readouterr().out)
    spec = resolve("small", {"objective": "bert-mlm", "data.length": 64, "budget.steps": 7})
    assert document == asdict(plan(spec)) and document["tokens"] == 7 * 128 * 64
