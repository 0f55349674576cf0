"""Sentences on declared comparisons: how many are decided, by how much, and what the others would take."""

from __future__ import annotations

import re

import by_hand
import pytest
from by_hand import cell

from workbench.report.comparison.boards import Board
from workbench.report.page import decisions
from workbench.report.page.phrases import gap_text
from workbench.report.statistics.group_sequential import Plan
from workbench.report.statistics.noise import own_noises
from workbench.report.statistics.power import needed_seeds

NAMES = {"a": "arm A", "b": "arm B", "c": "arm C", "d": "arm D"}
WOBBLE = (0.0, 0.5, -0.4, 0.2, -0.3, 0.1)


def scores(level: float, turn: int, seeds: int = 5) -> dict[int, float]:
    """Scores around a level, whose order of noise differs from arm to arm."""
    return {seed: level + WOBBLE[(seed * (turn + 1) + turn) % 6] for seed in range(seeds)}


def board(declared: str, plan: Plan | None = None, seeds: int = 5, **levels: float) -> Board:
    """Arms with these levels; `declared` are pairs such as "ab ac"."""
    cells = [cell(arm, scores(level, turn, seeds)) for turn, (arm, level) in enumerate(levels.items())]
    return by_hand.board(cells, [(pair[0], pair[1]) for pair in declared.split()], plan)


def gap(found: Board, a: str, b: str) -> str:
    return next(gap_text(pair.compared) for pair in found.pairs[found.budget] if {pair.a, pair.b} == {a, b})


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def test_pairs_stand_in_the_order_of_their_declaration() -> None:
    found = board("cd ba ca", a=70, b=60, c=50, d=40)
    assert [{pair.a, pair.b} for pair in decisions.declared_pairs(found)] == [
        {"c", "d"},
        {"a", "b"},
        {"a", "c"},
    ]
    assert all(pair.compared.declared for pair in decisions.declared_pairs(found))
    assert len(found.pairs[found.budget]) == 6


def test_one_comparison_that_is_decided_tells_its_gap() -> None:
    found = board("ba", a=70, b=60, c=50)
    text = decisions.sentence(found, NAMES)
    assert f"arm A is ahead of arm B by {gap(found, 'a', 'b')}" in text and "arm C" not in text
    assert "probe score" in text and "5 seeds" in text and text.endswith(".") and "comparisons" not in text


def test_all_decisions_are_grouped_by_the_arm_that_is_ahead() -> None:
    found = board("ab cb ad", a=70, b=60, c=80, d=40)
    text = decisions.sentence(found, NAMES)
    first = f"arm A is ahead of arm B by {gap(found, 'a', 'b')} and of arm D by {gap(found, 'a', 'd')}"
    assert f"{first}; arm C is ahead of arm B by {gap(found, 'c', 'b')}" in text
    assert numbers(text)[0] == "3" and "comparisons" in text


@pytest.mark.parametrize(
    ("declared", "beginning"),
    [
        ("ab", "The comparison that was declared beforehand is not decided"),
        ("ab ac", "None of the 2 comparisons that were declared beforehand is decided"),
    ],
)
def test_where_nothing_is_decided_every_gap_is_told_and_none_is_ahead(declared: str, beginning: str) -> None:
    found = board(declared, a=60.0, b=60.1, c=60.05)
    text = decisions.sentence(found, NAMES)
    assert "ahead" not in text and text.startswith(beginning)
    for pair in decisions.declared_pairs(found):
        assert f"{NAMES[pair.a]} and {NAMES[pair.b]} ({gap_text(pair.compared)}" in text


@pytest.mark.parametrize(("declared", "sure"), [("ab ac", 1), ("ab ac cd", 2), ("ac ab", 1)])
def test_what_is_decided_stands_before_what_is_not(declared: str, sure: int) -> None:
    found = board(declared, a=60.0, b=60.1, c=50, d=40)
    text = decisions.sentence(found, NAMES)
    every = len(declared.split())
    assert text.startswith(f"{sure} of the {every} comparisons") and (" is decided" in text) == (sure == 1)
    assert text.index(f"arm A is ahead of arm C by {gap(found, 'a', 'c')}") < text.index(f"({gap(found, 'a', 'b')}")
    assert text.count(" ahead of ") == sure


def test_seeds_that_would_show_a_gap_are_those_of_the_declared_family() -> None:
    found = board("ba", a=60.5, b=60.0, c=50)
    [pair] = decisions.declared_pairs(found)
    arms = [one.arm for one in found.at(found.budget)]
    gap, noise, family = pair.compared.estimate.mean, pair.compared.noise or 0.0, ((arms.index("a"), arms.index("b")),)
    own = own_noises({one.arm: one.scores for one in found.at(found.budget)})[frozenset("ab")]
    needed, alike = needed_seeds(gap, noise, 3, family, own), needed_seeds(gap, noise, 3, family)
    assert needed is not None and alike is not None and needed > alike > 5
    assert f"about {needed} seeds" in decisions.sentence(found, NAMES)


