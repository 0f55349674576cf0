"""Heads for the ends of answers, and their loss, against slow loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squad_tasks import task_of
from torch.nn import functional

from workbench.tasks._squad_model import Limits, SpanModel, best_spans, span_loss, windows
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.squad import Squad


def oracle(model: SpanModel, folder: Path, task: Squad, joint: bool, limit: Limits) -> list[dict[str, Any]]:
    """Loss parts and best spans of each window, one at a time, with the dense layers of the released code."""
    part = windows(folder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = []
    for number in range(len(part)):
        batch = part.batch([number], "cpu")
        hidden = model.encoder(**batch.inputs).last_hidden_state[0]  # (L, D)
        allowed = batch.allowed[0]
        lowered = torch.where(allowed, 0.0, -1000.0)
        start = hidden @ model.start.weight[0] + model.start.bias + lowered

        def ends(token: int, hidden: Any = hidden, lowered: Any = lowered) -> Any:
            if not joint:
                return hidden @ model.end.weight[0] + model.end.bias + lowered
            pairs = torch.cat([hidden[token].expand_as(hidden), hidden], 1)
            return model.end(functional.gelu(model.end_hidden(pairs)))[:, 0] + lowered  # type: ignore[misc]

        pooled = (start.softmax(0)[:, None] * hidden).sum(0)
        null = model.answerable(functional.gelu(model.answerable_hidden(torch.cat([hidden[0], pooled]))))[0]
        first, last = batch.spans[0].tolist()
        loss = -(start.log_softmax(0)[first] + ends(first).log_softmax(0)[last]) / 2
        label = batch.impossible[0]
        loss = loss - 0.5 * (label * null.sigmoid().log() + (1 - label) * (1 - null.sigmoid()).log())
        scores = start.log_softmax(0) if joint else start
        rows.append({"loss": loss, "null": null, "starts": scores, "ends": ends, "batch": batch, "number": number})
    return rows


@pytest.mark.parametrize("joint", [True, False])
def test_heads_and_loss_are_those_of_a_slow_loop(encoder: Path, tmp_path: Path, joint: bool) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    task = replace(task, tests={"dev": task.tests["dev"].take(list(range(6)))})
    torch.manual_seed(3)
    model = SpanModel(load_encoder(encoder, 0.0), joint).eval()
    limit = Limits(24, 6, 8)
    part = windows(encoder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = np.arange(len(part))
    batch = part.batch(rows, "cpu")
    with torch.no_grad():
        slow = oracle(model, encoder, task, joint, limit)
        losses = torch.stack([each["loss"] for each in slow])
        assert torch.allclose(span_loss(model, batch, False), losses.mean(), atol=1e-5)
        assert torch.allclose(span_loss(model, batch, True), losses.sum(), atol=1e-4)
        spans = best_spans(model, batch, part.begins(rows, batch.allowed.shape[1]))
        for row, each in enumerate(slow):
            assert spans["nulls"][row] == pytest.approx(float(each["null"]), abs=1e-5)
            best, places = each["starts"].sort(descending=True)
            valid = int(batch.allowed[row].sum())
            count = min(20, valid)
            assert spans["starts"][row][:count].tolist() == places[:count].tolist()
            assert np.allclose(spans["start_scores"][row][:count], best[:count], atol=1e-5)
            for place in np.flatnonzero(spans["begins"][row]):
                ends = each["ends"](int(spans["starts"][row][place]))
                scored = ends.log_softmax(0) if joint else ends
                assert np.allclose(
                    spans["end_scores"][row, place][:count], scored.sort(descending=True)[0][:count], atol=1e-5
                )
                chosen = scored[spans["ends"][row, place][:count]]
                assert np.allclose(spans["end_scores"][row, place][:count], chosen, atol=1e-5)


def test_gradients_reach_every_weight(encoder: Path, tmp_path: Path) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    for joint in (True, False):
        model = SpanModel(load_encoder(encoder, 0.0), joint)
        part = windows(encoder, model.encoder.config, {"train": task.train}, Limits(32, 8, 16))["train"]
        span_loss(model, part.batch(np.arange(16), "cpu"), False).backward()
        bare = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert not {name for name in bare if not name.startswith("encoder.embeddings")}
