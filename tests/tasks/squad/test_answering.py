"""Fine-tuning on SQuAD: it learns, its heads are those of the released code, and its predictions are in the run."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from squad_tasks import WORDS, task_of
from written_runs import finished

from workbench import tasks
from workbench.errors import Diverged, Interrupted
from workbench.signals import interrupting
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store import atomic
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import _squad_answers as squad_answers
from workbench.tasks import _squad_model as squad_model
from workbench.tasks._squad_answers import answerable_metrics, unanswerable_metrics
from workbench.tasks.common import evaluation
from workbench.tasks.common.contract import Model, Score, keep, score_name, take
from workbench.tasks.common.fine_tuning import Unfinished
from workbench.tasks.squad import Squad

CPU = Host(device="cpu", threads=1)


@pytest.fixture(scope="module")
def learned(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Squad, TasksSpec, Score]]:
    """SQuAD 1.1 with joint heads, and 2.0 with independent ones, with their scores."""
    made = {}
    for unanswerable, head, epochs in ((False, "joint", 6), (True, "independent", 14)):
        words = {"squad_head": head, "epochs": epochs}
        task, spec = task_of(tmp_path_factory.mktemp("squad"), unanswerable, **words)
        made[unanswerable] = (task, spec, take(task, Model(encoder, spec, 0), CPU))
    return made


def test_it_learns_to_answer(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    task, spec, score = learned[False]
    assert score.value == score.values["dev"]["f1"] > 90 > 2 * score.baselines["nearest-overlap"]
    assert score.metric == "f1" and score.values["dev"]["exact"] > 85
    assert score.steps == round(6 * np.ceil(score.details["windows"]["count"]["train"] / 32))
    assert (score.train_rows, score.test_rows) == (128, 48)
    assert score.finetune == task.settings(spec) and score.data == task.fingerprint


def test_it_learns_what_has_no_answer(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    _, _, score = learned[True]
    assert score.metric == "best_f1" and score.value == score.values["dev"]["best_f1"] > 90
    assert score.baselines["majority"] == 50
    assert set(score.values["dev"]) == {
        f"{part}{kind}" for part in ("", "best_", "HasAns_", "NoAns_") for kind in ("exact", "f1")
    }
    assert set(score.details["thresholds"]) == {"best_exact", "best_f1"}


def test_the_predictions_are_those_that_the_score_is_of(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    for unanswerable, (task, _, score) in learned.items():
        files = {name: json.loads(data) for name, data in score.files.items()}
        test = task.tests["dev"]
        assert set(files) == {".preds.json", ".nbest.json"} | ({".null_odds.json"} if unanswerable else set())
        assert all(set(content) == {row.id for row in test.rows} for content in files.values())
        for row in test.rows:
            nbest = files[".nbest.json"][row.id]
            assert files[".preds.json"][row.id] == nbest[0]["text"] in test.paragraphs[row.paragraph]
            assert len({each["text"] for each in nbest}) == len(nbest) <= 20
            assert sum(each["probability"] for each in nbest) == pytest.approx(1, abs=1e-4)
            sums = [each["start_logit"] + each["end_logit"] for each in nbest]
            assert sums == sorted(sums, reverse=True)
        if unanswerable:
            odds = files[".null_odds.json"]
            metrics, thresholds = unanswerable_metrics(test, files[".preds.json"], odds, -2.75)
            assert metrics == score.values["dev"] and thresholds == score.details["thresholds"]
        else:
            assert answerable_metrics(test, files[".preds.json"]) == score.values["dev"]
        assert "files" not in score.to_json() and score.to_json()["windows"] == score.details["windows"]


def test_equal_seeds_agree_to_the_last_bit(encoder: Path, tmp_path: Path) -> None:
    task, spec = task_of(tmp_path / "squad", True, epochs=0.5, dropout=0.1)
    scores = [take(task, Model(encoder, spec, seed), CPU) for seed in (0, 0, 1)]
    assert replace(scores[0], seconds=0) == replace(scores[1], seconds=0)
    assert scores[0].files != scores[2].files


def test_a_fine_tuning_that_is_stopped_goes_on_exactly(encoder: Path, tmp_path: Path) -> None:
    task, spec = task_of(tmp_path / "squad", True, epochs=2, dropout=0.1)
    whole = take(task, Model(encoder, spec, 0), CPU)
    run = finished(RunStore(tmp_path / "runs"), 0, tuning=0)
    state = Unfinished(run, score_name(task, spec, 0), {"encoder": "x"})

    def stop(step: int, steps: int) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with interrupting(), pytest.raises(Interrupted):
        take(task, Model(encoder, spec, 0, stop, state), CPU)
    assert list((run.path / "unfinished").iterdir())
    taken: list[int] = []
    score = take(task, Model(encoder, spec, 0, lambda step, steps: taken.append(step), state), CPU)
    assert taken == [5, 6, 7, 8] and score.peak_memory_bytes
    assert replace(score, seconds=0) == replace(whole, seconds=0) and score.files == whole.files


def test_a_loss_that_is_not_finite_is_said(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, spec = task_of(tmp_path / "squad", epochs=0.1)
    spans = squad_model.best_spans
    broken = lambda *words: spans(*words) | {"nulls": np.array([np.nan], dtype=np.float32)}  # noqa: E731
    monkeypatch.setattr(squad_answers, "best_spans", broken)
    with pytest.raises(Diverged, match=r"the outputs after fine-tuning on squad1 \(seed 0\) are not finite"):
        take(task, Model(encoder, spec, 0), CPU)


def test_details_count_windows_and_answers_that_fit_in_none(encoder: Path, tmp_path: Path) -> None:
    task, spec = task_of(tmp_path / "squad", longest=40, epochs=0.05)
    task = replace(task, faults={"answers are not at their offset, first in x": 2})
    score = take(task, Model(encoder, spec, 0), CPU)
    assert score.details["faults"] == task.faults
    assert score.details["notes"] == ["2 times: answers are not at their offset, first in x"]
    details = score.details["windows"]
    assert (details["length"], details["query"], details["stride"]) == (32, 8, 16)
    assert details["questions_without_the_answer"] == 0 and details["train_with_the_answer"] >= 128
    assert details["count"]["train"] > 128 and details["most_of_a_question"] > 1


# ---- the run ----


def test_a_run_holds_the_predictions_with_their_hashes(tmp_path: Path, learned: dict[bool, Any]) -> None:
    run = finished(RunStore(tmp_path), 0, tuning=0)
    task, spec, score = learned[True]
    name = score_name(task, spec, 0)
    keep(run, name, score, run.weight_digests())
    stem = name.removesuffix(".json")
    files = {path.name: path.read_bytes() for path in (run.path / "predictions").iterdir()}
    assert files == {f"{stem}{ending}": text.encode() for ending, text in score.files.items()}
    stated = run.scores()[name]["files"]
    assert stated == {f"predictions/{file}": {"bytes": len(d), "sha256": _sha(d)} for file, d in files.items()}
    assert run.damage is None and run.summary(full=True)["state"] == "done"
    path = run.path / "predictions" / f"{stem}.preds.json"
    path.write_bytes(path.read_bytes().replace(b"ba", b"bo", 1))
    assert "predictions" in str(run.summary(full=True)["note"]) and run.summary(full=True)["state"] == "damaged"
    for each in (run.path / "predictions").iterdir():
        each.unlink()
    (run.path / "predictions").rmdir()  # a user may delete them all to save space
    assert run.summary(full=True)["state"] == "done"


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_full_disk_leaves_no_prediction_without_its_score(
    tmp_path: Path, learned: dict[bool, Any], monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    run = finished(RunStore(tmp_path), 0, tuning=0)
    task, spec, score = learned[True]
    parts = atomic.write_parts
    written: list[Path] = []

    def full(path: Path, content: Any) -> None:
        body = [bytes(each) for each in content]
        if b'"nbest' not in body[0] and b"\n" not in body[0][-1:]:  # a file of predictions, which has no line end
            written.append(path)
            if len(written) > survivors:
                raise OSError(errno.ENOSPC, "No space left on device")
        parts(path, body)

    monkeypatch.setattr(atomic, "write_parts", full)
    with pytest.raises(OSError, match="bytes are needed and") as error:
        keep(run, score_name(task, spec, 0), score, run.weight_digests())
    assert error.value.errno == errno.ENOSPC and "predictions" in str(error.value.filename)
    assert not list((run.path / "predictions").iterdir()) and not run.scores()
    assert run.summary(full=True)["state"] != "damaged"
    monkeypatch.setattr(atomic, "write_parts", parts)
    keep(run, score_name(task, spec, 0), score, run.weight_digests())
    assert len(list((run.path / "predictions").iterdir())) == 3 and run.summary(full=True)["state"] == "done"


def test_evaluate_keeps_the_predictions_in_the_run(
    encoder: Path, tmp_path: Path, learned: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, spec, score = learned[False]
    monkeypatch.setattr(evaluation, "take", lambda *words: score)
    suite = tasks.Suite((task,))
    rows, failed = evaluation.evaluate(encoder, suite, spec, "nano", CPU)
    assert failed == 0 and rows[0]["value"] == score.value
    run = finished(RunStore(tmp_path), 0, tuning=0)
    with run.lease(patience=0):
        evaluation.evaluate(encoder, suite, spec, "nano", CPU, run)
    again = RunDir(run.path)
    assert list(again.scores()) == [score_name(task, spec, 0)] and len(list((run.path / "predictions").iterdir())) == 2
    assert again.summary(full=True)["state"] == "done"


# ---- real data ----


@pytest.mark.slow
def test_real_questions_are_answered_from_their_paragraphs(encoder: Path, real_data: Path) -> None:
    spec = TasksSpec(
        **(WORDS | {"names": ("squad1-devsplit",), "squad": str(real_data / "squad"), "rows": 40, "epochs": 1})
    )
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Squad)
    score = take(task, Model(encoder, spec, 0), CPU)
    texts = json.loads(score.files[".preds.json"])
    test = task.tests["dev"]
    assert all(texts[row.id] in test.paragraphs[row.paragraph] or texts[row.id] == "empty" for row in test.rows)
    assert answerable_metrics(test, texts) == score.values["dev"]
