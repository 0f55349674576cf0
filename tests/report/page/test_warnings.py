"""The warnings of a report: unequal compute, collapses, late falls, kinds of arithmetic, missing scores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boards
import made
import parsed
import pytest
from boards import board_with_points, law, study
from made import store_of, sweep

from workbench.report import results, write
from workbench.report.comparison import leaderboard
from workbench.report.load import study_tables
from workbench.report.page import rendering, warnings
from workbench.report.page.warnings import Caution, kinds_of_arithmetic, loss_checks
from workbench.report.results import Cell, TaskCell
from workbench.report.statistics.intervals import t_interval
from workbench.store.run_store import RunDir, RunStore


def reasons(cautions: list[Caution]) -> list[str]:
    return [caution.reason for caution in cautions]


def collapsed(frames: study_tables.Frames) -> list[str]:
    return reasons(warnings.collapsed(frames))


def question(frames: study_tables.Frames) -> str:
    return results.Results(frames, (), ()).question


def test_the_short_line_of_a_note_on_a_file_says_more_than_its_name() -> None:
    note = "tag:x-pos: x-test.conllu, first at line 7: 6 words have tags that no training word has (SYM), errors."
    assert warnings.by_first_clause(note).short == (
        "tag:x-pos: x-test.conllu, first at line 7: 6 words have tags that no training word has."
    )
    assert warnings.by_first_clause("A sentence: with a reason.").short == "A sentence."


@pytest.mark.parametrize(
    ("ahead", "said"),
    [(2, "1 of 3 arms is not shown ahead of its untrained"), (1, "2 of 3 arms are not shown ahead of their untrained")],
)
def test_arms_that_are_not_shown_ahead_of_untrained_encoders_are_counted(ahead: int, said: str) -> None:
    laws = {arm: law(100 if place < ahead else 200, 0.2, 0.5) for place, arm in enumerate(("rtd", "bert-mlm", "bert"))}
    found, _ = study(laws, budgets=(240,))  # 67 or 33, and 40 untrained
    board = leaderboard(found, "probes")
    assert board is not None
    assert any(said in caution.short for caution in warnings.doubtful(board))


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.0, ""), (1.04, ""), (1.2, "rtd trained 1.20 times as long as bert-mlm")]
)
def test_seconds_that_the_clock_did_not_keep_are_marked(ratio: float, said: str) -> None:
    found, _ = study({"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}, budgets=(240,))
    rows = found.rows("runs")
    for row in rows:
        if row["role"] == "arm":
            row |= {"budget": "60 seconds", "seconds": 60.0 * (ratio if row["arm"] == "rtd" else 1.0)}
    found = replace(found, runs=type(found.runs)(rows))
    results = leaderboard(found, "probes")
    assert results is not None
    text = warnings.unequal(results, "60 seconds")
    assert said in text and bool(text) == bool(said)


def test_arms_spend_alike_within_two_percent() -> None:
    def two(factor: float) -> list[Cell]:
        return [boards.cell("rtd", [60.0], spent=1e9), boards.cell("bert-mlm", [61.0], spent=1e9 * factor)]

    assert warnings.spread(two(1.019), "tokens") is None
    assert warnings.spread(two(1.5), "tokens") == ("rtd", "bert-mlm", 1.5)
    assert warnings.spread(two(0.5), "tokens") == ("bert-mlm", "rtd", 2.0)
    assert warnings.spread(two(1.5), "tokens", tolerance=0.6) is None
    assert warnings.spread(two(1.5)[:1], "tokens") is None and warnings.spread(two(0.0), "tokens") is None
    assert warnings.unequal(boards.board(two(1.0)), boards.BUDGET) == ""
    told = warnings.unequal(boards.board(two(1.5)), boards.BUDGET)
    assert told.startswith("this is not at equal compute. bert-mlm spent 1.50 times the FLOPs of rtd (paper")
    assert reasons(warnings.unequal_compute(boards.board(two(1.5)))) == [f"At {boards.BUDGET}: {told}"]


def test_arms_that_spent_the_same_by_one_convention_only_are_told_by_the_others() -> None:
    first, second = boards.cell("rtd", [60.0]), boards.cell("bert-mlm", [61.0])
    second = replace(second, spent={**second.spent, "flops_matmul": 1.25e9})
    assert warnings.unequal(boards.board([first, second]), boards.BUDGET) == (
        "the arms spent the same under the paper convention only. Under matmul, bert-mlm spent 1.25 times the FLOPs of "
        "rtd."
    )


def test_runs_are_told_apart_by_values_that_matter() -> None:
    tables = {
        "a": {"python": "3.11", "threads": 2, "started": "x"}, "b": {"python": "3.12", "threads": 2, "started": "y"},
        "c": {}, "d": {"threads": 2},
    }  # fmt: skip
    assert rendering.values_of_runs(tables) == {
        "python": {"3.11": ["a"], "3.12": ["b"], "None": ["d"]}, "threads": {"2": ["a", "b", "d"]}
    }  # fmt: skip
    frames = replace(made.in_memory(lambda *_: 50.0, ("rtd",), 1, 1), environments=tables)
    (told,) = reasons(warnings.environments_differ(frames))
    assert told.startswith("The runs\u2019 environments differ in python (see")
    assert warnings.environments_differ(replace(frames, environments={"a": tables["a"]})) == []


def test_runs_that_are_in_no_average_are_counted_by_state() -> None:
    frames = made.in_memory(lambda *_: 50.0, ("rtd", "bert-mlm"), 2, 1)
    assert warnings.unfinished(frames) == [] and warnings.data_differs(frames) == []
    states = ["done", "trained", "failed", "new", "failed", "missing"]
    runs = frames.runs.assign(state=states, data=["x", "x", "y", "y", "y", "y"])
    assert reasons(warnings.unfinished(replace(frames, runs=runs))) == [
        "4 of 6 runs are in no average (2 failed, 1 missing and 1 not begun); the reason is given below for each."
    ]
    assert warnings.data_differs(replace(frames, runs=runs)) == []  # both that count were trained on the same data
    assert len(warnings.data_differs(replace(frames, runs=runs.assign(data=["x", "y", "y", "y", "y", "y"])))) == 1


@pytest.mark.parametrize(("record", "warned"), [({}, False), ({"tuning": [1]}, True)])
def test_settings_chosen_on_the_same_rows_are_warned_of(record: dict[str, object], warned: bool) -> None:
    frames = made.in_memory(lambda *_: 50.0, ("rtd",), 1, 1)
    assert bool(warnings.overestimated(replace(frames, record={"axis": "objective", **record}))) == warned
    assert warnings.overestimated(replace(frames, record={"axis": "x", "experiment": "tune", **record})) == []


def test_a_task_on_which_no_arm_beats_the_most_frequent_answer_is_named() -> None:
    def of_task(task: str, arm: str, value: float) -> TaskCell:
        return TaskCell(task, "accuracy", arm, boards.BUDGET, t_interval([value]), value, value, 1, None, ())

    cells = [boards.cell("rtd", [60.0]), boards.cell("bert-mlm", [61.0])]
    found = boards.board(
        cells, baselines={"majority": {"order": 50.0, "next": 50.0}},
        task_cells=(of_task("order", "rtd", 49.0), of_task("order", "bert-mlm", 50.0), of_task("next", "rtd", 51.0)),
    )  # fmt: skip
    (told,) = reasons(warnings.uninformative_tasks(found))
    assert told.startswith(f"On order, no arm at {boards.BUDGET} scores higher than always giving the most frequent")
    assert warnings.uninformative_tasks(replace(found, baselines={})) == []


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("generator_entropy", 0.01, "entropy is below 0.05 nats"),
        ("discriminator_positive_rate", 0.0, "at least 999 of 1,000 tokens the same answer: "),
        ("discriminator_positive_rate", 1.0, "at least 999 of 1,000 tokens the same answer: "),
        ("discriminator_positive_rate", 0.06, ""),
        ("generator_entropy", 2.0, ""),
    ],
)
def test_collapses_are_flagged(tmp_path: Path, metric: str, value: float, said: str) -> None:
    """By the end of the log: a discriminator that begins at the majority class has not collapsed."""
    store, name = sweep(tmp_path, [{"generator.width": 0.25}, {"generator.width": 0.5}], seeds=1)
    run = store.runs()[0]
    path = run.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | {metric: (1.0 - value) if i < 4 else value} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.relist(run)
    study = study_tables.read_study(store, name)
    (row,) = [row for row in study.rows("runs") if row["run_id"] == run.run_id]
    who = f"{row['arm']} (seed {row['seed']}) at {row['budget']}."
    assert [bool(re.search(said, text)) for text in collapsed(study) if text.endswith(who)] == [True] * bool(said)
    made.unfinish(run)
    unfinished = collapsed(study_tables.read_study(store, name))
    assert not [text for text in unfinished if text.endswith(who)], "it has not come to the end of training"


def test_a_discriminator_that_detects_nothing_is_told_once_with_its_arms_and_seeds() -> None:
    frames = made.in_memory(lambda *_: 50.0, ("rtd", "bert-mlm"), 2, 1)
    ends = {"discriminator_recall": 0.0, "discriminator_positive_rate": 0.0}
    curves = [
        {"run_id": row["run_id"], "step": 1.0, **(ends if row["arm"] == "rtd" else {})} for row in frames.rows("runs")
    ]
    found = replace(frames, curves=type(frames.curves)(curves))
    (caution,) = warnings.collapsed(found, str.upper)
    assert caution.short == "At the end of training, the discriminator detects less than 1 % of the replaced tokens."
    assert caution.reason.endswith(" tokens: RTD (seeds 0 and 1) at 60 steps.")


def test_a_warning_of_losses_in_the_notes_of_a_kept_report_is_not_made_again(
    floor_study: tuple[RunStore, str, list[RunDir]],
) -> None:
    store, name, runs = floor_study
    for run in runs:
        plant(run, {}, **(HEALTHY | {"discriminator_auc": 0.51}))
    found = study_tables.read_study(store, name)
    assert len(collapsed(found)) == 1
    noted = ("rtd at 60 steps is no better than token frequencies alone: by floors that the files do not hold.",)
    assert collapsed(replace(found, notes=noted)) == []


def test_the_end_of_a_log_is_its_last_tenth() -> None:
    rows = [{"step": n, "loss": float(n)} for n in range(1, 31)] + [{"step": 31, "other": 1.0}]
    assert warnings.at_end(rows, "loss") == 29.0  # of 28, 29 and 30
    assert warnings.at_end(rows[:3], "loss") == 3.0 and warnings.at_end(rows, "other") == 1.0
    assert warnings.at_end([], "loss") is None


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({0: 66.0, 1: 67.0}, True),
        ({0: 66.0, 1: 91.0}, False),  # one seed did not fall
        ({0: 80.5, 1: 81.5}, False),  # by 4.5 points in the mean
        ({0: 79.5, 1: 80.5}, True),  # by 5.5
    ],
)
def test_a_score_that_falls_in_every_seed_is_told(tmp_path: Path, last: dict[int, float], told: bool) -> None:
    def truth(arm: str, share: float, seed: int) -> float:
        if arm == "bert-mlm":
            return 90 + share + seed
        return last[seed] if share == 1.0 else 60 + 25 * min(share / 0.464, 1.0) + seed

    board = board_with_points(*store_of(tmp_path, truth, seeds=2))
    found = reasons(warnings.late_falls(board))
    mean = sum(last.values()) / 2
    begin = (
        f"pairs: rtd had 85.5 after 46.4 % of its training and has {mean:.1f} at its end; it fell in each of 2 seeds."
    )
    assert [text.startswith(begin) for text in found] == [True] * told


def test_runs_that_were_scored_at_their_end_alone_are_not_told_of(tmp_path: Path) -> None:
    board = board_with_points(*store_of(tmp_path, lambda arm, share, seed: 90 - 30 * share + seed, seeds=2))
    assert len(warnings.late_falls(board)) == 2
    assert warnings.late_falls(replace(board, points=())) == []
    ends = tuple(place for place in board.points if place.mark != "end")
    assert warnings.late_falls(replace(board, points=ends)) == []


FLOORS = {"generator_loss": 6.2, "discriminator_loss": 0.33, "discriminator_auc": 0.53}


def plant(run: RunDir, floors: dict[str, float], **means: float) -> None:
    """Overwrite the run's log with metrics of these means, and its record of what token frequencies alone reach."""
    path = run.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for place, row in enumerate(rows):
        row |= {metric: mean + 0.002 * (-1) ** place for metric, mean in means.items()}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.edit(run.path / "done.json", floors=floors)
    made.relist(run)


