"""Parts of slow, plain versions of the losses, written from their definitions, and what they see of a forward pass.

Logits come from Hugging Face's own ELECTRA heads in float64, holding copies of our weights; everything after them is a
loop over rows and positions. Clark et al. 2020, sections 3.1 and 3.4; normalisation as in the released code.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from workbench import objectives
from workbench.encoders.electra import hugging_face
from workbench.models import corruption, generators
from workbench.models.encoder import Encoder, build_encoder
from workbench.models.heads import BinaryHead, MlmHead, Sentences
from workbench.rng import row_keys
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Guess, StepLoss

NAMES = ("all-tokens-mlm", "bert-mlm", "electra-15", "replace-mlm", "rtd")
WITH_GENERATOR = tuple(name for name in NAMES if name != "bert-mlm")
MAIN_PART = {name: "discriminator_loss" if name in ("rtd", "electra-15") else "mlm_loss" for name in NAMES}
PAD, UNK, CLS, SEP, MASK = range(5)

TINY: dict[str, Any] = {
    "encoder.position_init": "sinusoidal",
    "encoder.hidden": 32, "encoder.layers": 2, "encoder.heads": 2, "encoder.embedding": 16, "encoder.vocab": 40,
    "encoder.positions": 32, "generator.width": 0.5, "data.length": 24, "batch.size": 6, "corruption.rate": 0.3,
    "data.special.pad": PAD, "data.special.unk": UNK, "data.special.cls": CLS, "data.special.sep": SEP,
    "data.special.mask": MASK,
}  # fmt: skip


ALL_MASKED = {"corruption.generator_mask": 1.0, "corruption.generator_random": 0.0}  # as in the paper, not as at nano


def tiny(objective: str, overrides: dict[str, Any] | None = None, **keys: Any) -> RunSpec:
    """A spec of a few thousand weights; keyword `a__b=c` sets `a.b`."""
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    shown = ALL_MASKED if keys.get("recipe", "paper") == "paper" else {}
    return objectives.with_options(resolve("nano", {"objective": objective} | TINY | shown | (overrides or {}) | keys))


def tiny_of_file(path: Path, overrides: dict[str, Any] | None = None) -> RunSpec:
    """The same with an objective that is a file."""
    name, source = objectives.find(str(path))
    return tiny(name, {"source": source} | (overrides or {}))


def build(spec: RunSpec) -> Any:
    module = objectives.load(spec)
    return module.Objective(build_encoder(spec), spec, module.Options(**spec.options))


def shaken(spec: RunSpec, seed: int = 0, size: float = 0.3) -> Any:
    """The objective with weights far from where they start, so that no term of a loss is near a neutral value."""
    objective = build(spec)
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=numbers) * size)
    return objective


@st.composite
def ragged(draw: st.DrawFn, shortest: int, longest: int, words: int) -> Batch:
    """Rows of ids 1 to `words`, special tokens anywhere, of any length up to one between the two that are given."""
    length = draw(st.integers(shortest, longest))
    sizes = draw(st.lists(st.integers(0, length), min_size=1, max_size=4))
    ids, attention = np.full((len(sizes), length), PAD), np.zeros((len(sizes), length), bool)
    for row, size in enumerate(sizes):
        ids[row, :size] = draw(st.lists(st.integers(1, words), min_size=size, max_size=size))
        attention[row, :size] = True
    keys = row_keys(draw(st.integers(0, 1000)), torch.arange(len(sizes)))
    return Batch(torch.tensor(ids), keys, torch.tensor(attention))


def synthetic(spec: RunSpec, rows: int = 12, lengths: Sequence[int] | None = None, seed: int = 0) -> Batch:
    """[CLS] words [SEP] in every row, padded to the length of the spec where `lengths` are given."""
    special, length = spec.data.special, spec.data.length
    numbers = np.random.default_rng(seed)
    ids = numbers.integers(5, spec.encoder.vocab, (rows, length))
    ids[:, 3] = special.unk
    sizes = list(lengths) if lengths is not None else [length] * rows
    return framed(ids, sizes, spec, seed)


def framed(words: np.ndarray, sizes: Sequence[int], spec: RunSpec, seed: int = 0) -> Batch:
    """Words (B, L) with special tokens written in; rows shorter than L are padded and have an attention mask.

    If the spec has pairs, rows of five tokens or more have a second segment, and every third pair is broken.
    """
    special, ids = spec.data.special, words.copy()
    ids[:, 0] = special.cls
    attention, segments = np.zeros(ids.shape, dtype=bool), np.zeros_like(ids)
    for row, size in enumerate(sizes):
        if spec.data.pairs and size >= 5:
            ids[row, size // 2], segments[row, size // 2 + 1 : size] = special.sep, 1
        ids[row, size - 1], ids[row, size:] = special.sep, special.pad
        attention[row, :size] = True
    full = bool(attention.all())
    keys = row_keys(seed, torch.arange(len(ids)))
    batch = Batch(torch.tensor(ids), keys, None if full else torch.tensor(attention))
    if not spec.data.pairs:
        return batch
    return replace(batch, segments=torch.tensor(segments), broken=torch.arange(len(ids)) % 3 == 0)


@dataclass
class Seen:
    """What went through the parts of an objective in one forward pass."""

    loss: StepLoss
    positions: np.ndarray
    weights: np.ndarray
    inputs: list[np.ndarray]  # of the generator, if there is one, then of the main model
    hidden: list[Tensor]
    samples: np.ndarray | None = None
    logits: list[Tensor] = field(default_factory=list)

    @property
    def main_input(self) -> np.ndarray:
        return self.inputs[-1]


def observe(objective: nn.Module, batch: Batch) -> Seen:
    """Run the objective, keeping picks, samples, inputs and hidden states (with their gradients)."""
    picks: list[tuple[Tensor, Tensor]] = []
    guesses: list[Guess] = []
    inputs: list[np.ndarray] = []
    hidden: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.retain_grad()
        inputs.append(args[0].numpy().copy())
        hidden.append(output)

    encoders = {id(m): m for m in objective.modules() if isinstance(m, Encoder)}.values()
    hooks = [encoder.register_forward_hook(keep) for encoder in encoders]
    with (
        spied(corruption, "pick_positions", picks),
        spied(corruption.WordStarts, "forward", picks),
        spied(generators.Generator, "guess_from", guesses),
    ):
        loss = objective(batch)
    for hook in hooks:
        hook.remove()
    assert len(picks) <= 1, "an objective picks positions once, or, as causal LM, never"
    none = torch.zeros(len(batch.ids), 0)
    positions, weights = picks[0] if picks else (none.long(), none)
    drawn = guesses[0].samples.numpy() if guesses else None
    return Seen(loss, positions.numpy(), weights.numpy(), inputs, hidden, drawn)


@contextmanager
def spied(owner: Any, name: str, results: list[Any]) -> Iterator[None]:
    """Results of a function of a module or class are kept while it does its work."""
    real = getattr(owner, name)

    def spy(*args: Any, **kwargs: Any) -> Any:
        results.append(real(*args, **kwargs))
        return results[-1]

    with mock.patch.object(owner, name, spy):
        yield


# Hugging Face's heads with our weights


def hf_masked_lm(encoder: Encoder, head: MlmHead) -> ElectraForMaskedLM:
    model = ElectraForMaskedLM(ElectraConfig(**encoder.model.config.facts())).eval()
    model.electra.load_state_dict(encoder.model.state_dict())
    model.generator_predictions.dense.load_state_dict(head.dense.state_dict())
    model.generator_predictions.LayerNorm.load_state_dict(head.norm.state_dict())
    model.generator_lm_head.load_state_dict({"weight": head.table.weight.detach(), "bias": head.bias.detach()})
    assert torch.equal(model.electra.embeddings.word_embeddings.weight, encoder.table.weight)
    return model


def hf_pre_training(encoder: Encoder, head: BinaryHead) -> ElectraForPreTraining:
    assert head.dense is not None
    model = ElectraForPreTraining(ElectraConfig(**encoder.model.config.facts())).eval()
    model.electra.load_state_dict(encoder.model.state_dict())
    model.discriminator_predictions.dense.load_state_dict(head.dense.state_dict())
    model.discriminator_predictions.dense_prediction.load_state_dict(head.out.state_dict())
    return model


def word_logits(encoder: Encoder, head: MlmHead, ids: np.ndarray, batch: Batch) -> np.ndarray:
    """(B, L, V) float64."""
    with torch.no_grad():
        output = hf_masked_lm(encoder, head).double()(torch.tensor(ids), batch.attention, batch.segments)
    return np.asarray(output.logits)


def binary_logits(encoder: Encoder, head: BinaryHead, ids: np.ndarray, batch: Batch) -> np.ndarray:
    """(B, L) float64; the linear head is w.h + b on the bare model's hidden states."""
    with torch.no_grad():
        if head.dense is not None:
            return np.asarray(
                hf_pre_training(encoder, head).double()(torch.tensor(ids), batch.attention, batch.segments).logits
            )
        model = copy.deepcopy(hugging_face(encoder.model)).eval().double()
        hidden = model(torch.tensor(ids), batch.attention, batch.segments).last_hidden_state.numpy()
    weight, bias = head.out.weight.detach().numpy()[0].astype(float), head.out.bias.item()
    return np.asarray(hidden @ weight + bias)


