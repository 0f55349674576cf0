"""What tests of zero-shot tasks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pair_runs import FACTS, SIZES, sentence

from workbench import objectives
from workbench.data import tokenizer
from workbench.models.export import export, export_heads
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.loop import build


@pytest.fixture(scope="session")
def toy() -> PairSet:
    random = np.random.default_rng(0)
    texts = [sentence(random) for _ in range(80)]
    return pair_set("toy", "minimal-pairs", texts[:40], texts[40:], {"paradigm": ["a"] * 10 + ["b"] * 30})


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunDir]:
    """Return a function that makes a finished run of an objective with random weights."""
    random = np.random.default_rng(1)
    trained = tokenizer.train([sentence(random) for _ in range(200)], 80)
    words = tmp_path_factory.mktemp("words")
    tokenizer.save(trained, words, True)
    made: dict[tuple[str, str], RunDir] = {}

    def make(name: str, tying: str = "embeddings") -> RunDir:
        if (name, tying) not in made:
            given = {"objective": name, "tying": tying, "encoder.vocab": tokenizer.size(trained)} | SIZES
            given |= {f"data.special.{key}": value for key, value in tokenizer.special(words).model_dump().items()}
            spec = objectives.with_options(resolve("nano", given))
            model: Any = build(spec)
            numbers = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(torch.randn(weight.shape, generator=numbers) * 0.3)
            run = RunStore(tmp_path_factory.mktemp("runs")).open(BoundRun(spec))
            with run.staged("encoder") as folder:
                export(model.encoder, words, folder, spec, FACTS)
            with run.staged("heads") as folder:
                export_heads(model, folder)
            run.finish(FACTS)
            made[name, tying] = run
        return made[name, tying]

    return make
