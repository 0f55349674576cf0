"""Scores during training: lines of the figure, sentences on points before the end, and crossings of arms."""

from __future__ import annotations

import csv
import math
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import made
import pytest

from workbench.report import write
from workbench.report.comparison.boards import Board, Pair, boards
from workbench.report.comparison.training_points import lines
from workbench.report.figures import during_training
from workbench.report.figures.arm_styles import Axis
from workbench.report.load.frames import read
from workbench.report.page import crossings
from workbench.report.statistics.paired_comparison import pairwise
from workbench.store import manifest, validation
from workbench.store.atomic import sealed
from workbench.store.run_store import RunDir, RunStore

STEPS = 200
SHARES = {"1 %": 0.01, "4.64 %": 0.0464, "10 %": 0.1, "21.5 %": 0.215, "46.4 %": 0.464}
Truth = Callable[[str, float, int], float]  # arm, share of its budget, seed


def pointed(run: RunDir, mark: str, step: int, value: float) -> None:
    """Add a point with one score to a finished run, as its training would have left it."""
    place = run.path / "points" / f"{step:08d}"
    for part in ("encoder", "heads"):
        (place / part).mkdir(parents=True)
        (place / part / "model.safetensors").write_text(f"{part} {mark}")
    done = run.read_json("done.json")
    facts = {"step": step, "mark": mark, "tokens": step * 4096, "seconds": 0.1 * step}
    facts["flops"] = {name: total * step / done["steps"] for name, total in done["flops"].items()}
    facts |= {part: validation.hashes(place / part) for part in ("encoder", "heads")}
    (place / "point.json").write_bytes(sealed({"format": 1, **facts, "run_id": run.run_id}))
    end = made.scored(run, "pairs", 0, value, suite="pairs", baselines={"chance": 50.0})
    (place / "scores").mkdir()
    sealing = {"encoder": validation.weights_digest(facts, "encoder"), "run_id": run.run_id}
    score = {key: raw for key, raw in validation.read(run.path, f"scores/{end.name}").items() if key != "encoder"}
    (place / "scores" / end.name).write_bytes(sealed(score | sealing))


def store_of(
    root: Path, truth: Truth, seeds: int = 4, arms: Sequence[str] = ("rtd", "bert-mlm"), **changes: Any
) -> tuple[RunStore, str]:
    store, specs = RunStore(root / "runs"), []
    for seed in range(seeds):
        for arm in arms:
            spec = made.spec_of(arm, seed, {"steps": STEPS}, **{"tasks.names": "pairs"}, **changes)
            run = made.trained(store, spec, STEPS, cost=1.0)
            for mark, share in SHARES.items():
                pointed(run, mark, round(share * STEPS), truth(arm, share, seed))
            made.scored(run, "pairs", 0, truth(arm, 1.0, seed), suite="pairs", baselines={"chance": 50.0})
            files = manifest.entries(run.path)
            (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, files)))
            specs.append(spec)
    return store, made.recorded(store, specs)


def overtaking(arm: str, share: float, seed: int) -> float:
    """Return a score: BERT MLM leads early and RTD late; they cross at a share of 0.15, between 10 % and 21.5 %."""
    rise = {"rtd": 24.0, "bert-mlm": 8.0}[arm]
    noise = random.Random(f"{arm}/{seed}/{share}").gauss(0, 0.4) + random.Random(f"{seed}").gauss(0, 1.0)
    return 70 + rise * math.log10(share / 0.15) + noise


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str, Path]:
    root = tmp_path_factory.mktemp("points")
    store, name = store_of(root, overtaking)
    return store, name, write(store, name, root / "report")


def board_of(store: RunStore, name: str) -> Board:
    (found,) = boards(read(store, name))
    return found


