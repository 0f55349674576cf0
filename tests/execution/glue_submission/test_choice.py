"""Which run and which fine-tuning seeds are submitted: the best on dev, and never by anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import made

from workbench.errors import InputError
from workbench.execution.glue_submission.choice import SeedChoice, scores_by_task, source_of
from workbench.store.run_store import RunStore


def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
    """Pre-training seed 1 is best for rtd and seed 0 for bert-mlm; fine-tuning seed 1 is best for all tasks but RTE."""
    best = {"rtd": 1, "bert-mlm": 0}.get(arm, 2)
    return 60 + 5 * (seed == best) + (tuning == (0 if task == "RTE" else 1)) + 0.5 * (tuning == 2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    folder = tmp_path_factory.mktemp("study") / "runs"
    return made.study(folder, truth, ("rtd", "bert-mlm"), seeds=3, tunings=3, tasks=("CoLA", "RTE", "WNLI"))[0]


@pytest.mark.parametrize(("arm", "seed"), [("rtd", 1), ("bert-mlm", 0)])
def test_an_arm_is_submitted_by_its_run_with_the_best_mean(store: RunStore, arm: str, seed: int) -> None:
    source = source_of(store, "ablation", arm)
    spec = source.run.spec()
    assert (spec.objective, spec.seed, spec.budget.steps) == (arm, seed, 60)
    mean = 65 + (1 + 0.5) / 3  # WNLI is not part of it
    assert (
        source.how == f"the best mean on dev, {mean:.2f} over 3 tasks, of 3 runs of ablation-nano-1a2b3c4d, arm {arm}"
    )


def test_a_run_with_more_tasks_comes_before_a_better_one(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=2, tasks=("CoLA",))
    made.scored(source_of(store, "ablation", None).run, "CoLA", 0, 99.0)
    other = next(run for run in store.runs() if run.run_id.startswith("rtd") and run.spec().seed == 0)
    made.scored(other, "RTE", 0, 1.0)
    assert source_of(store, "ablation", None).run.run_id == other.run_id


def test_what_is_no_single_run_is_refused(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the arms rtd, bert-mlm; choose one with --arm"):
        source_of(store, "ablation", None)
    with pytest.raises(InputError, match=r"--arm rdt: .* did you mean 'rtd'\?"):
        source_of(store, "ablation", "rdt")
    with pytest.raises(InputError, match="no run 'nothing'"):
        source_of(store, "nothing", None)
    run = next(run.run_id for run in store.runs() if run.run_id.startswith("rtd"))
    assert source_of(store, run, None).how == "named by its user"
    with pytest.raises(InputError, match=f"--arm rtd chooses among the arms of an experiment, and {run} is a run"):
        source_of(store, run, "rtd")
    probes, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=1)
    with pytest.raises(InputError, match="no trained run with a score on GLUE"):
        source_of(probes, "ablation", None)


def seeds(run, wish: SeedChoice) -> dict[str, list[int]]:  # type: ignore[no-untyped-def]
    return {task: [score["seed"] for score in scores] for task, (scores, _) in scores_by_task(run, wish).items()}


def test_seeds_are_chosen_on_dev_or_as_given(store: RunStore) -> None:
    run = source_of(store, "ablation", "rtd").run
    assert seeds(run, SeedChoice()) == {"CoLA": [1], "RTE": [0], "WNLI": [1]}
    assert seeds(run, SeedChoice(seed=2)) == {"CoLA": [2], "RTE": [2], "WNLI": [2]}
    assert seeds(run, SeedChoice(ensemble=2)) == {"CoLA": [1, 2], "RTE": [0, 2], "WNLI": [1, 2]}
    assert seeds(run, SeedChoice(ensemble=4)) == seeds(run, SeedChoice(seed=3)) == {}
    assert scores_by_task(run, SeedChoice())["CoLA"][1] == "the best on dev of 3 fine-tuning seeds"
    assert SeedChoice(ensemble=4).lacking() == "fewer than 4 fine-tuning seeds" and SeedChoice().lacking() == "no score"
    with pytest.raises(InputError, match="--seed 0 names one fine-tuning and --ensemble 2 averages several"):
        SeedChoice(seed=0, ensemble=2)


def test_scores_of_other_settings_held_out_rows_and_stand_ins_are_not_mixed_in(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=1, tunings=2, tasks=("CoLA",))
    run = next(run for run in store.runs() if run.run_id.startswith("rtd"))
    made.scored(run, "CoLA", 0, 99.0, digest="ef56ab78", values={"held-out": {"matthews": 99.0}})
    made.scored(run, "QNLI-devsplit", 0, 99.0)
    made.scored(run, "RTE", 0, None)
    assert seeds(run, SeedChoice()) == {"CoLA": [1]}
    made.scored(run, "CoLA", 5, 70.0, digest="0a0b0c0d")
    scores, rule = scores_by_task(run, SeedChoice())["CoLA"]
    assert [score["digest"] for score in scores] == ["0a0b0c0d"]
    assert rule == "the best on dev of 1 fine-tuning seed, under the best of 2 settings"
    assert seeds(run, SeedChoice(ensemble=2)) == {"CoLA": [1, 0]}


def test_a_damaged_run_of_the_arm_is_named_before_another_one_is_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=2, tasks=("CoLA",))
    best = source_of(store, "ablation", "rtd").run
    assert "damaged" not in caplog.text
    (best.path / "env.json").write_text("{")
    assert source_of(store, "ablation", "rtd").run.run_id != best.run_id
    assert f"{best.path} is damaged and is left out: env.json cannot be read" in caplog.text