@pytest.fixture(scope="module")
def floor_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str, list[RunDir]]:
    root = tmp_path_factory.mktemp("floors") / "runs"
    store, name = made.study(root, made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=2, tunings=1, tasks=("order",))
    return store, name, [store.get(made.spec_of("rtd", seed, {"steps": 60}).name) for seed in (0, 1)]


HEALTHY = {"discriminator_auc": 0.75, "discriminator_loss": 0.28, "generator_loss": 5.0}
AREA = "the discriminator\u2019s ROC area is"


@pytest.mark.parametrize(
    ("floors", "first", "second", "told", "untold"),
    [
        (FLOORS, {"discriminator_auc": 0.52, "discriminator_loss": 0.329}, None,
         ("rtd at 60 steps is no better than token frequencies alone: ", "the discriminator\u2019s loss is 0.329",
          f"{AREA} 0.520 ± 0.000 over 2 seeds, and token frequencies alone give 0.530"), "generator"),
        (FLOORS, {}, None, (), ""),
        (FLOORS, {}, {"generator_loss": 6.19},
         ("rtd at 60 steps is in some seeds hardly better than token frequencies alone: ",
          "the generator\u2019s loss is 5.595 ± 7.560 over 2 seeds", "in 1 of 2 seeds"), "discriminator"),
        # An area of 0.55 is larger than the 0.53 of token frequencies, but by less than the 0.03 from which it counts.
        (FLOORS, {"discriminator_auc": 0.55}, None,
         (f"rtd at 60 steps is hardly better than token frequencies alone: {AREA} 0.550 ± 0.000 over 2 seeds, and "
          "token frequencies alone give 0.530 (a gain below 0.030 does not count).",), "loss"),
        (FLOORS, {"discriminator_auc": 0.55}, {"discriminator_auc": 0.52},
         ("rtd at 60 steps is no better than",), "count"),
        # Older versions recorded no floors, so the ROC area is compared with 0.5.
        ({}, {"discriminator_auc": 0.51}, {},
         ("rtd at 60 steps is in some seeds hardly better than", "and token frequencies alone give 0.500",
          "(hardly better in 1 of 2 seeds; a gain below 0.030 does not count)"), "loss"),
    ],
)  # fmt: skip
def test_an_arm_that_is_no_better_than_token_frequencies_is_named(
    floors: dict[str, float], first: dict[str, float], second: dict[str, float] | None, told: tuple[str, ...],
    untold: str, floor_study: tuple[RunStore, str, list[RunDir]],
) -> None:  # fmt: skip
    """Both seeds of RTD are HEALTHY but for these metrics; `second` is None if its metrics are those of the first."""
    store, name, runs = floor_study
    for run, changes in zip(runs, (first, first if second is None else second), strict=True):
        plant(run, floors, **(HEALTHY | changes))
    found = study_tables.read_study(store, name)
    if not told:
        assert collapsed(found) == [] and set(loss_checks(found)["rtd", "60 steps"]) == set(FLOORS)
        return
    [text] = collapsed(found)
    assert all(words in text for words in told) and text.startswith(told[0]) and untold not in text
    assert text in reasons(warnings.cautions(found, [], {}))