def test_every_score_of_a_point_is_in_the_table_with_its_place(study: tuple[RunStore, str, Path]) -> None:
    store, _, page = study
    with open(page.parent / "points.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 4 * (len(SHARES) + 1)
    for row in rows:
        raw = validation.read(store.root / row["run_id"], row["path"].removeprefix(f"{row['run_id']}/"))
        assert float(row["value"]) == raw["value"] and raw["task"] == row["task"] == "pairs"
        early = row["mark"] != "end"
        assert (row["before_end_of_decay"] == "yes") == early
        place = row["path"].split("/")
        assert place[1] == "points" and int(place[2]) == int(row["steps"]) if early else place[1] == "scores"
        assert float(row["flops_matmul"]) == pytest.approx(1.1e9 * int(row["steps"]))


def test_an_arm_is_a_line_of_means_with_intervals(study: tuple[RunStore, str, Path]) -> None:
    board = board_of(*study[:2])
    ((line,),) = [lines(board.places, arm) for arm in ("rtd",)]
    assert [place.mark for place in line] == [*SHARES, "end"]
    assert [place.unfinished for place in line] == [True] * 5 + [False]
    for place in line:
        share = SHARES.get(place.mark, 1.0)
        mine = [overtaking("rtd", share, seed) for seed in range(4)]
        assert place.estimate.mean == pytest.approx(sum(mine) / 4) and place.estimate.half is not None
        assert len(place.runs) == 4


def test_points_before_the_end_are_hollow_and_the_page_says_why(study: tuple[RunStore, str, Path]) -> None:
    html = study[2].read_text()
    assert during_training.HOLLOW_NOTE.replace("'", "&#39;") in html and during_training.HOLLOW in html
    assert "points.csv" in html and "pairs against compute" in html.casefold()
    alone = (study[2].parent / "compute.svg").read_text()
    assert alone.count('fill="none"') >= 2 * len(SHARES) and during_training.HOLLOW in alone


@pytest.mark.parametrize("kind", ["constant", "inverse-sqrt"])
def test_points_of_a_rate_that_suits_any_length_are_not_marked(tmp_path: Path, kind: str) -> None:
    changes = {"schedule.kind": kind}
    store, name = store_of(tmp_path, overtaking, seeds=2, **changes)
    html = write(store, name, tmp_path / "report").read_text()
    assert not any(place.unfinished for place in board_of(store, name).places)
    assert during_training.HOLLOW not in html and during_training.NOTE in html


def test_a_crossing_is_bracketed_by_two_points_of_one_budget(study: tuple[RunStore, str, Path]) -> None:
    board = board_of(*study[:2])
    (found,) = crossings.crossings(board, "flops_matmul")
    assert (found.before, found.after) == ("bert-mlm", "rtd")
    whole = 1.1e9 * STEPS
    assert found.low / whole < 0.15 < found.high / whole
    html = study[2].read_text()
    assert "rtd overtakes bert-mlm between " in html and "correction over all pairs at all amounts" in html


def test_by_which_amount_an_arm_has_not_overtaken_is_said(tmp_path: Path) -> None:
    level = {"rtd": 60.0, "bert-mlm": 68.0, "electra-15": 60.1}

    def truth(arm: str, share: float, seed: int) -> float:
        return level[arm] + random.Random(f"{arm}/{seed}/{share}").gauss(0, 0.5)

    store, name = store_of(tmp_path, truth, arms=tuple(level))
    told = crossings.sentences(board_of(store, name), Axis("steps", "steps"))
    assert told[0].startswith("bert-mlm is ahead of rtd from 2 steps to 200 steps (shown at 6 of 6 points")
    assert told[1].endswith("; up to 200 steps it is not overtaken.") and "of electra-15" in told[1]
    assert told[2] == "At no point up to 200 steps is either arm shown ahead: electra-15 and rtd."


def test_runs_without_points_leave_the_others_theirs(tmp_path: Path) -> None:
    store, name = store_of(tmp_path, overtaking)
    for number, run in enumerate(store.runs()):
        if number % 4 == 1 or run.run_id.startswith("bert"):
            shutil.rmtree(run.path / "points")
            files = manifest.entries(run.path)
            (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, files)))
    html = write(store, name, tmp_path / "report").read_text()
    found = board_of(store, name).places
    assert {len(place.scores) for place in found if place.arm == "rtd"} == {3, 4}
    assert [place.mark for place in found if place.arm == "bert-mlm"] == ["end"]
    assert "Where arms change places" in html


def test_a_report_without_points_is_as_before(tmp_path: Path) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=2)
    html = write(store, name, tmp_path / "report").read_text()
    assert during_training.NOTE not in html and "Where arms change places" not in html
    with open(tmp_path / "report" / "points.csv", encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 1


# ---- simulations ----


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
