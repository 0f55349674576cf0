"""A run that is put together again to score sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pair_runs import CPU, scored

from workbench import objectives
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.store.run_store import RunDir
from workbench.tasks import _preferences as preferences
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.sentence_scorers import check, load
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.loop import build


@pytest.mark.parametrize(
    ("name", "tying"), [("rtd", "embeddings"), ("rtd", "gdes"), ("rtd", "none"), ("all-tokens-mlm", "tokens")]
)
def test_what_is_put_together_again_scores_as_the_model_did(
    name: str, tying: str, finished: Callable[..., RunDir], toy: PairSet
) -> None:
    run = finished(name, tying)
    again = load(run.path / "encoder", ("default", "generator-pll"), "cpu")
    model: Any = build(run.spec()).eval()
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=numbers) * 0.3)
        texts = preferences.Tokenized(run.path / "encoder", toy.good, 16)
        for _, given in texts.batches(np.arange(3), "cpu"):
            assert again.scorer(given).tolist() == pytest.approx(model.score(given.ids, None).tolist(), rel=1e-5)
            own = model.scorers()["generator-pll"](given)
            assert again.beside["generator-pll"](given).tolist() == pytest.approx(own.tolist(), rel=1e-5)


def test_a_run_without_heads_says_so(finished: Callable[..., RunDir], toy: PairSet, tmp_path: Path) -> None:
    run = finished("rtd")
    encoder = tmp_path / run.run_id / "encoder"
    encoder.parent.mkdir()
    with pytest.raises(InputError, match="name the folder encoder of a run"):
        take(toy, Model(encoder, TasksSpec(), 0), CPU)
    (encoder.parent / "spec.json").write_bytes((run.path / "spec.json").read_bytes())
    with pytest.raises(InputError, match=r"has no folder heads, .* trained by an older version"):
        take(toy, Model(encoder, TasksSpec(), 0), CPU)


def test_a_scorer_that_the_objective_lacks_is_named(finished: Callable[..., RunDir], toy: PairSet) -> None:
    with pytest.raises(
        InputError, match=r"tasks.scorers=nonsense: the objective bert-mlm has none of these; it has pll, pll-word-l2r"
    ):
        scored(finished("bert-mlm"), toy, scorers="nonsense")


@pytest.mark.parametrize("name", objectives.names())
def test_a_scorer_that_an_objective_lacks_is_refused_before_training(name: str) -> None:
    spec = objectives.with_options(resolve("nano", {"objective": name, "tasks.scorers": ["nonsense"]}))
    with pytest.raises(InputError, match=f"tasks.scorers=nonsense: the objective {name} has none of these; it has "):
        check(spec)
    for asked in ("nonsense,default", next(iter(build(spec).scorers()))):  # type: ignore[operator]
        check(spec.replace(tasks=spec.tasks.model_copy(update={"scorers": tuple(asked.split(","))})))
