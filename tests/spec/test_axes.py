"""The words of --over: values, ranges, and the experiment that they make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.execution.study import job_of
from workbench.spec import presets
from workbench.spec.axes import Range, grid, space_of, unit_of
from workbench.spec.experiment import Experiment
from workbench.spec.run_spec import RunSpec, split_settings, value_at

NANO = presets.resolve("nano", {"budget.steps": 100})


def test_cells_that_are_one_run_are_one_run() -> None:
    found = grid(
        None,
        space_of({"generator.width": "0.25,0.5", "generator.kind": "transformer,unigram"}),
        None,
        NANO,
    )
    assert len(job_of(found, NANO, 1, []).specs) == 3


def test_a_cell_that_cannot_be_is_named() -> None:
    found = grid(None, space_of({"tying": "none,all", "generator.width": "0.5"}), None, NANO)
    with pytest.raises(InputError, match=r"tying=all, generator\.width=0\.5"):
        job_of(found, NANO, 1, [])


def test_values_and_ranges() -> None:
    assert space_of({"tying": "none, all", "optim.lr": "1e-4..1e-3:log", "batch.size": "16..64"}) == {
        "tying": ("none", "all"),
        "optim.lr": Range(1e-4, 1e-3, log=True, whole=False),
        "batch.size": Range(16, 64, log=False, whole=True),
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["optim.lr"], "is not of the form"),
        (["optim.lr="], "is not of the form"),
        (["optim.rl=1,2"], "did you mean 'optim.lr'"),
        (["optim.lr=1,1"], "different values"),
        (["optim.lr=1,,2"], "different values"),
        (["optim.lr=1..x"], "a range is two numbers"),
        (["optim.lr=2..1"], "must be below"),
        (["optim.lr=0..1:log"], "must begin above 0"),
        (["optim.lr=1..1e400"], "too wide to be searched"),
        (["optim.lr=-1e400..1"], "too wide to be searched"),
        (["optim.lr=-1e308..1e308"], "too wide to be searched"),
        (["optim.lr=1,2", "optim.lr=3"], "given twice"),
    ],
)
def test_words_that_say_nothing_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        space_of(split_settings(words, "--over"))


def test_an_axis_takes_other_values_or_joins_others() -> None:
    narrower = grid("generator-size", space_of({"generator.width": "0.5,1"}), None, NANO)
    assert (narrower.name, narrower.axis) == ("generator-size", "generator.width")
    joined = grid("generator-size", space_of({"optim.lr": "1e-3,2e-3"}), None, NANO)
    assert (joined.name, joined.axis) == ("generator-size-over-optim-lr", "generator.width,optim.lr")
    runs: list[RunSpec] = list(joined.runs(NANO, 1))
    assert {(value_at(run, "generator.width"), value_at(run, "optim.lr")) for run in runs} >= {(0.125, 2e-3)}
    with pytest.raises(InputError, match="generator-size, or --over"):
        grid(None, {}, None, NANO)
    with pytest.raises(InputError, match="contradict"):
        grid(None, space_of({"objective": "rtd,bert-mlm"}), None, NANO, ["rtd"])


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e6), st.booleans())
def test_a_range_is_printed_as_it_is_typed(low: float, factor: float, log: bool) -> None:
    [written] = space_of({"optim.lr": f"{low:g}..{low * factor:g}{':log' if log else ''}"}).values()
    assert isinstance(written, Range) and (written.low, written.log) == (float(f"{low:g}"), log)
    assert space_of({"optim.lr": f"{written}"}) == {"optim.lr": written}


@pytest.mark.parametrize(
    ("match", "file", "budget", "unit"),
    [
        (None, None, {}, "flops"),
        (None, None, {"budget.seconds": 60}, "seconds"),
        (None, "tokens", {"budget.seconds": 60}, "tokens"),
        ("steps", "tokens", {}, "steps"),
        ("none", "tokens", {}, None),
    ],
)
def test_the_unit_is_the_commands_then_the_files_then_the_budgets(
    match: str | None, file: str | None, budget: dict[str, float], unit: str | None
) -> None:
    base = presets.resolve("nano", budget)
    assert unit_of(match, Experiment("x", "?", {}, match=file), base) == unit


def test_a_question_of_ones_own_axes_names_them_and_what_is_equal() -> None:
    several = grid(None, space_of({"tying": "none,all", "optim.lr": "1,2", "batch.size": "1,2"}), "tokens", NANO)
    assert several.question == "At an equal number of tokens, which tying, optim.lr and batch.size does best?"
    assert grid(None, space_of({"tying": "none,all"}), "none", NANO).question == "Which tying does best?"
    with pytest.raises(InputError, match="--match 'watts' is not one of steps, tokens, words, flops, seconds, none"):
        grid(None, space_of({"tying": "none,all"}), "watts", NANO)


def test_a_name_of_many_axes_is_cut_to_eighty_characters() -> None:
    keys = ("optim.lr", "optim.beta1", "optim.beta2", "optim.weight_decay", "encoder.dropout", "encoder.init")
    name = grid(None, space_of(dict.fromkeys(keys, "0.1,0.2")), "tokens", NANO).name
    assert len(name) == 80 and name.startswith("over-optim-lr-optim-beta1-")
