"""A tiny untrained encoder in the Hugging Face layout, and tasks that even this encoder can learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.data import tokenizer
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.examples import Examples, Task, fingerprinted

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)


def sentence(random: np.random.Generator, least: int = 3, most: int = 12) -> str:
    return " ".join(random.choice(WORDS, size=random.integers(least, most)))


@pytest.fixture(scope="session")
def electra(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes a folder with an untrained ElectraModel and a tokenizer of the toy words."""
    import torch
    from transformers import ElectraConfig, ElectraModel

    random = np.random.default_rng(0)
    trained = tokenizer.train([sentence(random) for _ in range(300)], 80)

    def make(**changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("encoder")
        tokenizer.save(trained, folder, True)
        sizes = {
            "hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "max_position_embeddings": 48, "vocab_size": tokenizer.size(trained),
            "initializer_range": 0.2,
        }  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = ElectraModel(ElectraConfig(**(sizes | changes)))
            model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def encoder(electra: Callable[..., Path]) -> Path:
    return electra()


@pytest.fixture(scope="session")
def keyword() -> Task:
    """Return a task: does the sentence contain the word `bada`, as half of them do."""
    random = np.random.default_rng(1)

    def part(count: int) -> Examples:
        texts, targets = [], []
        for i in range(count):
            words = [word for word in sentence(random).split() if word != "bada"] or ["kego"]
            if i % 2:
                words.insert(int(random.integers(len(words) + 1)), "bada")
            texts.append(" ".join(words))
            targets.append(i % 2)
        return Examples(texts, None, targets)

    return fingerprinted(Task("keyword", "table", ("no", "yes"), "accuracy", ("accuracy", "matthews"), 6.0, part(256),
                       {"dev": part(101), "test": part(50)}))  # fmt: skip


@pytest.fixture(scope="session")
def lengths() -> Task:
    """Return a regression on pairs in either order: how many words the longer of the two sentences has."""
    random = np.random.default_rng(2)

    def part(count: int) -> Examples:
        pairs = [(sentence(random), sentence(random)) for _ in range(count)]
        first, second = (list(column) for column in zip(*pairs, strict=True))
        return Examples(first, second, [float(max(len(a.split()), len(b.split()))) for a, b in pairs])

    return fingerprinted(Task("lengths", "table", (), "spearman", ("spearman", "pearson"), 10.0, part(192),
                       {"dev": part(64)}, span=(3.0, 11.0), symmetric=True))  # fmt: skip
