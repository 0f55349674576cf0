"""Comparisons that were declared beforehand: their correction, their claims, and the sentences of a report on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import made
import parsed
import pytest
from declared_pairs import ELECTRA, PAPER, contrast, declare, declared_study

from workbench.report import csv_tables, write
from workbench.report.comparison import declared
from workbench.report.page import advice, warnings
from workbench.report.statistics.noise import adjusted, pair_noise, reach_of
from workbench.report.statistics.paired_comparison import ALPHA, pairwise
from workbench.report.statistics.power import family_of, smallest_gap, unit_gap


def test_correction_runs_over_the_declared_comparisons_alone() -> None:
    found, _ = declared_study(made.LEVELS, declare(ELECTRA))
    scores = {cell.arm: cell.scores for cell in found.cells}
    alone = pairwise(scores, family=[("rtd", "bert-mlm"), ("rtd", "electra-15")])
    every = pairwise(scores)
    pairs = {(pair.a, pair.b): pair.compared for pair in found.pairs[found.budget]}
    assert len(pairs) == 10 and {pair for pair, c in pairs.items() if c.declared} == set(ELECTRA)
    for pair in ELECTRA:
        assert pairs[pair] == alone[pair] and pairs[pair].adjusted < every[pair].adjusted
    for pair in pairs.keys() - set(ELECTRA):
        assert pairs[pair].adjusted == every[pair].adjusted and not pairs[pair].claimed


def test_pairs_that_were_not_declared_are_never_ahead() -> None:
    """All-tokens MLM is four points above BERT MLM, but this comparison was not declared."""
    found, frames = declared_study(made.LEVELS, declare([("rtd", "electra-15")]))
    said = {(row["a"], row["b"]): row["verdict"] for row in csv_tables.pairs(found)}
    assert said.pop(("rtd", "electra-15")) == "ahead" and set(said.values()) == {"exploratory"}
    whole, _ = declared_study(made.LEVELS, [])
    claimed = [row["a"] for row in csv_tables.pairs(whole) if row["verdict"] == "ahead"]
    assert "all-tokens-mlm" in claimed
    taken = advice.advise(found, frames, None, "paper")
    assert "no comparison that was declared beforehand puts one of rtd, all-tokens-mlm" in taken


def test_a_comparison_declared_when_scores_were_there_does_not_narrow_the_correction() -> None:
    found, frames = declared_study(made.LEVELS, declare(ELECTRA, seen=2))
    whole, _ = declared_study(made.LEVELS, [])
    assert found.pairs == whole.pairs and not found.families
    [said] = declared.warning(frames)
    assert said in warnings.warnings(frames, [found], {})
    assert "rtd against bert-mlm (2) and rtd against electra-15 (2)" in said and "covers all pairs" in said
    mixed, frames = declared_study(made.LEVELS, [*declare(ELECTRA[:1]), *declare(ELECTRA[1:], seen=1)])
    assert mixed.family.pairs == ELECTRA[:1] and "exploratory" in declared.warning(frames)[0]


def test_runs_that_are_missing_leave_a_contrast_out() -> None:
    found, _ = declared_study({"rtd": 70.0, "bert-mlm": 65.0, "untrained": 60.0}, declare(ELECTRA))
    assert found.family.pairs == ELECTRA[:1]
    broken = [{"runs_a": 3, "runs_b": None}, {"runs_a": ["gone"], "runs_b": [7]}, "no mapping", {}]
    assert not declared_study(made.LEVELS, broken)[0].families  # type: ignore[arg-type]


def test_the_smallest_gap_is_that_of_the_declared_comparisons() -> None:
    found, _ = declared_study(made.LEVELS, declare(ELECTRA))
    noise = found.noise[found.budget][0]
    family = family_of([cell.arm for cell in found.cells], ELECTRA)
    assert noise.gap == smallest_gap(noise.paired or 0.0, 5, 5, family)
    one, two, every = unit_gap(5, 5, ((0, 1),)), unit_gap(5, 5, family), unit_gap(5, 5)
    assert one is not None and two is not None and every is not None and one < two < every


@pytest.mark.parametrize(("seeds", "family"), [(5, PAPER), (4, PAPER), (5, ((0, 1), (2, 3)))])
def test_a_gap_is_shown_four_times_in_five_for_declared_comparisons(
    seeds: int, family: tuple[tuple[int, int], ...]
) -> None:
    """The gap is shown in other draws with other noise, judged by the same rule.

    The arm in the fewest comparisons is ahead.
    """
    import numpy as np
    from scipy import stats

    gap = unit_gap(5, seeds, family)
    assert gap is not None
    counts = [sum(arm in pair for pair in family) for arm in range(5)]
    arm = min((a for a in range(5) if counts[a]), key=lambda a: counts[a])
    scores = np.random.default_rng(5).normal(0, 3 / np.sqrt(2), (3000, 5, seeds))
    scores[:, arm] += 3 * gap
    first, second = np.triu_indices(5, 1)
    gaps = scores[:, first] - scores[:, second]
    means, variances = gaps.mean(axis=2), gaps.var(axis=2, ddof=1)
    noise = pair_noise(variances, np.full(10, float(seeds)), 5, 4 * (seeds - 1))
    place = {frozenset(pair): i for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
    mine = [place[frozenset(pair)] for pair in family]
    error = np.sqrt(np.maximum(noise.own, 1e-12) / seeds)
    own = (2 * stats.t.sf(np.abs(means) / error, noise.own_df))[:, mine]
    shared = 2 * stats.t.sf(np.abs(means) / np.sqrt(noise.shared / seeds), 4 * (seeds - 1))[:, mine]
    p = adjusted(shared, own, reach_of([(str(a), str(b)) for a, b in family]))
    shown = [float((p[:, i] < ALPHA).mean()) for i, pair in enumerate(family) if arm in pair]
    assert min(shown) == pytest.approx(0.8, abs=0.03)


def test_the_page_and_its_tables_name_what_was_declared(tmp_path: Path) -> None:
    levels = {"rtd": 75.0, "bert-mlm": 65.0, "electra-15": 55.0, "untrained": 50.0}
    store, name = made.study(tmp_path / "runs", made.noisy(levels), ("rtd", "bert-mlm", "electra-15"), seeds=4)
    ids = {a: [made.spec_of(a, s, {"steps": 60}).name for s in range(4)] for a in levels if a != "untrained"}
    row = contrast("rtd", "bert-mlm", 0, label="all of <ELECTRA>") | {"runs_a": ids["rtd"], "runs_b": ids["bert-mlm"]}
    first = store.experiment(name)
    store.extend_experiment(replace(first, contrasts=[row]))
    text = " ".join(parsed.page(write(store, name, tmp_path / "out")).find("body")[0].text.split())
    assert "all of <ELECTRA>" in text and "electra-15 is ahead" not in text and "bert-mlm is ahead" not in text
    rows = parsed.sheet(tmp_path / "out" / "pairs.csv")
    assert [(r["a"], r["b"], r["verdict"], r["declared"], r["contrast"]) for r in rows] == [
        ("rtd", "bert-mlm", "ahead", "yes", "all of <ELECTRA>"),
        ("rtd", "electra-15", "exploratory", "no", ""),
        ("bert-mlm", "electra-15", "exploratory", "no", ""),
    ]
