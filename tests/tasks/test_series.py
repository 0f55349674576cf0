"""Scores during training: what they cost, and how many points `auto` chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.data import tokenizer
from workbench.models.sentence_scores import Sentences
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tasks import Suite, series
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.linear.problem import sealed as sealed_probe
from workbench.tasks.price import price
from workbench.tasks.task import Examples
from workbench.tasks.zero_shot.minimal_pairs import PairSet, sealed
from workbench.training.loop import build
from workbench.training.plan import plan

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
LENGTH = 7  # words of each sentence


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(tokenizer.train([" ".join(WORDS)] * 300, 80), folder, True)
    return folder


def sentences(count: int, start: int = 0) -> list[str]:
    """Return different sentences of the same number of tokens."""
    return [" ".join(WORDS[(i // 20**j) % 20] for j in range(LENGTH)) for i in range(start, start + count)]


@pytest.fixture(scope="module")
def pairs() -> PairSet:
    return sealed("toy", "pairs", sentences(50), sentences(50, 400), {"kind": ["a"] * 50})


@pytest.fixture(scope="module")
def probe() -> LinearProbe:
    rows = Examples(sentences(40), None, [i % 2 for i in range(40)])
    spec = resolve("nano").tasks
    return sealed_probe(
        LinearProbe("linear:x", "texts", ("a", "b"), "accuracy", ("accuracy",), rows, {"t": rows}), spec
    )


def spec_of(objective: str = "bert-mlm", steps: int = 1000, **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()} | {"budget.steps": steps}
    return objectives.with_options(resolve("nano", {"encoder.layers": 2} | given | {"objective": objective}))


@pytest.mark.parametrize("name", ["bert-mlm", "rtd", "replace-mlm", "all-tokens-mlm", "electra-15"])
def test_pairs_cost_no_more_than_their_price_whoever_scores(name: str, words: Path, pairs: PairSet) -> None:
    """Compared with torch's own counter for both usual scorers of every objective, at real sizes."""
    spec = spec_of(name, encoder__attention="eager", encoder__vocab=8192)
    model: Any = build(spec).eval()
    tokens = LENGTH + 2
    ids = torch.randint(5, 8000, (10, tokens))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    text = Sentences(ids, None, torch.arange(tokens).repeat(10, 1))
    usual = list(model.scorers().items())
    own, beside = usual[0][1], dict(usual).get("generator-pll")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for scorer in (own, *([beside] if beside else [])):
            scorer(text)
    stated = price(pairs, spec, spec.tasks, words) / len({*pairs.good, *pairs.bad}) * 10
    assert 0 < counter.get_total_flops() <= stated
    if name == "bert-mlm":
        assert counter.get_total_flops() > 0.4 * stated, "an upper bound, but no empty one"


def test_the_price_is_the_same_for_every_objective(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    for measure in (pairs, probe):
        found = {price(measure, spec_of(name), spec_of().tasks, words) for name in ("bert-mlm", "rtd", "electra-15")}
        assert len(found) == 1


def test_a_word_more_costs_the_square(words: Path) -> None:
    def of(length: int) -> float:
        texts = [" ".join(text.split()[:length]) for text in sentences(10)]
        made = sealed("toy", "pairs", texts, texts, {"kind": ["a"] * 10})
        return price(made, spec_of(), spec_of().tasks, words) / len(set(texts))

    assert of(6) / of(3) == pytest.approx((7 * 8) / (4 * 5), rel=0.15)


@pytest.mark.parametrize("steps", [3, 100, 300, 1000, 3000, 10_000, 100_000])
def test_auto_stays_below_five_per_cent(steps: int, words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=steps)
    found = series.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)
    assert sum(one.share for one in found) < 0.05
    assert [one.each for one in found] == sorted(one.each for one in found)
    assert all(len(one.points) <= 6 for one in found)
    if steps == 100_000:
        assert [len(one.points) for one in found] == [6, 6]


def test_cheaper_suites_come_first_and_points_are_shared(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    suite = Suite((pairs, probe))
    some = [
        series.series(spec, plan(spec), spec.tasks, suite, words)
        for spec in (spec_of(steps=steps) for steps in (*range(3, 20), *range(20, 4000, 20)))
    ]
    counts = {tuple(len(one.points) for one in found) for found in some}
    assert counts >= {(6, 0), (6, 3), (6, 6)}
    for first, second in some:
        assert set(second.points) <= set(first.points) or len(second.points) > len(first.points)
        assert second.share == 0 or first.points


def test_what_is_asked_for_is_taken_whatever_it_costs(words: Path, pairs: PairSet) -> None:
    spec = spec_of(steps=100, tasks__at="log:4")
    (found,) = series.series(spec, plan(spec), spec.tasks, Suite((pairs,)), words)
    assert len(found.points) == 4 and found.share > 0.05
    for setting in ({"tasks__at": "none"}, {"tasks__held_out": 0.2}, {"steps": 0}):
        other = spec_of(**({"tasks__at": "log:4"} | setting))  # type: ignore[arg-type]
        assert series.series(other, plan(other), other.tasks, Suite((pairs,)), words) == []


def test_the_plan_says_how_many_points_and_what_they_cost(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    spec = spec_of(steps=900)
    runs = [series.series(spec, plan(spec), spec.tasks, Suite((pairs, probe)), words)]
    told = series.sentence(series.rows(runs), "auto")
    each = [
        f"{one.suite} at {len(one.points)} points (at most {100 * one.share:.2g} % of a run's compute)"
        for one in runs[0]
    ]
    assert told == f"scores during training: {each[0]}, {each[1]}"
    assert series.sentence([], "auto") == ""
