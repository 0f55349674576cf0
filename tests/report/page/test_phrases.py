"""Phrases that sentences of a report share: names of arms, and differences with what is known of their noise."""

from __future__ import annotations

import by_hand
import pytest

from workbench.report.formatting import interval
from workbench.report.page.phrases import gap_text, how, mean_label, named, several
from workbench.report.statistics.paired_comparison import Compared, Difference, Estimate, pairwise


def compared(estimate: Estimate, noise: float | None = None, df: int = 0) -> Compared:
    return Compared(Difference(estimate, tuple(range(estimate.n)), None), None, None, None, noise, df)


def test_arms_are_called_after_the_axis() -> None:
    assert several("objective") == "objectives"
    assert "generator width" in several("generator.width") and "encoder.layers" in several("encoder.layers")
    assert several("generator.width,generator.depth") == several("generator.width")
    assert named("objective", "rtd") == "rtd"
    assert named("generator.width", "0.25") == "generator width 0.25"
    assert named("encoder.layers", "2") == "encoder.layers 2"


@pytest.mark.parametrize("arm", ["unigram", "uniform", "unigram, optim.lr=0.1"])
def test_a_generator_without_weights_has_no_size(arm: str) -> None:
    assert named("generator.width", arm) == f"a {arm} generator"
    assert named("generator.kind", "ngram") == "an ngram generator"
    assert named("corruption.rate", arm) == f"mask rate {arm}"


def of(*ns: int, df: float | None = None) -> list[Compared]:
    return [compared(Estimate(1.0, None, 0.5, n, df)) for n in ns]


@pytest.mark.parametrize(
    ("ns", "df", "numbers"),
    [((1,), None, "1 seed"), ((3, 3), None, "3 seeds"), ((2, 5), None, "2 to 5 seeds"),
     ((2,), 1, "2 seeds, 1 degree of freedom"), ((5, 5), 8, "5 seeds, 8 degrees of freedom")],
)  # fmt: skip
def test_how_comparisons_were_made_counts_seeds_and_degrees_of_freedom(
    ns: tuple[int, ...], df: float | None, numbers: str
) -> None:
    said = how(of(*ns, df=df))
    assert said.endswith(f", {numbers}") and said.count(numbers[0]) >= 1


def test_comparisons_without_an_interval_add_no_degrees_of_freedom() -> None:
    assert how([*of(5, df=8), *of(1)]).endswith("1 to 5 seeds, 8 degrees of freedom")
    assert how([*of(5, df=8), *of(5, df=4.2)]).endswith("5 seeds, 4.2 to 8 degrees of freedom")


@pytest.mark.parametrize(("label", "said"), [("GLUE", "mean GLUE"), ("mean of order, next", "mean of order, next")])
def test_a_mean_is_called_one_once(label: str, said: str) -> None:
    assert mean_label(by_hand.board([by_hand.cell("rtd", [60.0])], label=label)) == said


def test_a_gap_has_its_interval_and_unit() -> None:
    [one] = pairwise({"a": {s: 60.0 + s for s in range(5)}, "b": {s: 50.0 + 1.1 * s for s in range(5)}}).values()
    e = one.estimate
    assert e.half is not None
    assert gap_text(one) == interval(e.mean, e.half) and gap_text(one, " points") == f"{gap_text(one)} points"
    assert gap_text(compared(Estimate(1.25, None, None, 1)), " points") == "1.2 points"


def test_a_gap_without_an_interval_says_why() -> None:
    same = gap_text(compared(Estimate(2.0, None, 0.0, 3), noise=0.0, df=2), " points")
    few = gap_text(compared(Estimate(2.0, None, 0.5, 2), noise=0.5, df=1), " points")
    more = gap_text(compared(Estimate(2.0, None, 0.5, 3), noise=0.5, df=2), " points")
    assert all(said.startswith("2.0 points (") for said in (same, few, more))
    assert "1 degree of freedom is" in few and "2 degrees of freedom are" in more and "degree" not in same


def test_arms_without_a_common_seed_have_no_gap() -> None:
    said = gap_text(compared(Estimate(float("nan"), None, None, 0)), " points")
    assert "nan" not in said and "–" not in said and "seed" in said
