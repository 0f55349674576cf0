"""What a search proposes: a pure function of the trials before. Nothing is trained here."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.execution.search import (
    SAMPLERS,
    STARTUP,
    TUNING_SEEDS,
    Search,
    Study,
    Trial,
    default_space,
    open_storage,
    own_spaces,
    search_job,
    tried,
    tune_jobs,
)
from workbench.execution.study import job_of
from workbench.spec import experiment, presets
from workbench.spec.experiment import Range, grid, space_of
from workbench.spec.run_spec import split_settings, value_at

SPACE = {
    "optim.lr": Range(1e-4, 1e-2, log=True, whole=False),
    "batch.size": Range(8, 32, log=False, whole=True),
    "tying": ("none", "tokens"),
}


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_storage_that_cannot_be_a_file_is_refused_unopened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Opening a pipe would wait for ever, and reading a device would not end."""
    make(tmp_path / "trials.log")
    with pytest.raises(InputError, match=r"--storage .*trials\.log is a folder, pipe, device or broken link; name"):
        open_storage(Search(SPACE, 2, storage=str(tmp_path / "trials.log")))
    assert [path.name for path in tmp_path.iterdir()] == ["trials.log"]


def score(trial: Trial) -> Trial:
    """A made-up truth: best at a rate of 1e-3 with shared tokens."""
    rate = math.log10(trial.values["optim.lr"]) + 3
    return replace(trial, score=80 - 10 * rate**2 - 5 * (trial.values["tying"] == "none"), run_ids=(str(trial.trial),))


def carried_out(study: Study, trials: int) -> list[Trial]:
    known: list[Trial] = []
    while len(known) < trials:
        known += [score(trial) for trial in study.propose("rtd", known, study.round(len(known)), 0)]
    return known


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_proposals_stay_in_the_space_and_repeat_exactly(sampler: str) -> None:
    first, again = (carried_out(Study(Search(SPACE, 14, sampler), "x"), 14) for _ in range(2))
    assert first == again and [trial.trial for trial in first] == list(range(14))
    for trial in first:
        assert 1e-4 <= trial.values["optim.lr"] <= 1e-2
        assert 8 <= trial.values["batch.size"] <= 32 and isinstance(trial.values["batch.size"], int)
        assert trial.values["tying"] in ("none", "tokens")
    assert len({trial.values["optim.lr"] for trial in first}) > 10


@pytest.mark.parametrize("seed", range(5))
def test_a_quasi_random_search_covers_each_range_from_its_first_trials_on(seed: int) -> None:
    """Four trials lie in four quarters of the rate, and of the weight."""
    space = {"optim.lr": SPACE["optim.lr"], "options.weight": Range(1.0, 16.0, log=True, whole=False)}
    trials = Study(Search(space, 4, "qmc"), f"x{seed}").propose("rtd", [], 4, 0)
    quarters = [[math.log10(trial.values["optim.lr"]) / 0.5 for trial in trials],
                [math.log2(trial.values["options.weight"]) for trial in trials]]  # fmt: skip
    assert all(len({math.floor(place) for place in places}) == 4 for places in quarters)


@given(cut=st.integers(1, 11), sampler=st.sampled_from(["random", "qmc"]))
@settings(max_examples=10, deadline=None)
def test_a_sequence_goes_on_where_it_was_cut(cut: int, sampler: str) -> None:
    study = Study(Search(SPACE, 12, sampler), "x")
    whole = study.propose("rtd", [], 12, 0)
    known = [score(trial) for trial in whole[:cut]]
    assert study.propose("rtd", known, 12 - cut, 0) == whole[cut:]


def test_more_trials_go_on_with_the_same_ones() -> None:
    short, long = (carried_out(Study(Search(SPACE, count), "x"), count) for count in (12, 16))
    assert long[:12] == short


def test_tpe_gets_nearer_to_the_best() -> None:
    trials = carried_out(Study(Search(SPACE, 40), "x"), 40)
    miss = [abs(math.log10(trial.values["optim.lr"]) + 3) for trial in trials]
    assert sum(miss[-10:]) / 10 < sum(miss[:STARTUP]) / STARTUP / 2


