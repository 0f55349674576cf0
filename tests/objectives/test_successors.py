"""Multi-word selection, the corrected LM of COCO-LM and MC-BERT against slow loops over rows and positions."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from objective_oracle import (
    PAD,
    Seen,
    binary_logits,
    build,
    counted,
    observe,
    real_places,
    shaken,
    slow_bce,
    slow_corrupted,
    slow_detection,
    slow_mlm,
    slow_nll,
    spied,
    synthetic,
    tiny,
    word_logits,
)
from scipy import stats

from workbench.errors import InputError
from workbench.models import corruption, heads
from workbench.models.electra import hugging_face
from workbench.rng import uniform
from workbench.tensors import Batch, sample
from workbench.training.loop import plainly

LENGTHS = (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)
NAMES = ("multi-word-selection", "cocolm-clm", "mc-bert")
SELECTING = ("multi-word-selection", "mc-bert")
EACH = pytest.mark.parametrize("name", NAMES)
ROWS = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
SETTINGS = pytest.mark.parametrize(
    "keys", [{"recipe": "paper"}, {"recipe": "released"}, {"data.pairs": "next"}], ids=["paper", "released", "pairs"]
)


def observed(name: str, lengths: tuple[int, ...] | None, **keys: Any) -> tuple[Any, Batch, Seen, Any]:
    """The objective, a batch, what was seen of its forward pass, and the candidates that the generator drew."""
    spec = tiny(name, keys)
    objective, batch, drawn = shaken(spec), synthetic(spec, lengths=lengths), []
    with spied(corruption.Generator, "candidates", drawn):
        seen = observe(objective, batch)
    assert (slow_corrupted(batch, seen) == seen.main_input).all()
    return objective, batch, seen, drawn[0].numpy() if drawn else None


def slow_selection(objective: Any, head: Any, ids: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The features (B, L, E) of a selection head, and the table (V, E), in float64."""
    encoder = hugging_face(objective.encoder.model).eval().double()
    with torch.no_grad():
        hidden = encoder(torch.tensor(ids), batch.attention, batch.segments).last_hidden_state
        features = torch.nn.functional.gelu(hidden @ head.dense.weight.double().T + head.dense.bias.double())
        centred = features - features.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()
        features = scaled * head.norm.weight.double() + head.norm.bias.double()
    objective.encoder.model.float()
    return features.numpy(), objective.encoder.table.weight.detach().double().numpy()


def generators_loss(objective: Any, batch: Batch, seen: Seen) -> float:
    logits = word_logits(objective.generator.body, objective.generator.head, seen.inputs[0], batch)
    return slow_mlm(logits, batch, seen)