X, Y = "bf16 / amx / Intel", "fp32 / compiled / AMD"


def runs(kinds: dict[tuple[str, int], str], **changes: Any) -> list[dict[str, Any]]:
    return [
        {"run_id": f"{arm}-s{seed}", "role": "arm", "arm": arm, "seed": seed, "budget": "9 steps", "state": "done",
         "arithmetic": kind} | changes
        for (arm, seed), kind in kinds.items()
    ]  # fmt: skip


def test_one_kind_is_no_warning() -> None:
    same = {("a", 0): X, ("b", 0): X}
    assert kinds_of_arithmetic(runs(same)) == [] == kinds_of_arithmetic([])
    others = runs({("c", 0): Y}, state="failed") + runs({("d", 0): Y}, role="untrained")
    others += runs({("e", 0): ""}) + runs({("f", 0): float("nan")})  # type: ignore[dict-item]  # not recorded
    assert kinds_of_arithmetic(runs(same) + others) == []


def test_arms_without_a_common_kind_are_named() -> None:
    kinds = {(arm, seed): kind for arm, kind in (("a", X), ("b", Y), ("c", X)) for seed in range(3)}
    found = kinds_of_arithmetic(runs(kinds))
    assert reasons(found) == [
        f"The runs were computed by 2 kinds of arithmetic: {X} for a and c (seeds 0 to 2); {Y} for b (seeds 0 to 2). "
        f"No kind is common to both arms of a against b and 1 other pair, so a difference between them cannot be told "
        f"from a difference between the kinds; train the arms of each seed on the same kind."
    ]