# The losses


def slow_nll(logits: np.ndarray, word: int) -> float:
    """-log softmax(logits)[word]."""
    top = logits.max()
    return float(top + math.log(np.exp(logits - top).sum()) - logits[word])


def slow_bce(logit: float, label: bool) -> float:
    """-log of the probability that a sigmoid gives to the label."""
    return math.log1p(math.exp(-logit if label else logit))


def counted(seen: Seen) -> Iterator[tuple[int, int]]:
    """(row, position) of every slot that counts; a position drawn twice comes twice."""
    for row in range(len(seen.positions)):
        for slot in range(seen.positions.shape[1]):
            if seen.weights[row, slot] > 0:
                yield row, int(seen.positions[row, slot])


def real_places(batch: Batch) -> Iterator[tuple[int, int]]:
    for row in range(batch.ids.shape[0]):
        for place in range(batch.ids.shape[1]):
            if batch.attention is None or batch.attention[row, place]:
                yield row, place


def slow_corrupted(batch: Batch, seen: Seen) -> np.ndarray:
    """The originals with each counted slot's sample written in; two samples on one position are averaged."""
    assert seen.samples is not None
    ids = batch.ids.numpy().copy()
    for row in range(len(ids)):
        written: dict[int, list[int]] = {}
        for slot, place in enumerate(seen.positions[row]):
            if seen.weights[row, slot] > 0:
                written.setdefault(int(place), []).append(int(seen.samples[row, slot]))
        for place, words in written.items():
            ids[row, place] = sum(words) // len(words)
    return ids