def test_without_noise_or_a_second_seed_no_number_of_seeds_is_told() -> None:
    same = by_hand.board([cell("a", [61.0] * 3), cell("b", [60.0] * 3)], [("a", "b")])
    single = by_hand.board([cell("a", [61.0]), cell("b", [60.0])], [("a", "b")])
    apart = by_hand.board([cell("a", {0: 61.0}), cell("b", {1: 60.0})], [("a", "b")])
    few = by_hand.board([cell("a", [61.0, 62.5, 61.2]), cell("b", [60.0, 60.5, 60.9])], [("a", "b")])
    for found in (same, single, apart, few):
        text = decisions.sentence(found, NAMES)
        assert "about" not in text and "ahead" not in text and "nan" not in text


def planned(taken: int, **levels: float) -> Board:
    return board("ab ac", Plan((4, 6), taken=taken), 6, **levels)


def test_without_a_plan_nothing_is_said_of_looks() -> None:
    found = board("ab", a=60, b=50)
    assert decisions.planned(found) == [] and decisions.look_rows(found) == []


def test_a_plan_names_its_looks_and_how_many_were_taken() -> None:
    levels = {"a": 70.0, "b": 60.0, "c": 69.9}
    [none], [one], [two] = (decisions.planned(planned(taken, **levels)) for taken in range(3))
    assert all("4 and 6 seeds" in text for text in (none, one, two))
    assert "1 of these looks has" in one and "2 of these looks have" in two and " of these looks" not in none
    # The first look spends (4/6)² of the 5 %, the second one the rest.
    assert f"{100 - 5 * (4 / 6) ** 2:.1f} %" in one and f"{100 - 5 * (1 - (4 / 6) ** 2):.1f} %" in two
    assert "95 of 100" in one and "95 of 100" not in none


def test_a_row_for_each_look_tells_how_every_comparison_stood() -> None:
    found = planned(2, a=70.0, b=60.0, c=69.9)
    rows = decisions.look_rows(found)
    assert [row.seeds for row in rows] == [4, 6]
    assert sum(row.level for row in rows) == pytest.approx(5.0) and rows[0].level == pytest.approx(5 * (4 / 6) ** 2)
    for row in rows:
        found_at = {frozenset((a, b)): (one.estimate.n, status) for a, b, one, status in row.statuses}
        assert found_at[frozenset("ab")] == (row.seeds, "decided")
        assert found_at[frozenset("ac")][0] == row.seeds and found_at[frozenset("ac")][1] != "decided"


def test_a_comparison_stands_the_same_whichever_arm_is_named_first() -> None:
    [look] = planned(1, a=70.0, b=60.0, c=69.9).looks
    assert decisions.status_at(look, "a", "b") == decisions.status_at(look, "b", "a") == "decided"
    with pytest.raises(KeyError):
        decisions.status_at(look, "b", "c")


def test_a_plan_counts_the_most_seeds_where_a_comparison_is_out_of_reach() -> None:
    """Gaps of nothing at the look before the last: 30 seeds would not decide them either."""
    level = [0.5, -0.5, 0.4, -0.4] * 7 + [0.0, 0.1]
    cells = [cell("a", [60.0] * 30), cell("b", [60 + x for x in level])]
    found = by_hand.board(cells, [("a", "b")], Plan((28, 30), taken=1))
    assert decisions.status_at(found.looks[0], "a", "b") == "out of reach"
    assert "30 seeds" in decisions.sentence(found, NAMES)
    open_ = by_hand.board(
        [cell("a", scores(61.0, 1)), cell("b", scores(60.0, 4))], [("a", "b")], Plan((4, 30), taken=1)
    )
    assert decisions.status_at(open_.looks[0], "a", "b") == "open" and "30" not in decisions.sentence(open_, NAMES)


def test_the_highest_mean_is_told_and_pairs_that_were_not_declared_are_set_apart() -> None:
    some, all_ = board("ab", a=70, b=60, c=80), board("ab ac bc", a=70, b=60, c=80)
    best = some.at(some.budget)[0]
    for found in (some, all_):
        text = decisions.exploratory(found, NAMES)
        assert text.startswith("arm C ") and f"{best.estimate.mean:.1f}" in text and "arm A" not in text
    assert len(decisions.exploratory(some, NAMES)) > len(decisions.exploratory(all_, NAMES))


def test_arms_that_share_the_highest_mean_are_all_told() -> None:
    cells = [cell("a", [50.0] * 3), cell("b", [50.0] * 3), cell("c", [50.0] * 3), cell("d", [40.0] * 3)]
    found = by_hand.board(cells, [("a", "b")])
    assert "arm A has the highest mean probe score, 50.0 ± 0.0, as have arm B and arm C;" in decisions.exploratory(
        found, NAMES
    )
    two = by_hand.board(cells[1:], [("b", "c")])
    assert ", as has arm C;" in decisions.exploratory(two, NAMES)