@pytest.mark.parametrize(
    ("kinds", "end"),
    [
        ({("a", 0): X, ("b", 0): X, ("a", 5): Y, ("b", 5): Y}, "so differences within seeds do not mix kinds."),
        (
            {("a", 0): X, ("b", 0): X, ("a", 5): Y, ("b", 5): X},
            "In 1 pair of arms, some differences within a seed are "
            "between two kinds; train the arms of each seed on the same kind.",
        ),
        ({("a", 0): X, ("b", 5): Y}, "so differences within seeds do not mix kinds."),  # no seed in common
    ],
)
def test_seeds_that_differ_in_kind_are_told_from_arms_that_do(kinds: dict[tuple[str, int], str], end: str) -> None:
    (told,) = reasons(kinds_of_arithmetic(runs(kinds)))
    assert told.startswith("The runs were computed by 2 kinds of arithmetic: ") and told.endswith(end)


def test_a_run_that_was_continued_on_another_kind_is_named_from_its_files(tmp_path: Path) -> None:
    store, name = made.study(tmp_path, lambda *_: 50.0, ("rtd", "bert-mlm"), 2, tasks=("order",), tunings=1)
    before = {"versions": {}, "machine": {"cpu": "Intel(R) Xeon(R)"}, "precision": "bf16", "kernels": "tiles"}
    changed = [
        {"key": "kernels", "from": "tiles", "to": "avx512", "at": "x"},
        {"key": "machine.cpu", "from": "Intel(R) Xeon(R)", "to": "AMD EPYC", "at": "x"},
    ]
    after = {"versions": {}, "machine": {"cpu": "AMD EPYC"}, "precision": "bf16", "kernels": "avx512"}
    for run in map(store.get, store.experiment(name).runs):
        resumed = run.run_id.startswith("rtd") and run.spec().seed == 1
        made.edit(run.path / "env.json", **(after | {"changes": changed} if resumed else before))
        made.relist(run)
    read = study_tables.read_study(store, name)
    both = "bf16 / amx / Intel, then bf16 / avx512-bf16 / AMD"
    (row,) = [row for row in read.rows("runs") if row["arithmetic"] == both]
    told = [text for text in reasons(warnings.cautions(read, [], {})) if "arithmetic" in text]
    assert row["arm"] == "rtd" and row["seed"] == 1 and len(told) >= 2
    assert f"{both} for rtd (seed 1)" in told[0] and "rtd and bert-mlm" not in told[0]
    assert told[1] == f"1 run was continued on another kind of arithmetic: {row['run_id']} ({both})."


