"""The zip of a submission, and places where none can be written."""

from __future__ import annotations

import io
import json
import logging
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from helpers import made

from workbench.errors import InputError
from workbench.execution import glue_submission
from workbench.execution.glue_submission import FORMAT, Card, Dev, Entry, SeedChoice, scores_by_task, source_of
from workbench.store.run_store import RunStore


def test_equal_predictions_make_an_equal_zip_in_the_order_of_the_server() -> None:
    files = {"RTE.tsv": ["entailment", "not_entailment"], "CoLA.tsv": ["1", "0", "1"]}
    content = glue_submission._zip(files)
    assert content == glue_submission._zip(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == [part.file for part in glue_submission.PARTS.values() if part.file in files]
        for name, words in files.items():
            lines = archive.read(name).decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert lines[1:] == [f"{number}\t{word}" for number, word in enumerate(words)]
        assert {info.date_time for info in archive.infolist()} == {glue_submission.DATED}


def test_the_card_stands_beside_the_zip_and_no_other_file_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "glue.zip"
    cards = glue_submission._outputs(out)
    assert cards == (tmp_path / "glue.json", tmp_path / "glue.md")
    for path in (out, *cards):
        path.write_text("an earlier one")
    assert glue_submission._outputs(out) == cards
    cards[1].unlink()
    cards[1].symlink_to(out)
    with pytest.raises(InputError, match=r"glue.md exists and is not a regular file; name another"):
        glue_submission._outputs(out)
    cards[1].unlink()
    os.mkfifo(cards[1])
    with pytest.raises(InputError, match=r"glue.md exists and is not a regular file"):
        glue_submission._outputs(out)
    with pytest.raises(InputError, match=r"a submission is a zip file; name it as in --out glue\.zip"):
        glue_submission._outputs(tmp_path / "glue.tar")


def test_a_folder_that_is_missing_is_named_by_the_option_of_this_command() -> None:
    class Run:
        def scores(self) -> dict[str, Any]:
            return {"s": {"task": "CoLA", "value": 1.0, "values": {"dev": {}}, "digest": "d", "seed": 0}}

    _, _, missing = glue_submission._plan(Run(), "someone/other", SeedChoice(), False)  # type: ignore[arg-type]
    assert "give a folder with --glue=DIR" in missing["CoLA.tsv"]


def test_the_table_has_the_mean_of_the_seeds_on_dev() -> None:
    files = [
        Entry("RTE.tsv", "RTE", "r", 3000, "mean", "best", "accuracy", (Dev(2, 60.0, 60.0), Dev(1, 61.02, 61.0))),
        Entry("WNLI.tsv", "WNLI", "r", 146, "majority"),
    ]
    one, two = glue_submission.table_rows(Card("z", "", "r", "", "", files, {}, "", ""))
    assert (one["seeds"], one["dev"], one["metric"]) == ("2,1", 60.51, "accuracy")
    assert (two["seeds"], two["dev"], two["metric"]) == (None, None, None)


WHOLE = Entry(
    "CoLA.tsv", "CoLA", "rtd-1", 1063, "as the mean of 2", "the best on dev", "matthews",
    (Dev(3, 51.237, 51.237), Dev(0, 50.0, 49.991)), "d" * 16, "t" * 16, {"lr": 1e-4}, "0.1",
)  # fmt: skip
MAJORITY = Entry("WNLI.tsv", "WNLI", "rtd-1", 146, "the most frequent label")
CARD = Card("glue.zip", "ab" * 32, "rtd-1", "named", "cd" * 32, [WHOLE, MAJORITY], {}, "0.2", "0123456789abcdef")


def test_the_page_has_a_row_for_each_file() -> None:
    page = CARD.to_markdown()
    assert (
        "| CoLA.tsv | 1,063 | CoLA | 3, 0 | matthews 51.24, 50.00 | 51.24, 49.99 | as the mean of 2; the best on dev |"
        in page
    )
    assert "| WNLI.tsv | 146 | WNLI | - | - | - | the most frequent label |" in page
    assert f"SHA-256 `{'ab' * 32}`" in page and "workbench 0.2, commit 0123456789\n" in page and "partial" not in page


def test_files_that_lack_are_named_with_their_reason() -> None:
    partial = Card(**{**vars(CARD), "missing": {"MRPC.tsv": "no scores on MRPC"}, "commit": ""})
    page = partial.to_markdown()
    assert "This submission is partial" in page and "- MRPC.tsv: no scores on MRPC" in page and "commit" not in page
    assert not partial.to_json()["complete"] and CARD.to_json()["complete"]


def test_the_document_holds_everything_and_survives_json() -> None:
    content = CARD.to_json()
    assert json.loads(json.dumps(content)) == content and content["format"] == FORMAT
    [first, _] = content["entries"]
    assert first["dev"] == [
        {"seed": 3, "recorded": 51.237, "repeated": 51.237},
        {"seed": 0, "recorded": 50.0, "repeated": 49.991},
    ]
    assert first["settings"] == {"lr": 1e-4} and first["data"] == "d" * 16


def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
    """Pre-training seed 1 is best for rtd and seed 0 for bert-mlm; fine-tuning seed 1 is best for all tasks but RTE."""
    best = {"rtd": 1, "bert-mlm": 0}.get(arm, 2)
    return 60 + 5 * (seed == best) + (tuning == (0 if task == "RTE" else 1)) + 0.5 * (tuning == 2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    folder = tmp_path_factory.mktemp("study") / "runs"
    return made.study(folder, truth, ("rtd", "bert-mlm"), seeds=3, tunings=3, tasks=("CoLA", "RTE", "WNLI"))[0]


@pytest.mark.parametrize(("arm", "seed"), [("rtd", 1), ("bert-mlm", 0)])
def test_an_arm_is_submitted_by_its_run_with_the_best_mean(store: RunStore, arm: str, seed: int) -> None:
    source = source_of(store, "ablation", arm)
    spec = source.run.spec()
    assert (spec.objective, spec.seed, spec.budget.steps) == (arm, seed, 60)
    mean = 65 + (1 + 0.5) / 3  # WNLI is not part of it
    assert (
        source.how == f"the best mean on dev, {mean:.2f} over 3 tasks, of 3 runs of ablation-nano-1a2b3c4d, arm {arm}"
    )


def test_a_run_with_more_tasks_comes_before_a_better_one(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=2, tasks=("CoLA",))
    made.scored(source_of(store, "ablation", None).run, "CoLA", 0, 99.0)
    other = next(run for run in store.runs() if run.run_id.startswith("rtd") and run.spec().seed == 0)
    made.scored(other, "RTE", 0, 1.0)
    assert source_of(store, "ablation", None).run.run_id == other.run_id


def test_what_is_no_single_run_is_refused(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the arms rtd, bert-mlm; choose one with --arm"):
        source_of(store, "ablation", None)
    with pytest.raises(InputError, match=r"--arm rdt: .* did you mean 'rtd'\?"):
        source_of(store, "ablation", "rdt")
    with pytest.raises(InputError, match="no run 'nothing'"):
        source_of(store, "nothing", None)
    run = next(run.run_id for run in store.runs() if run.run_id.startswith("rtd"))
    assert source_of(store, run, None).how == "named by its user"
    with pytest.raises(InputError, match=f"--arm rtd chooses among the arms of an experiment, and {run} is a run"):
        source_of(store, run, "rtd")
    probes, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=1)
    with pytest.raises(InputError, match="no trained run with a score on GLUE"):
        source_of(probes, "ablation", None)


def seeds(run, wish: SeedChoice) -> dict[str, list[int]]:  # type: ignore[no-untyped-def]
    return {task: [score["seed"] for score in scores] for task, (scores, _) in scores_by_task(run, wish).items()}


def test_seeds_are_chosen_on_dev_or_as_given(store: RunStore) -> None:
    run = source_of(store, "ablation", "rtd").run
    assert seeds(run, SeedChoice()) == {"CoLA": [1], "RTE": [0], "WNLI": [1]}
    assert seeds(run, SeedChoice(seed=2)) == {"CoLA": [2], "RTE": [2], "WNLI": [2]}
    assert seeds(run, SeedChoice(ensemble=2)) == {"CoLA": [1, 2], "RTE": [0, 2], "WNLI": [1, 2]}
    assert seeds(run, SeedChoice(ensemble=4)) == seeds(run, SeedChoice(seed=3)) == {}
    assert scores_by_task(run, SeedChoice())["CoLA"][1] == "the best on dev of 3 fine-tuning seeds"
    assert SeedChoice(ensemble=4).lacking() == "fewer than 4 fine-tuning seeds" and SeedChoice().lacking() == "no score"
    with pytest.raises(InputError, match="--seed 0 names one fine-tuning and --ensemble 2 averages several"):
        SeedChoice(seed=0, ensemble=2)


def test_scores_of_other_settings_held_out_rows_and_stand_ins_are_not_mixed_in(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=1, tunings=2, tasks=("CoLA",))
    run = next(run for run in store.runs() if run.run_id.startswith("rtd"))
    made.scored(run, "CoLA", 0, 99.0, digest="ef56ab78", values={"held-out": {"matthews": 99.0}})
    made.scored(run, "QNLI-devsplit", 0, 99.0)
    made.scored(run, "RTE", 0, None)
    assert seeds(run, SeedChoice()) == {"CoLA": [1]}
    made.scored(run, "CoLA", 5, 70.0, digest="0a0b0c0d")
    scores, rule = scores_by_task(run, SeedChoice())["CoLA"]
    assert [score["digest"] for score in scores] == ["0a0b0c0d"]
    assert rule == "the best on dev of 1 fine-tuning seed, under the best of 2 settings"
    assert seeds(run, SeedChoice(ensemble=2)) == {"CoLA": [1, 0]}


def test_a_damaged_run_of_the_arm_is_named_before_another_one_is_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = made.study(tmp_path / "runs", truth, ("rtd",), seeds=2, tasks=("CoLA",))
    best = source_of(store, "ablation", "rtd").run
    assert "damaged" not in caplog.text
    (best.path / "env.json").write_text("{")
    assert source_of(store, "ablation", "rtd").run.run_id != best.run_id
    assert f"{best.path} is damaged and is left out: env.json cannot be read" in caplog.text


SCORE: dict[str, Any] = {
    "task": "RTE", "seed": 4, "metric": "accuracy", "value": 61.5, "values": {"dev": {"accuracy": 61.5, "loss": 0.4}}
}  # fmt: skip


@pytest.mark.parametrize("now", [61.5, 61.50001])
def test_the_recorded_values_pass_silently(now: float, caplog: pytest.LogCaptureFixture) -> None:
    """Also with a difference in the last digits."""
    glue_submission._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
    assert not caplog.records


def test_other_metrics_are_not_the_recorded_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workbench"):
        glue_submission._compare(SCORE, {"dev": {"accuracy": 61.5}})
    assert "fine-tuned again" in caplog.text


@pytest.mark.parametrize("now", [60.5, 61.499, 62.5])
def test_a_difference_of_rounding_is_said(now: float, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workbench"):
        glue_submission._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
    assert f"RTE, seed 4: fine-tuned again, accuracy on dev is {now:.4f} and not 61.5000" in caplog.text


@pytest.mark.parametrize("now", [60.49, 62.51, 0.0])
def test_a_larger_difference_is_another_model_and_refused(now: float) -> None:
    with pytest.raises(InputError, match="as recorded: this is not the model that was chosen; use the --device and"):
        glue_submission._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
