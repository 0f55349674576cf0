"""Multi-word selection, the corrected LM of COCO-LM and MC-BERT against slow loops over rows and positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    PAD,
    ROWS,
    Seen,
    binary_logits,
    build,
    counted,
    observe,
    real_places,
    score,
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

from workbench.encoders.electra import hugging_face
from workbench.errors import InputError
from workbench.models import generators
from workbench.tensors import Batch
from workbench.training.loop import plainly

SENTENCES = (24, 9, 17)  # lengths of the rows that are scored
SPECIALS = (0, 2, 3, 4)  # tokens that do not count in a score
EACH = pytest.mark.parametrize("name", ["multi-word-selection", "cocolm-clm", "mc-bert"])
SETTINGS = pytest.mark.parametrize(
    "keys", [{"recipe": "paper"}, {"recipe": "released"}, {"data.pairs": "next"}], ids=["paper", "released", "pairs"]
)


def observed(name: str, lengths: tuple[int, ...] | None, **keys: Any) -> tuple[Any, Batch, Seen, Any]:
    """The objective, a batch, what was seen of its forward pass, and the candidates that the generator drew."""
    spec = tiny(name, keys)
    objective, batch, drawn = shaken(spec), synthetic(spec, lengths=lengths), []
    with spied(generators.Generator, "candidates", drawn):
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


def agree(objective: Any, batch: Batch, seen: Seen, main: dict[str, float], total: float) -> None:
    """The parts of the loss are those of the generator and `main`; the whole is the generator's and `total`."""
    words = word_logits(objective.generator.body, objective.generator.head, seen.inputs[0], batch)
    parts = {"generator_loss": slow_mlm(words, batch, seen)} | main
    found = {name: part.item() for name, part in seen.loss.parts.items()}
    assert found == pytest.approx(parts, rel=1e-4)
    assert seen.loss.total.item() == pytest.approx(parts["generator_loss"] + total, rel=1e-4)


def counts(seen: Seen, name: str) -> list[int]:
    return [int(part) for part in seen.loss.metrics[name]]


@ROWS
@SETTINGS
def test_multi_word_selection(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, drawn = observed("multi-word-selection", lengths, **keys)
    logits = binary_logits(objective.encoder, objective.head, seen.main_input, batch)
    detection = slow_detection(logits, batch, seen, list(real_places(batch)))
    features, table = slow_selection(objective, objective.selection, seen.main_input, batch)
    losses, right = [], 0
    for row, slot in np.argwhere(seen.weights > 0):
        place = seen.positions[row, slot]
        words = drawn[row, slot].tolist()
        assert words[0] == int(batch.ids[row, place]) and len(set(words)) == len(words) == 5
        scores = np.array([features[row, place] @ table[word] for word in words])
        losses.append(slow_nll(scores, 0))
        right += bool(scores.argmax() == 0)
    main = {"discriminator_loss": detection, "selection_loss": np.mean(losses)}
    agree(objective, batch, seen, main, 5 * detection + 2 * np.mean(losses))
    assert counts(seen, "selection_accuracy") == [right, len(losses)]


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
    main = {"copy_loss": np.mean(copying), "mlm_loss": np.mean(losses)}
    agree(objective, batch, seen, main, 50 * np.mean(copying) + np.mean(losses))
    right = sum(int(words[at].argmax()) == int(batch.ids[at]) for at in counted(seen))
    assert counts(seen, "mlm_accuracy") == [right, len(losses)]


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
    agree(objective, batch, seen, {"selection_loss": np.mean(losses)}, 50 * np.mean(losses))
    assert counts(seen, "selection_accuracy") == [right, len(losses)]
    assert counts(seen, "neither_rate") == [chosen, len(losses)]


@EACH
def test_a_score_is_a_sum_over_the_tokens_of_a_sentence(name: str) -> None:
    """Of log P(original) by the detector, of the log of COCO-LM's mixture, or of log P(neither) in MC-BERT."""
    objective = shaken(tiny(name)).eval().requires_grad_(False)
    assert "generator-pll" in objective.scorers()
    batch = synthetic(objective.spec, rows=len(SENTENCES), lengths=SENTENCES)
    ids, each = batch.ids.numpy(), np.zeros(batch.ids.shape)
    if name == "mc-bert":
        features, table = slow_selection(objective, objective.head, ids, batch)
        table = np.concatenate([table, objective.head.neither.weight.detach().double().numpy()])
        each = np.array([[-slow_nll(place @ table.T, len(table) - 1) for place in row] for row in features])
    elif name == "cocolm-clm":
        gates = 1 / (1 + np.exp(-binary_logits(objective.encoder, objective.gate, ids, batch)))
        words = word_logits(objective.encoder, objective.head, ids, batch)
        for at in np.ndindex(ids.shape):
            each[at] = math.log(gates[at] + (1 - gates[at]) * math.exp(-slow_nll(words[at], int(ids[at]))))
    else:
        for at, logit in np.ndenumerate(binary_logits(objective.encoder, objective.head, ids, batch)):
            each[at] = -slow_bce(logit, False)
    found = score(objective, batch.ids, batch.attention)
    for row, length in enumerate(SENTENCES):
        want = sum(each[row, i] for i in range(length) if ids[row, i] not in SPECIALS)
        assert float(found[row]) == pytest.approx(want, rel=1e-4)


def test_the_lm_loss_of_cocolm_does_not_train_the_gate() -> None:
    objective = shaken(tiny("cocolm-clm"))
    parts = objective(synthetic(objective.spec)).values()
    grads = torch.autograd.grad(parts["mlm_loss"], list(objective.gate.parameters()), allow_unused=True)
    assert grads == (None, None)


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
def test_no_gradient_passes_from_the_main_loss_to_the_generator(name: str) -> None:
    objective = shaken(tiny(name, {"tying": "none"}))
    loss = objective(synthetic(objective.spec))
    (loss.total - loss.parts["generator_loss"]).backward()
    assert all(p.grad is None or not p.grad.any() for p in objective.generator.parameters())


@pytest.mark.parametrize("name", ["multi-word-selection", "mc-bert", "adversarial"])
@pytest.mark.parametrize("kind", ["ngram", "unigram", "uniform"])
def test_a_generator_without_weights_is_refused(name: str, kind: str) -> None:
    with pytest.raises(InputError, match=rf"{name} needs a generator with weights, and generator\.kind={kind} has no "):
        build(tiny(name, {"generator.kind": kind}))