ARMS = ("rtd", "bert-mlm")
ASKED = "At equal compute, what does each step from BERT to ELECTRA buy?"


def priced(**paper: float) -> study_tables.Frames:
    """Return a study in memory whose arms cost these FLOPs per step by `paper`, and the same by other conventions."""

    def price(arm: str) -> Mapping[str, float]:
        return {"paper": paper[arm.replace("-", "_")], "paper-sparse": 1.0, "matmul": 1.0}

    found = made.in_memory(lambda *_: 50.0, ARMS, seeds=2, price=lambda arm: price(arm) if arm in ARMS else NOTHING)
    found.record["question"] = ASKED  # type: ignore[index]
    return found


NOTHING = dict.fromkeys(("paper", "paper-sparse", "matmul"), 0.0)


@pytest.mark.parametrize(("ratio", "equal"), [(1.0, True), (1.019, True), (1.021, False), (1.6, False)])
def test_arms_are_equal_within_two_percent_by_the_count_of_their_budget(ratio: float, equal: bool) -> None:
    found = priced(rtd=ratio, bert_mlm=1.0)
    suffix = "" if equal else " (not at equal compute: every run got 60 steps)"
    assert question(found) == (ASKED if equal else "What does each step from BERT to ELECTRA buy?" + suffix)
    assert results.compute_text(found).startswith(
        "equal: " if equal else f"not equal: FLOPs (paper) of one arm are up to {ratio:.2f}"
    )
    found = replace(found, runs=found.runs.assign(convention="matmul"))
    assert question(found) == ASKED and "(matmul)" in results.compute_text(found)


