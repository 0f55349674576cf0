"""Scores during training: what they cost, and how many points `auto` chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from priced_tasks import WORDS, sentences, spec_of

from workbench.data import tokenizer
from workbench.spec.presets import resolve
from workbench.tasks import Suite
from workbench.tasks.common import cost
from workbench.tasks.common.examples import Examples
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.linear_probe import fingerprinted as sealed_probe
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.plan import plan


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(tokenizer.train([" ".join(WORDS)] * 300, 80), folder, True)
    return folder


@pytest.fixture(scope="module")
def pairs() -> PairSet:
    return pair_set("toy", "pairs", sentences(50), sentences(50, 400), {"kind": ["a"] * 50})


@pytest.fixture(scope="module")
def probe() -> LinearProbe:
    rows = Examples(sentences(40), None, [i % 2 for i in range(40)])
    spec = resolve("nano").tasks
    return sealed_probe(
        LinearProbe("linear:x", "texts", ("a", "b"), "accuracy", ("accuracy",), rows, {"t": rows}), spec
    )


@pytest.mark.parametrize("steps", [3, 100, 300, 1000, 3000, 10_000, 100_000])
def test_auto_stays_below_five_per_cent(steps: int, words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=steps)
    found = cost.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)
    assert sum(one.share for one in found) < 0.05
    assert [one.each for one in found] == sorted(one.each for one in found)
    assert all(len(one.points) <= 6 for one in found)
    if steps == 100_000:
        assert [len(one.points) for one in found] == [6, 6]


def test_cheaper_suites_come_first_and_points_are_shared(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    suite = Suite((pairs, probe))
    some = [
        cost.series(spec, plan(spec), spec.tasks, suite, words)
        for spec in (spec_of(steps=steps) for steps in (*range(3, 20), *range(20, 4000, 20)))
    ]
    counts = {tuple(len(one.points) for one in found) for found in some}
    assert counts >= {(6, 0), (6, 3), (6, 6)}
    for first, second in some:
        assert set(second.points) <= set(first.points) or len(second.points) > len(first.points)
        assert second.share == 0 or first.points


def test_what_is_asked_for_is_taken_whatever_it_costs(words: Path, pairs: PairSet) -> None:
    spec = spec_of(steps=100, tasks__at="log:4")
    (found,) = cost.series(spec, plan(spec), spec.tasks, Suite((pairs,)), words)
    assert len(found.points) == 4 and found.share > 0.05
    for setting in ({"tasks__at": "none"}, {"tasks__held_out": 0.2}, {"steps": 0}):
        other = spec_of(**({"tasks__at": "log:4"} | setting))  # type: ignore[arg-type]
        assert cost.series(other, plan(other), other.tasks, Suite((pairs,)), words) == []


def test_the_plan_says_how_many_points_and_what_they_cost(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=900)
    runs = [cost.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)]
    told = cost.schedule_sentence(cost.schedule_rows(runs), "auto")
    each = [
        f"{one.suite} at {len(one.points)} points (at most {100 * one.share:.2g} % of a run's compute)"
        for one in runs[0]
    ]
    assert told == f"scores during training: {each[0]}, {each[1]}"
    assert cost.schedule_sentence([], "auto") == ""
    one_point = {"suite": "blimp", "least_points": 1, "most_points": 1, "all_points": 0.02, "one_point": 0.02}
    assert cost.schedule_sentence([one_point], "words").endswith("blimp at 1 point (at most 2 % of a run's compute)")