def test_trials_that_failed_or_are_at_work_are_no_obstacle() -> None:
    study = Study(Search(SPACE, 30), "x")
    known = carried_out(study, 12)
    known = [replace(trial, score=None, failed=trial.trial % 2 == 0) if trial.trial > 9 else trial for trial in known]
    assert len(study.propose("rtd", known, 3, 0)) == 3


def test_rounds_hold_what_does_not_depend_on_each_other() -> None:
    tpe, random = Study(Search(SPACE, 25), "x"), Study(Search(SPACE, 25, "random"), "x")
    assert [tpe.round(known) for known in (0, 4, 10, 24, 25)] == [10, 6, 4, 1, 0]
    assert [random.round(known) for known in (0, 20, 25)] == [25, 5, 0]


def test_tuning_and_reporting_have_no_seed_and_no_rows_in_common() -> None:
    base = presets.resolve("nano")
    search = Search(default_space(base, {}), 4)
    searching, reporting = tune_jobs(base, search, ["rtd", "bert-mlm"], "flops")
    assert {spec.seed for spec in searching.specs} == {TUNING_SEEDS}
    assert {spec.seed for spec in reporting.specs} == {0}
    assert searching.base.tasks.held_out > 0 == reporting.base.tasks.held_out
    assert search.space["optim.lr"] == Range(base.optim.lr / 4, base.optim.lr * 4, log=True, whole=False)
    assert searching.experiment.record_name(base, []) != reporting.experiment.record_name(base, [])


def test_a_setting_is_searched_for_the_objectives_to_which_it_makes_a_difference() -> None:
    """With an option that an objective lacks every trial would fail, and BERT MLM has no generator."""
    base = presets.resolve("nano")
    space = {
        "optim.lr": SPACE["optim.lr"], "options.weight": Range(1.0, 50.0, log=True, whole=False),
        "generator.width": ("0.25", "0.5"),
    }  # fmt: skip
    searching, _ = tune_jobs(base, Search(space, 4), ["rtd", "bert-mlm"], "flops")
    rtd, bert = own_spaces(space, searching.specs)
    assert rtd == space and bert == {"optim.lr": SPACE["optim.lr"]}


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ("options.weight=10,20", "10"),  # listed values are proposed as they were typed
        ("options.weight=10,20", 10),  # as is a value of a range of whole numbers
        ("optim.lr=1e-3,2e-3", "1e-3"),
        ("schedule.warmup=unset,0.1", None),
    ],
)
def test_a_trial_is_the_run_that_a_list_of_values_gives(text: str, proposed: str | float | None) -> None:
    base, space = presets.resolve("nano"), space_of(split_settings([text], "--over"))
    [key] = space
    expected = job_of(grid(None, space, None, base), base, 1, ["rtd"]).specs[0]
    [arm] = search_job(grid(None, space, None, base), base, Search(space, 1), ["rtd"]).specs
    [found] = tried(arm, {key: proposed}, [arm.seed])
    assert found == expected and found.name == expected.name
    assert type(value_at(found, key)) is type(value_at(expected, key))


def test_a_value_that_an_option_does_not_accept_is_named() -> None:
    [arm] = job_of(experiment.load("ablation"), presets.resolve("nano"), 1, ["rtd"]).specs
    with pytest.raises(InputError, match=r"options\.weight='heavy' cannot be used"):
        tried(arm, {"options.weight": "heavy"}, [0])


def test_an_option_that_no_objective_of_the_search_has() -> None:
    space = {"options.wieght": Range(1.0, 50.0, log=True, whole=False)}
    with pytest.raises(InputError, match=r"unknown key 'options.wieght'.*options.weight"):
        tune_jobs(presets.resolve("nano"), Search(space, 4), ["rtd", "bert-mlm"], "flops")


def test_a_sampler_that_is_not_there() -> None:
    with pytest.raises(InputError, match="tpe, random, qmc"):
        Search(SPACE, 3, "grid")