def test_one_arm_and_no_finished_run_are_asked_plainly() -> None:
    found = priced(rtd=1.0, bert_mlm=1.0)
    found.runs.loc[found.runs["arm"] == "rtd", "state"] = "interrupted"
    assert question(found) == "What does each step from BERT to ELECTRA buy?"
    found = replace(found, runs=found.runs.assign(state="new"))
    assert question(found) == "What does each step from BERT to ELECTRA buy?" and results.compute_text(found) == ""


def test_arms_with_budgets_of_their_own_are_not_at_equal_compute() -> None:
    found = priced(rtd=1.0, bert_mlm=1.0)
    found.runs.loc[found.runs["arm"] == "rtd", "budget"] = "30 steps"
    assert question(found).endswith("(not at equal compute: no two arms had one budget)")


@pytest.mark.parametrize("same", [True, False])
def test_a_report_says_equal_only_where_it_is(same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word is absent from title, heading, sections, captions, figure and tables if compute differs.

    Sentences that deny equality are not counted.
    """
    if same:
        monkeypatch.setattr(made, "COST", {})
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=made.ARMS, budgets=(30, 60), seeds=3)
    page = write(store, name, tmp_path / "out")
    tree = parsed.page(page)
    title = tree.find("title")[0].text
    heading = tree.find("p")[0].text.removesuffix(tree.find("p")[0].find("span")[0].text).strip()
    assert title == f"ablation: {heading}"
    if same:
        assert heading == ASKED
        return
    assert heading.endswith("buy? (not at equal compute: every run got 30 steps and 60 steps)")
    texts = [
        page.read_text(),
        *(path.read_text() for path in page.parent.glob("*.csv")),
        (page.parent / "compute.svg").read_text(),
    ]
    assert len(texts) > 5
    for text in texts:
        text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        text = re.sub(r"\bnot (at )?equal( compute)?\b", "", text, flags=re.IGNORECASE)
        assert not re.search(r".{40}equal.{20}", text, flags=re.IGNORECASE), re.search(
            r".{40}equal.{20}", text, flags=re.IGNORECASE
        )