def slow_mlm(logits: np.ndarray, batch: Batch, seen: Seen) -> float:
    losses = [slow_nll(logits[row, place], int(batch.ids[row, place])) for row, place in counted(seen)]
    return sum(losses) / len(losses)


def slow_detection(logits: np.ndarray, batch: Batch, seen: Seen, places: list[tuple[int, int]]) -> float:
    """Fake is what was picked and is no longer the original."""
    picked = set(counted(seen))
    losses = []
    for row, place in places:
        fake = (row, place) in picked and int(seen.main_input[row, place]) != int(batch.ids[row, place])
        losses.append(slow_bce(float(logits[row, place]), fake))
    return sum(losses) / len(losses)


# What is reported beside the losses, as hits and among how many


def slow_accuracy(logits: np.ndarray, batch: Batch, places: list[tuple[int, int]]) -> tuple[int, int]:
    """At how many of the places the likeliest word is the original."""
    return sum(int(logits[at].argmax()) == int(batch.ids[at]) for at in places), len(places)


def slow_answers(name: str, logits: np.ndarray, labels: np.ndarray, places: list[tuple[int, int]]) -> dict[str, Any]:
    """How often the sign of a logit tells its label, and how often it says yes."""
    said = [(float(logits[at]) > 0, bool(labels[at])) for at in places]
    return {
        f"{name}_accuracy": (sum(yes == label for yes, label in said), len(said)),
        f"{name}_precision": (said.count((True, True)), sum(yes for yes, _ in said)),
        f"{name}_recall": (said.count((True, True)), sum(label for _, label in said)),
        f"{name}_positive_rate": (sum(yes for yes, _ in said), len(said)),
    }


def slow_replaced(batch: Batch, seen: Seen) -> tuple[int, int]:
    """How many tokens the main model sees that are not the original, and among how many."""
    real = list(real_places(batch))
    return sum(int(seen.main_input[at]) != int(batch.ids[at]) for at in real), len(real)


def counts_of(metrics: dict[str, Any], names: Iterable[str]) -> dict[str, tuple[float, float]]:
    return {name: (float(metrics[name][0]), float(metrics[name][1])) for name in names}


LENGTHS = (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)  # a row of two tokens has nothing to pick
ROWS = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])


def score(model: Any, ids: Tensor, attention: Tensor | None = None, way: str = "") -> Tensor:
    """Return the scores (B,) of ids (B, L) by one of the ways of an objective, its default unless one is named."""
    ways = model.scorers()
    scores: Tensor = ways[way or next(iter(ways))](Sentences(ids, attention, torch.zeros_like(ids)))
    return scores
