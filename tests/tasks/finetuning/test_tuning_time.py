"""The time that fine-tuning takes, from its workload."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from workbench import tasks
from workbench.models import flops
from workbench.spec import presets
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common import cost
from workbench.tasks.common.contract import Cost, Model, Suite, take
from workbench.tasks.common.examples import Task

SPEC = TasksSpec(lr=3e-3, length=32, batch=8, seeds=2)
CPU = Host(device="cpu", threads=1, precision="fp32")


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
    monkeypatch.setattr(cost.time, "perf_counter", time.process_time)
    stated = keyword.cost(base, spec, folder)
    (told,) = cost.tuning_seconds(base, [stated], spec, CPU)
    begun = time.process_time()
    score = take(keyword, Model(folder, spec, 0), CPU)
    taken = time.process_time() - begun
    assert score.steps == stated.steps and 0.5 < told / taken < 2


def test_seconds_follow_from_products_and_steps(monkeypatch: pytest.MonkeyPatch, keyword: Task) -> None:
    base = presets.resolve("nano")
    monkeypatch.setattr(cost, "_timed", lambda spec, tasks, host, rows, length: 0.5 + length / 16)
    forward = flops.encoder(base.encoder, 16).matmul
    tuning = Cost(10 * 32 * 3 * forward, 10, lengths=(16,))
    (seconds,) = cost.tuning_seconds(base, [tuning], TasksSpec(batch=32), CPU)
    assert seconds == pytest.approx(10 * 1.5, rel=0.02)
    tested = replace(tuning, flops=tuning.flops + 320 * forward)
    (more,) = cost.tuning_seconds(base, [tested], TasksSpec(batch=32), CPU)
    assert more - seconds == pytest.approx(10 * 1.0 / 3, rel=0.1)  # a forward pass is a third of a step


def test_the_plan_counts_encoders_seeds_and_workers(
    encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "tuning_seconds", lambda spec, works, tasks, host: [60.0 for _ in works])
    specs = [presets.resolve("nano", {"seed": seed}) for seed in range(3)]
    suite = Suite((keyword, replace(keyword, name="other")), {"CoLA": "no folder"})
    sentence, rows = cost.planned_time(specs, suite, SPEC, encoder, CPU, 1)
    assert sentence.startswith("fine-tuning time for 3 encoders, untrained ones included: about 12 min")
    assert sentence.endswith("(a few steps timed; one fine-tuning takes keyword 1 min 0 s, other 1 min 0 s); without "
                             "CoLA, which are not there")  # fmt: skip
    assert [(row["task"], row["times"], row["seconds"]) for row in rows] == [("keyword", 6, 60.0), ("other", 6, 60.0)]
    assert "about 6 min" in cost.planned_time(specs, suite, SPEC, encoder, CPU, 2)[0]


def test_only_names_that_train_an_encoder_are_priced(tmp_path: Path) -> None:
    names = ("linear", "similarity:STS-B", "probes", "RTE", "pairs", f"tag:{tmp_path}")
    assert tasks.fine_tuned_only(TasksSpec(names=names)).names == ("probes", "RTE", f"tag:{tmp_path}")
    contrastive = tasks.fine_tuned_only(TasksSpec(names=names, embeddings="contrastive"))
    assert contrastive.names == ("similarity:STS-B", "probes", "RTE", f"tag:{tmp_path}")
    assert not tasks.fine_tuned_only(TasksSpec(names=("pairs",))).chosen
