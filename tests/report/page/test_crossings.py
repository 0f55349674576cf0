"""Crossings of two arms: two amounts that show both orders, corrected for all."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import made
from pointed_runs import STEPS, board_with_points, store_of
from scored_laws import Law, scored_by_laws

from workbench.report.comparison.boards import Board, Pair, board
from workbench.report.figures.arm_styles import Axis
from workbench.report.page import crossings
from workbench.report.statistics.paired_comparison import pairwise
from workbench.store.run_store import RunStore


def test_a_crossing_is_bracketed_by_two_points_of_one_budget(pointed_study: tuple[RunStore, str, Path]) -> None:
    board = board_with_points(*pointed_study[:2])
    (found,) = crossings.crossings(board, "flops_matmul")
    assert (found.before, found.after) == ("bert-mlm", "rtd")
    whole = 1.1e9 * STEPS
    assert found.low / whole < 0.15 < found.high / whole
    html = pointed_study[2].read_text()
    assert "rtd overtakes bert-mlm between " in html and "correction over all pairs at all amounts" in html


def test_by_which_amount_an_arm_has_not_overtaken_is_said(tmp_path: Path) -> None:
    level = {"rtd": 60.0, "bert-mlm": 68.0, "electra-15": 60.1}

    def truth(arm: str, share: float, seed: int) -> float:
        return level[arm] + random.Random(f"{arm}/{seed}/{share}").gauss(0, 0.5)

    store, name = store_of(tmp_path, truth, arms=tuple(level))
    told = crossings.sentences(board_with_points(store, name), Axis("steps", "steps"))
    first = "bert-mlm is higher by its own scores than rtd from 2 steps to 200 steps (shown at 6 of 6 points"
    assert told[0].startswith(first)
    assert told[1].endswith("; up to 200 steps it is not overtaken.") and "than electra-15" in told[1]
    assert told[2] == "At no point up to 200 steps is either arm shown ahead: electra-15 and rtd."


def curves(
    laws: Mapping[str, Callable[[float], float]], key: object, seeds: int, sd: float = 1.0
) -> list[crossings.Compared]:
    """Return a study of six points of one budget.

    The noise of a run is the same at all of its points, as it is during training.
    """
    kept = {(arm, seed): random.Random(f"{key}/{arm}/{seed}").gauss(0, sd) for arm in laws for seed in range(seeds)}
    shared = {seed: random.Random(f"{key}/{seed}").gauss(0, sd) for seed in range(seeds)}
    found = []
    for place in range(6):
        scores = {
            arm: {
                seed: law(place) + shared[seed] + kept[arm, seed]
                + random.Random(f"{key}/{arm}/{seed}/{place}").gauss(0, 0.5 * sd)
                for seed in range(seeds)
            }
            for arm, law in laws.items()
        }  # fmt: skip
        pairs = [Pair(a, b, one) for (a, b), one in pairwise(scores).items()]
        found.append((2.0**place, pairs))
    return found


def test_arms_that_are_alike_are_hardly_ever_called_ahead_at_any_point() -> None:
    """Of 300 studies of 2 to 4 equal arms at six points, at most 15 claim any order."""
    wrong = 0
    for study_number in range(300):
        laws = {f"arm {i}": lambda place: 50 + 3.0 * place for i in range(2 + study_number % 3)}
        wrong += bool(crossings.claims(curves(laws, ("null", study_number), 3 + study_number % 4)))
    assert wrong <= 15


def test_a_bracket_is_hardly_ever_wrong() -> None:
    """At most 5 % of the brackets do not contain a crossing.

    Of three arms, two cross once, and the third stays below both.
    """
    laws = {"late": lambda x: 40 + 6.0 * x, "early": lambda x: 55.0 + 0 * x, "behind": lambda x: 30 + 2.0 * x}
    stated = wrong = 0
    for number in range(200):
        for one in crossings.between(crossings.claims(curves(laws, ("cross", number), 5))):
            places = [one.low, one.high]
            stated += 1
            gap = [laws[one.after](x.bit_length() - 1) - laws[one.before](x.bit_length() - 1) for x in map(int, places)]
            wrong += not gap[0] < 0 < gap[1]
    assert stated >= 100 and wrong <= 0.05 * 200


def test_claims_are_corrected_by_holm_over_all_points() -> None:
    """Six points with p = 0.01 each are not enough; if five are far clearer, the sixth is."""
    clear = [8.0 + 0.01 * x for x in (0, 1, -1, 0)]
    weak = [1.0 + w for w in (0.0, 0.35, -0.35, 0.5)]

    def pairs(gaps: list[float]) -> list[Pair]:
        scores = {"a": {s: 50 + g for s, g in enumerate(gaps)}, "b": dict.fromkeys(range(4), 50.0)}
        return [Pair(a, b, one) for (a, b), one in pairwise(scores).items()]

    p = pairs(weak)[0].difference.p
    assert p is not None and p < 0.05 < 6 * p
    assert not crossings.claims([(float(x), pairs(weak)) for x in range(6)])
    (shown,) = crossings.claims([(0.0, pairs(weak)), *((float(x), pairs(clear)) for x in range(1, 6))]).values()
    assert [amount for amount, _ in shown] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def board_of(laws: Mapping[str, Law], noise: float, key: object, seeds: int = 4, budgets: int = 5) -> Board:
    points = scored_by_laws(laws, budgets, seeds, noise, 1.0, key)
    truth = {(arm, round(15 * x)): scores for arm, found in points.items() for x, scores in found}

    def score(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return truth[arm, steps][seed] if steps else 30.0

    steps = tuple(15 * 2**i for i in range(budgets))
    found = board(made.in_memory(score, tuple(laws), seeds, 1, steps), "probes")
    assert found is not None
    return found


def test_a_crossing_lies_between_two_budgets_that_show_both_orders() -> None:
    laws = {"rtd": lambda d: 40 + 6.0 * d, "bert-mlm": lambda d: 55.0 + 0 * d}  # they meet after 2.5 doublings
    [crossing] = crossings.crossings(board_of(laws, 0.2, "planted"), "steps")
    assert (crossing.before, crossing.after) == ("bert-mlm", "rtd")
    assert (crossing.low, crossing.high) == (60.0, 120.0)
    said = crossings.sentence(crossing, Axis("steps", "steps"))
    assert said.startswith("rtd overtakes bert-mlm between 60 steps, where bert-mlm is ahead by")
    assert "and 120 steps, where rtd is ahead by" in said


def test_claims_of_a_crossing_are_corrected_for_every_budget() -> None:
    """Two opposite claims of p = 0.015 each suffice among two budgets, but not among five."""
    wobble = (0.0, 0.4, -0.4, 0.0)
    ahead = {s: 60 + 1.6 + w for s, w in enumerate(wobble)}
    level = {s: 60 - w for s, w in enumerate(wobble)}

    def compared(rtd: Mapping[int, float], bert: Mapping[int, float]) -> list[Pair]:
        return [Pair(a, b, one) for (a, b), one in pairwise({"rtd": rtd, "bert-mlm": bert}).items()]

    tie = compared({0: 60.0, 1: 61.0, 2: 60.0, 3: 61.0}, {0: 61.0, 1: 60.0, 2: 61.0, 3: 60.0})
    few = [(1.0, compared(level, ahead)), (2.0, compared(ahead, level))]
    p = few[0][1][0].difference.p
    assert p is not None and 2 * p < 0.05 < 5 * p
    assert len(crossings.between(crossings.claims(few))) == 1
    assert crossings.between(crossings.claims([*few, *((x, tie) for x in (4.0, 8.0, 16.0))])) == []


def power_law(ceiling: float, exponent: float, start: float = 40.0) -> Law:
    return lambda doublings: ceiling - (ceiling - start) * 2.0 ** (-exponent * doublings)


def changes(laws: Mapping[str, Law], noise: float, key: object, seeds: int) -> list[crossings.Crossing]:
    """Return the crossings of a simulated study of five budgets, without the tables of a report."""
    points = scored_by_laws(laws, 5, seeds, noise, 1.0, key)
    compared = []
    for i, (amount, _) in enumerate(points["rtd"]):
        pairs = pairwise({arm: found[i][1] for arm, found in points.items()})
        compared.append((amount, [Pair(a, b, one) for (a, b), one in pairs.items()]))
    return crossings.between(crossings.claims(compared))


def test_noise_is_no_crossing() -> None:
    """At most 15 of 300 studies without a crossing state one.

    The arms are equal, never change their order, or become equal.
    """
    cases = (
        {"rtd": power_law(70, 0.4), "bert-mlm": power_law(70, 0.4)},
        {"rtd": power_law(70, 0.4, 42), "bert-mlm": power_law(70, 0.4)},
        {"rtd": lambda d: 50 + 5.0 * d, "bert-mlm": lambda d: 50 + 5.0 * d + max(0.0, 4 - 2 * d)},
    )
    stated = sum(bool(changes(laws, 0.5, ("none", i), 3 + i % 3)) for laws in cases for i in range(100))
    assert stated <= 0.05 * 300


def test_brackets_hold_the_true_crossing() -> None:
    """In 200 studies of two laws that cross, the two budgets named lie on both sides of the crossing."""
    rtd, bert = power_law(80, 0.4, 40), power_law(66, 0.8, 45)
    found = [c for i in range(200) for c in changes({"rtd": rtd, "bert-mlm": bert}, 0.5, ("cross", i), 4)]
    assert len(found) >= 50
    wrong = sum(
        (rtd(a) - bert(a)) * (rtd(b) - bert(b)) >= 0 for a, b in ((math.log2(c.low), math.log2(c.high)) for c in found)
    )
    assert wrong <= 0.05 * len(found)
