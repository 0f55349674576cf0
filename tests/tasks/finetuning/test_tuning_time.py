"""The workload of a fine-tuning against what the fine-tuner makes of its task, and the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from workbench import tasks
from workbench.spec import presets
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings.embedding_task import Embedding, Similar
from workbench.tasks.finetuning import tuning_time
from workbench.tasks.finetuning.token_batches import encode
from workbench.tasks.finetuning.workload import Workload, workload
from workbench.tasks.measures import take
from workbench.tasks.pieces import open_splitter
from workbench.tasks.squad.questions import Question, Questions, Squad
from workbench.tasks.squad.windows import limits, windows
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.tagging.word_windows import word_windows
from workbench.tasks.task import Examples, Suite, Tagged, Task, sealed

SPEC = TasksSpec(lr=3e-3, length=32, batch=8, seeds=2)
CPU = Host(device="cpu", threads=1, precision="fp32")


def lengths(rows: list[list[int]]) -> list[int]:
    return sorted(length for each in rows for length in each)


def test_rows_of_texts_are_those_that_are_encoded(encoder: Path, keyword: Task) -> None:
    work = workload(keyword, SPEC, encoder, 48)
    parts = encode(encoder, keyword, 32)
    assert lengths(work.train) == sorted(parts["train"].lengths.tolist())
    assert lengths(work.test) == sorted([*parts["dev"].lengths.tolist(), *parts["test"].lengths.tolist()])
    assert (work.steps, work.batch, work.tested) == (6 * 256 // 8, 8, 151)
    assert workload(keyword, SPEC.model_copy(update={"epochs": 0.5}), encoder, 48).steps == 16


def test_folds_and_doubled_pairs_are_counted(encoder: Path, keyword: Task, lengths: Any) -> None:
    folds = tuple(tuple(range(part, 256, 4)) for part in range(4))
    assert workload(replace(keyword, folds=folds), SPEC, encoder, 48).steps == 4 * 6 * 192 // 8
    twice = workload(lengths, SPEC.model_copy(update={"doubled": True}), encoder, 48)
    assert twice.steps == 2 * workload(lengths, SPEC, encoder, 48).steps


def test_a_choice_counts_questions_with_all_their_answers(encoder: Path) -> None:
    rows = Examples(["bada"] * 30, ["keda kefe"] * 30, [1, 0, 0] * 10, [n // 3 for n in range(30)])
    choice = sealed(Task("c", "table", ("a", "b"), "accuracy", ("accuracy",), 10.0, rows, {"dev": rows}, choice=True))
    work = workload(choice, SPEC, encoder, 48)
    assert work.steps == 10 * 2 and [len(each) for each in work.train] == [3] * 10 and work.tested == 10


def test_long_sentences_are_counted_in_windows(encoder: Path) -> None:
    words = [["bada"] * count for count in (1, 5, 60, 23)]
    tagging = Tagging("t", ("A", "B"), 2, "", Tagged(words, [[0] * len(each) for each in words]), {})
    work = workload(tagging, SPEC, encoder, 48)
    config = AutoConfig.from_pretrained(encoder)
    rows = word_windows(open_splitter(encoder, config, 32, "tagging"), words, False).rows
    assert abs(len(work.train) - len(rows)) <= 1 and sum(lengths(work.train)) == pytest.approx(
        sum(rows.lengths), rel=0.1
    )


def test_questions_are_counted_in_windows(encoder: Path) -> None:
    paragraphs = [" ".join(["bada"] * count) for count in (5, 200)]
    asked = [Question(f"q{n}", "kefe lofe", n % 2, (("bada", 0),), False, "x") for n in range(6)]
    squad = Squad("squad1", False, Questions(paragraphs, asked), {"dev": Questions(paragraphs, asked)})
    spec = SPEC.model_copy(update={"squad_length": 40})
    work = workload(squad, spec, encoder, 48)
    config = AutoConfig.from_pretrained(encoder)
    made = windows(encoder, config, {"train": squad.train}, limits(encoder, config, spec))["train"]
    assert abs(len(work.train) - len(made)) <= 3
    assert sum(lengths(work.train)) == pytest.approx(sum(made.lengths), rel=0.15)


def test_contrastive_pairs_have_two_rows_and_tests_are_read_twice(encoder: Path) -> None:
    part = Similar(("bada",) * 20, ("keda kefe",) * 20, tuple(map(float, range(20))))
    work = workload(Embedding("e", "similarity", {"dev": part}, train=part), SPEC, encoder, 48)
    assert [len(each) for each in work.train] == [2] * 20 and work.tested == 80 and work.steps == 9


@pytest.mark.slow
def test_the_time_is_that_of_the_fine_tuner(
    electra: Callable[..., Path], keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By processor time on one thread, so that other work on the machine matters little."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 256}
    folder = electra(**sizes)
    base = presets.resolve("nano", {
        "encoder.hidden": 64, "encoder.layers": 4, "encoder.embedding": 16, "encoder.vocab": 80, "encoder.heads": 2,
        "encoder.positions": 48,
    })  # fmt: skip
    spec = SPEC.model_copy(update={"batch": 32, "epochs": 40.0})  # so long that loading the encoder matters little
    monkeypatch.setattr(tuning_time.time, "perf_counter", time.process_time)
    work = workload(keyword, spec, folder, 48)
    (told,) = tuning_time.tuning_seconds(base, [work], spec, CPU)
    begun = time.process_time()
    score = take(folder, keyword, spec, 0, CPU)
    taken = time.process_time() - begun
    assert score.steps == work.steps and 0.5 < told / taken < 2


def test_seconds_follow_from_products_and_steps(monkeypatch: pytest.MonkeyPatch, keyword: Task) -> None:
    base = presets.resolve("nano")
    monkeypatch.setattr(tuning_time, "_timed", lambda spec, tasks, host, rows, length: 0.5 + length / 16)
    work = Workload(10, 32, [[16]], [[16]], 0)
    (seconds,) = tuning_time.tuning_seconds(base, [work], TasksSpec(batch=32), CPU)
    assert seconds == pytest.approx(10 * 1.5, rel=0.02)
    (more,) = tuning_time.tuning_seconds(base, [replace(work, tested=320)], TasksSpec(batch=32), CPU)
    assert more - seconds == pytest.approx(10 * 1.0 / 3, rel=0.1)  # a forward pass is a third of a step


def test_the_plan_counts_encoders_seeds_and_workers(
    encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_time, "tuning_seconds", lambda spec, works, tasks, host: [60.0 for _ in works])
    specs = [presets.resolve("nano", {"seed": seed}) for seed in range(3)]
    suite = Suite((keyword, replace(keyword, name="other")), {"CoLA": "no folder"})
    sentence, rows = tuning_time.planned(specs, suite, SPEC, encoder, CPU, 1)
    assert sentence.startswith("fine-tuning time for 3 encoders, untrained ones included: about 12 min")
    assert sentence.endswith("(a few steps timed; one fine-tuning takes keyword 1 min 0 s, other 1 min 0 s); without "
                             "CoLA, which are not there")  # fmt: skip
    assert [(row["task"], row["times"], row["seconds"]) for row in rows] == [("keyword", 6, 60.0), ("other", 6, 60.0)]
    assert "about 6 min" in tuning_time.planned(specs, suite, SPEC, encoder, CPU, 2)[0]


def test_only_names_that_train_an_encoder_are_priced(tmp_path: Path) -> None:
    names = ("linear", "similarity:STS-B", "probes", "RTE", "pairs", f"tag:{tmp_path}")
    assert tasks.tuned(TasksSpec(names=names)).names == ("probes", "RTE", f"tag:{tmp_path}")
    contrastive = tasks.tuned(TasksSpec(names=names, embeddings="contrastive"))
    assert contrastive.names == ("similarity:STS-B", "probes", "RTE", f"tag:{tmp_path}")
    assert not tasks.tuned(TasksSpec(names=("pairs",))).chosen
