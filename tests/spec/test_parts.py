"""The parts of a spec: which values they take, and the sentences where they do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from workbench.spec.parts import (
    UNITS,
    Budget,
    CorruptionSpec,
    DataSpec,
    EncoderSpec,
    PairSpec,
    Part,
    ScheduleSpec,
    TasksSpec,
)


@given(st.sets(st.sampled_from(UNITS)))
def test_a_budget_is_in_exactly_one_unit(units: set[str]) -> None:
    if len(units) == 1:
        budget = Budget(**dict.fromkeys(units, 5))
        assert (budget.unit, budget.amount) == (*units, 5.0)
    else:
        with pytest.raises(ValidationError, match="budget takes exactly one of steps, tokens, words, flops and seco"):
            Budget(**dict.fromkeys(units, 5))


@given(st.integers(1, 10**9), st.floats(1e-6, 1))
def test_a_part_of_a_budget_has_its_unit_and_convention(amount: int, share: float) -> None:
    steps = Budget(**Budget(steps=amount, convention="matmul").part(share))
    assert steps.convention == "matmul" and steps.steps is not None
    assert 1 <= steps.steps <= amount and abs(steps.steps - amount * share) <= max(1, amount * 1e-9)
    tokens = Budget(**Budget(tokens=amount).part(share))
    assert tokens.amount == pytest.approx(amount * share) and tokens.convention == "paper"


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        (EncoderSpec, {"layers": 5000}, "should be less than or equal to 4096"),  # to count its weights takes minutes
        (CorruptionSpec, {"mask": 0.8, "random": 0.3}, "mask (0.8) and random (0.3) together exceed 1"),
        (CorruptionSpec, {"generator_random": 0.1}, "lower generator_mask, as in generator_mask=0.8"),
        (ScheduleSpec, {"floor": 0.1}, "at which only a cosine ends"),
        (ScheduleSpec, {"kind": "wsd", "overlap": True}, "set schedule.overlap=false or schedule.kind=linear"),
        (PairSpec, {"names": "one"}, "takes two models, as in start.from=DISCRIMINATOR,GENERATOR, and 1 are named"),
        (TasksSpec, {"at": "log:51"}, "log:N with N from 1 to 50, such as log:6"),
        (TasksSpec, {"at": "log:06"}, "must be auto, none, words, or log:N"),
        (DataSpec, {"corpus": ("a", "b\udcff")}, "is not valid UTF-8"),
        (DataSpec, {"corpus": " , "}, "at least 1 item"),
        (ScheduleSpec, {"decay": float("nan")}, "finite number"),
    ],
)
def test_values_that_contradict_each_other_are_refused(part: type[Part], values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        part(**values)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        (CorruptionSpec, {"mask": 0.9, "random": 0.1}),  # 0.1 + 0.9 may be a little above 1
        (ScheduleSpec, {"kind": "cosine", "floor": 0.1}),
        (TasksSpec, {"at": "log:50"}),
    ],
)
def test_values_at_the_limit_are_taken(part: type[Part], values: dict[str, Any]) -> None:
    assert {key: getattr(part(**values), key) for key in values} == values


@given(st.lists(st.text("abc xyz", min_size=1).map(str.strip).filter(bool), min_size=1))
def test_names_may_be_one_text_with_commas(names: list[str]) -> None:
    assert DataSpec(corpus=" , ".join(names)) == DataSpec(corpus=tuple(names))  # type: ignore[arg-type]


def test_tasks_are_chosen_where_one_has_a_name() -> None:
    assert [TasksSpec(names=names).chosen for names in (("none",), (), ("none", "RTE"))] == [False, False, True]
