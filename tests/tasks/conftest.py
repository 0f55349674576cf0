"""A tiny untrained encoder in the Hugging Face layout, and tasks that even this encoder can learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pair_runs
import pytest
import tagged_made
import torch
from causal_folders import build_folder
from embedding_files import WORDS
from pair_runs import FACTS, SIZES

from workbench import objectives
from workbench.data import tokenizer
from workbench.models.export import export, export_heads
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.loop import build

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

    return Task("keyword", "table", ("no", "yes"), "accuracy", ("accuracy", "matthews"), 6.0, part(256),
                       {"dev": part(101), "test": part(50)})  # fmt: skip


@pytest.fixture(scope="session")
def lengths() -> Task:
    """Return a regression on pairs in either order: how many words the longer of the two sentences has."""
    random = np.random.default_rng(2)

    def part(count: int) -> Examples:
        pairs = [(sentence(random), sentence(random)) for _ in range(count)]
        first, second = (list(column) for column in zip(*pairs, strict=True))
        return Examples(first, second, [float(max(len(a.split()), len(b.split()))) for a, b in pairs])

    return Task("lengths", "table", (), "spearman", ("spearman", "pearson"), 10.0, part(192),
                       {"dev": part(64)}, span=(3.0, 11.0), symmetric=True)  # fmt: skip


@pytest.fixture(scope="module")
def make(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a folder with random weights of a family and a tokenizer to match.

    Those with a head are saved as language models; GPT-2's then has no padding token, as it is published.
    """
    made: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in made:
            made[kind] = build_folder(encoder, kind, tmp_path_factory.mktemp("causal"))
        return made[kind]

    return build


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a set of tagged sentences."""

    def made(rule: Callable[[list[str]], list[str]], train: int = 200, most: int = 12) -> Path:
        path = tmp_path / "toy"
        path.mkdir()
        for seed, (part, count) in enumerate((("train", train), ("dev", 20), ("test", 60))):
            tagged_made.write(path / f"{part}.txt", tagged_made.sentences(count, seed, most), rule)
        return path

    return made


@pytest.fixture(scope="session")
def toy() -> PairSet:
    random = np.random.default_rng(0)
    texts = [pair_runs.sentence(random) for _ in range(80)]
    return PairSet("toy", "minimal-pairs", texts[:40], texts[40:], {"paradigm": ["a"] * 10 + ["b"] * 30})


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunDir]:
    """Return a function that makes a finished run of an objective with random weights."""
    random = np.random.default_rng(1)
    trained = tokenizer.train([pair_runs.sentence(random) for _ in range(200)], 80)
    words = tmp_path_factory.mktemp("words")
    tokenizer.save(trained, words, True)
    made: dict[str, RunDir] = {}

    def make(name: str, tying: str = "embeddings", **keys: Any) -> RunDir:
        case = f"{name} {tying} {keys}"
        if case not in made:
            given = {"objective": name, "tying": tying, "encoder.vocab": tokenizer.size(trained)} | SIZES | keys
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
            made[case] = run
        return made[case]

    return make