@ROWS
@SETTINGS
def test_multi_word_selection(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, drawn = observed("multi-word-selection", lengths, **keys)
    real = list(real_places(batch))
    detection = slow_detection(
        binary_logits(objective.encoder, objective.head, seen.main_input, batch), batch, seen, real
    )
    generated = generators_loss(objective, batch, seen)
    features, table = slow_selection(objective, objective.selection, seen.main_input, batch)
    losses, right = [], 0
    for row in range(len(batch.ids)):
        for slot in np.flatnonzero(seen.weights[row] > 0):
            place = seen.positions[row, slot]
            words = [int(batch.ids[row, place]), *drawn[row, slot].tolist()]
            assert len(set(words)) == len(words) == 5
            scores = np.array([features[row, place] @ table[word] for word in words])
            losses.append(slow_nll(scores, 0))
            right += bool(scores.argmax() == 0)
    parts = seen.loss.parts
    assert parts["generator_loss"].item() == pytest.approx(generated, rel=1e-5)
    assert parts["discriminator_loss"].item() == pytest.approx(detection, rel=1e-5)
    assert parts["selection_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    assert seen.loss.total.item() == pytest.approx(generated + 5 * detection + 2 * np.mean(losses), rel=1e-4)
    assert [int(part) for part in seen.loss.metrics["selection_accuracy"]] == [right, len(losses)]


@ROWS
@SETTINGS
def test_cocolm_clm(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, _ = observed("cocolm-clm", lengths, **keys)
    picked = set(counted(seen))
    gates = binary_logits(objective.encoder, objective.gate, seen.main_input, batch)
    words = word_logits(objective.encoder, objective.head, seen.main_input, batch)
    copying = []
    for at in real_places(batch):
        fake = at in picked and int(seen.main_input[at]) != int(batch.ids[at])
        copying.append(slow_bce(float(gates[at]), not fake))
    losses = [slow_nll(words[at], int(batch.ids[at])) / (1 + math.exp(gates[at])) for at in counted(seen)]
    parts = seen.loss.parts
    assert parts["copy_loss"].item() == pytest.approx(np.mean(copying), rel=1e-5)
    assert parts["mlm_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    generated = generators_loss(objective, batch, seen)
    assert seen.loss.total.item() == pytest.approx(generated + 50 * np.mean(copying) + np.mean(losses), rel=1e-4)
    right = sum(int(words[at].argmax()) == int(batch.ids[at]) for at in counted(seen))
    assert [int(part) for part in seen.loss.metrics["mlm_accuracy"]] == [right, len(losses)]


def test_the_lm_loss_of_cocolm_does_not_train_the_gate() -> None:
    objective = shaken(tiny("cocolm-clm"))
    parts = objective(synthetic(objective.spec)).parts
    grads = torch.autograd.grad(parts["mlm_loss"], list(objective.gate.parameters()), allow_unused=True)
    assert grads == (None, None)


@ROWS
@SETTINGS
def test_mc_bert(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, drawn = observed("mc-bert", lengths, **keys)
    features, table = slow_selection(objective, objective.head, seen.main_input, batch)
    neither = objective.head.neither.weight.detach().double().numpy()[0]
    losses, right, chosen = [], 0, 0
    for at in real_places(batch):
        words, fake = drawn[at].tolist(), int(seen.main_input[at]) != int(batch.ids[at])
        if fake:
            words[0] = int(batch.ids[at])
        scores = np.array([features[at] @ neither, *(features[at] @ table[word] for word in words)])
        losses.append(slow_nll(scores, int(fake)))
        right += bool(scores.argmax() == int(fake))
        chosen += bool(scores.argmax() == 0)
    assert drawn.shape == (12, 24, 9)
    generated = generators_loss(objective, batch, seen)
    assert seen.loss.parts["generator_loss"].item() == pytest.approx(generated, rel=1e-5)
    assert seen.loss.parts["selection_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    assert seen.loss.total.item() == pytest.approx(generated + 50 * np.mean(losses), rel=1e-4)
    assert [int(part) for part in seen.loss.metrics["selection_accuracy"]] == [right, len(losses)]
    assert [int(part) for part in seen.loss.metrics["neither_rate"]] == [chosen, len(losses)]


@EACH
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Along a random direction of the weights after the generator, whose samples stay the same, in float64."""
    spec = tiny(name, {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0, "tying": "none"})
    objective = plainly(shaken(spec, size=0.1)).double()
    batch = synthetic(spec, rows=4, lengths=(24, 9, 15, 24))
    weights = {n: p for n, p in objective.named_parameters() if not n.startswith("generator.")}
    numbers = torch.Generator().manual_seed(0)
    ways = {n: torch.randn(p.shape, generator=numbers, dtype=torch.float64) for n, p in weights.items()}
    ways["encoder.model.embeddings.word_embeddings.weight"][PAD] = 0  # padding, as an input, has no gradient
    if name == "cocolm-clm":  # the LM loss stops at the gate, on which it depends, and so does what lies below
        weights = {n: p for n, p in weights.items() if n.startswith("head.")}
    objective(batch).total.backward()
    expected = sum(float((p.grad * ways[n]).sum()) for n, p in weights.items())

    def moved(step: float) -> float:
        with torch.no_grad():
            for n, p in weights.items():
                p.add_(ways[n], alpha=step)
            found = float(objective(batch).total)
            for n, p in weights.items():
                p.sub_(ways[n], alpha=step)
        return found

    assert (moved(1e-3) - moved(-1e-3)) / 2e-3 == pytest.approx(expected, rel=5e-3)


@EACH
@pytest.mark.parametrize("tying", ["none", "embeddings", "gdes"])
def test_the_fast_way_agrees_with_the_plain_one(name: str, tying: str) -> None:
    spec = tiny(name, {"tying": tying})
    batch = synthetic(spec, lengths=(24, 9, 17, 5) * 3)
    fast, plain = shaken(spec, size=0.15), plainly(shaken(spec, size=0.15))
    one, other = fast(batch), plain(batch)
    torch.testing.assert_close(one.parts, other.parts, rtol=1e-5, atol=1e-6)
    one.total.backward()
    other.total.backward()
    whole = torch.stack([p.grad.norm() for p in plain.parameters()]).norm()
    for (key, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad - theirs.grad).norm() <= 1e-4 * theirs.grad.norm() + 1e-6 * whole, key


@EACH
def test_no_gradient_passes_from_the_main_loss_to_the_generator(name: str) -> None:
    objective = shaken(tiny(name, {"tying": "none"}))
    loss = objective(synthetic(objective.spec))
    (loss.total - loss.parts["generator_loss"]).backward()
    assert all(p.grad is None or not p.grad.any() for p in objective.generator.parameters())


@EACH
def test_scores(name: str) -> None:
    objective = shaken(tiny(name)).eval().requires_grad_(False)
    lengths, specials = (24, 9, 17), (0, 2, 3, 4)
    batch = synthetic(objective.spec, rows=3, lengths=lengths)
    ids, found = batch.ids.numpy(), objective.score(batch.ids, batch.attention)
    assert objective.scorers().keys() >= {"generator-pll"}
    if name == "multi-word-selection":
        logits = binary_logits(objective.encoder, objective.head, ids, batch)
        each = np.vectorize(lambda logit: -slow_bce(logit, False))(logits)
    elif name == "cocolm-clm":
        gates = 1 / (1 + np.exp(-binary_logits(objective.encoder, objective.gate, ids, batch)))
        words = word_logits(objective.encoder, objective.head, ids, batch)
        own = np.array(
            [[math.exp(-slow_nll(words[at], int(ids[at]))) for at in np.ndindex(row.shape)] for row in [ids]]
        )
        each = np.log(gates + (1 - gates) * own.reshape(ids.shape))
    else:
        features, table = slow_selection(objective, objective.head, ids, batch)
        table = np.concatenate([table, objective.head.neither.weight.detach().double().numpy()])
        each = np.array([[-slow_nll(place @ table.T, len(table) - 1) for place in row] for row in features])
    for row, length in enumerate(lengths):
        want = sum(each[row, i] for i in range(length) if ids[row, i] not in specials)
        assert float(found[row]) == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("kind", ["ngram", "unigram", "uniform"])
def test_a_generator_without_weights_is_refused(name: str, kind: str) -> None:
    with pytest.raises(InputError, match=rf"{name} needs a generator with weights, and generator\.kind={kind} has no "):
        build(tiny(name, {"generator.kind": kind}))


# ---- candidates ----


def test_every_candidate_has_a_gradient() -> None:
    """Also the token of padding, which has none where it is an input."""
    head = shaken(tiny("mc-bert")).head
    hidden = torch.randn(1, 1, 32, generator=torch.Generator().manual_seed(0))
    head(hidden, torch.tensor([[[PAD, 7]]])).pow(2).sum().backward()
    assert head.table.weight.grad[[PAD, 7]].any(1).all()


def test_candidates_follow_the_softmax_without_the_original() -> None:
    """Pairs of distinct samples against the probabilities of drawing one after the other, of 60,000 positions."""
    probs = torch.tensor([0.4, 0.3, 0.2, 0.1])
    draws = torch.rand(60_000, 2, generator=torch.Generator().manual_seed(0))
    found = heads._several(probs.expand(60_000, 4), draws, torch.full((60_000,), 1))
    share = {0: 0.4 / 0.7, 2: 0.2 / 0.7, 3: 0.1 / 0.7}
    pairs = [(a, b) for a in share for b in share if a != b]
    expected = [60_000 * share[a] * share[b] / (1 - share[a]) for a, b in pairs]
    observed = [int(((found[:, 0] == a) & (found[:, 1] == b)).sum()) for a, b in pairs]
    assert sum(observed) == 60_000
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    again = heads._several(probs.expand(60_000, 4), draws, None)  # with replacement
    counts = [int(((again[:, 0] == a) & (again[:, 1] == b)).sum()) for a in range(4) for b in range(4)]
    both = [60_000 * float(probs[a] * probs[b]) for a in range(4) for b in range(4)]
    assert stats.chisquare(counts, both, sum_check=False).pvalue > 1e-3


def test_a_certain_original_leaves_other_candidates() -> None:
    probs = torch.zeros(3, 70)
    probs[:, 6] = 1.0
    found = heads._several(probs, torch.tensor([[0.0, 0.5, 0.99, 0.2]] * 3), torch.full((3,), 6))
    assert all(len({6, *row}) == 5 for row in found.tolist())


@pytest.mark.parametrize("without", [False, True])
def test_logits_in_pieces_give_the_same_candidates(without: bool) -> None:
    spec = tiny("mc-bert", {"generator.temperature": 0.7})
    generator = shaken(spec).generator
    hidden = torch.randn(3, 5, generator.body.spec.hidden, generator=torch.Generator().manual_seed(0))
    originals = torch.arange(15).view(3, 5) if without else None
    keys = synthetic(spec, rows=3).keys
    whole = generator.candidates(hidden, keys, 4, originals)
    with mock.patch.object(heads, "CHUNK", 2 * spec.encoder.vocab):
        assert torch.equal(generator.candidates(hidden, keys, 4, originals), whole)
    part = generator.candidates(hidden[1:, :3], keys[1:], 4, None if originals is None else originals[1:, :3])
    assert torch.equal(part, whole[1:, :3])  # neither the other rows nor the number of positions matter
    if not without:
        likely = (generator.head(hidden) / 0.7).softmax(-1).flatten(0, 1)
        draws = uniform(keys, "candidates", 20).view(3, 5, 4)
        for column in range(4):
            assert torch.equal(sample(likely, draws[..., column].flatten()).view(3, 5), whole[..., column])
