"""The encoder layers for CPUs against Hugging Face's module with the same weights: outputs, gradients, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench import cpu
from workbench.cpu import compiled, layers, portable
from workbench.cpu.layers import Rates
from workbench.encoders.electra import hugging_face
from workbench.models.encoder import Encoder, build_encoder
from workbench.spec.presets import resolve

ROWS, LENGTH, WIDTH = 5, 32, 48


def encoder_of(**keys: Any) -> Encoder:
    tiny = {
        "encoder.hidden": WIDTH, "encoder.layers": 3, "encoder.heads": 3, "encoder.embedding": 24,
        "encoder.vocab": 60, "encoder.positions": 40, "data.length": 32,
    }  # fmt: skip
    encoder = build_encoder(resolve("nano", tiny | {f"encoder.{key}": value for key, value in keys.items()}))
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(torch.randn(weight.shape, generator=numbers) * 0.1)
    return encoder


def inputs(padded: bool) -> tuple[Tensor, Tensor | None]:
    numbers = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 60, (ROWS, LENGTH), generator=numbers)  # 0 is padding, whose embedding is not trained
    lengths = torch.tensor([[32], [3], [18], [1], [31]])
    return ids, torch.arange(LENGTH) < lengths if padded else None


def run(
    encoder: Encoder, ids: Tensor, attention: Tensor | None, half: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the hidden states, 0 at padding, and the gradient of a randomly weighted sum of them for every weight."""
    encoder.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        hidden = encoder(ids, attention).float()
    if attention is not None:
        hidden = hidden * attention[..., None]
    (hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return hidden.detach(), {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}


@pytest.fixture(params=["compiled", "portable"])
def ops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with compiled kernels, if there is a compiler, and with portable ones."""
    if request.param == "portable":
        monkeypatch.setattr(cpu, "kernels_for", lambda x: portable)
    elif not compiled.available(torch.float32):
        pytest.skip("no C compiler on this machine, or not Linux")


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-6))


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize(
    ("family", "embedding"),
    [("electra", 24), ("electra", WIDTH), ("bert", None), ("roberta", None), ("albert", 24), ("albert", WIDTH)],
)
def test_outputs_and_gradients_agree_with_hugging_face(
    family: str, embedding: int | None, causal: bool, padded: bool
) -> None:
    if causal and family == "albert":
        pytest.skip("ALBERT has no causal mask")
    encoder = encoder_of(family=family, embedding=embedding, causal=causal)
    assert layers.can(encoder.model, inputs(padded)[0])
    hidden, gradients = run(encoder, *inputs(padded))
    encoder.plain = True
    expected, theirs = run(encoder, *inputs(padded))
    assert hidden.std() > 0.1
    torch.testing.assert_close(hidden, expected, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        # The gradient of the bias of keys is 0 except for rounding.
        assert distance(gradient, theirs[name]) < 1e-5 or "key.bias" in name, name


@pytest.mark.parametrize("family", ["electra", "bert", "roberta", "albert"])
def test_every_state_and_states_at_one_position_agree_with_hugging_face(family: str) -> None:
    encoder = encoder_of(family=family, embedding=24 if family in ("electra", "albert") else None).eval()
    ids, _ = inputs(False)
    places = torch.tensor([3, 0, 31, 7, 12])
    model = hugging_face(encoder.model) if family == "electra" else encoder.model
    with torch.no_grad():
        expected = model.eval()(input_ids=ids, output_hidden_states=True)
        states, at = layers.every_state(encoder.model, ids), encoder.states_at(ids, None, places)
    for found, theirs in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(at, expected.last_hidden_state[torch.arange(ROWS), places], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("tiles", [False, True])
def test_bf16_is_as_near_as_autocast_is(tiles: bool, padded: bool) -> None:
    """This holds for a size that the kernels with matrix products cannot compute, and for one that they can."""
    encoder = encoder_of(**({"hidden": 64, "heads": 2, "embedding": 32} if tiles else {}))
    if tiles and cpu.kernels_for(torch.zeros(1)) is compiled and compiled.products(torch.bfloat16):
        assert cpu.tiled(torch.zeros(1, dtype=torch.bfloat16), ROWS * LENGTH, LENGTH, 64 // 2)
    encoder.plain = True
    exact, gradients = run(encoder, *inputs(padded))
    rough, rough_gradients = run(encoder, *inputs(padded), half=True)
    encoder.plain = False
    hidden, found = run(encoder, *inputs(padded), half=True)
    assert distance(hidden, exact) < 2 * distance(rough, exact) < 0.05
    dense = [name for name in found if name.endswith("weight") and "LayerNorm" not in name]
    ours, theirs = (np.mean([distance(g[n], gradients[n]) for n in dense]) for g in (found, rough_gradients))
    assert ours < 2 * theirs < 0.1


@pytest.mark.parametrize(("sequences", "length", "half"), [(4, 32, True), (5, 32, True), (4, 24, True), (4, 32, False)])
def test_one_kernel_computes_all_layers_where_threads_have_as_many_sequences(
    sequences: int, length: int, half: bool
) -> None:
    """Five sequences on two threads would take as long as six, and so are divided by rows, layer by layer."""
    if not (compiled.available(torch.bfloat16) and compiled.products(torch.bfloat16)):
        pytest.skip("this CPU has no products in bf16, or there is no C compiler")
    encoder = encoder_of(hidden=64, heads=2, embedding=32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            hidden = layers.hidden_states(encoder.model, torch.ones(sequences, length, dtype=torch.int64))
    finally:
        torch.set_num_threads(threads)
    node: Any = hidden.grad_fn
    together = (sequences, length, half) == (4, 32, True)
    assert node.name() == ("LayersTogetherBackward" if together else "LayersBackward")


@pytest.mark.usefixtures("ops")
def test_segments_are_added() -> None:
    encoder = encoder_of().eval()
    ids, _ = inputs(False)
    segments = (torch.arange(LENGTH) > 6).long().expand(ROWS, -1)
    with torch.no_grad():
        expected = hugging_face(encoder.model).eval()(input_ids=ids, token_type_ids=segments).last_hidden_state
        found = layers.hidden_states(encoder.model, ids, None, segments)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("family", ["electra", "albert"])  # which has no dropout after its feed-forward layers
def test_dropout_follows_torchs_seed_and_keeps_the_mean(family: str) -> None:
    """Hidden states have the mean and variance of torch's dropout; a seed fixes the mask; evaluation has no dropout."""
    encoder = encoder_of(family=family, dropout=0.2, attention_dropout=0.2, layers=1)
    ids, _ = inputs(False)

    def hidden(seed: int) -> Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            return encoder(ids)

    encoder.train()
    assert torch.equal(hidden(0), hidden(0)) and not torch.equal(hidden(0), hidden(1))
    ours = torch.stack([hidden(seed) for seed in range(250)])
    encoder.plain = True
    theirs = torch.stack([hidden(seed) for seed in range(250)])
    error = ((ours.var(0) + theirs.var(0)) / 250).sqrt()
    z = ((ours.mean(0) - theirs.mean(0)) / error).flatten()
    assert z.abs().max() < 5.5 and z.square().mean() == pytest.approx(1, abs=0.25)
    assert distance(ours.var(0), theirs.var(0)) < 0.2
    encoder.plain = False
    encoder.eval()
    assert torch.equal(hidden(0), hidden(1))


def test_gradients_under_dropout_agree_with_finite_differences() -> None:
    """Gradients under dropout agree with finite differences in a random direction, for every weight."""
    encoder = encoder_of(dropout=0.3, attention_dropout=0.3, layers=2).double().train()
    ids, attention = inputs(True)
    ids = ids.clamp(min=1)  # the embedding of padding has no gradient
    aim = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def loss() -> Tensor:
        torch.manual_seed(7)
        return (encoder(ids, attention) * aim).sum()

    weights = [p for n, p in encoder.named_parameters()]
    gradients = torch.autograd.grad(loss(), weights, allow_unused=True)
    numbers = torch.Generator().manual_seed(4)
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is None:
            continue
        direction = torch.randn(weight.shape, generator=numbers, dtype=torch.float64)
        with torch.no_grad():
            weight += 1e-6 * direction
            up = loss()
            weight -= 2e-6 * direction
            down = loss()
            weight += 1e-6 * direction
        assert float(up - down) / 2e-6 == pytest.approx(float((gradient * direction).sum()), rel=1e-3, abs=1e-4)


def test_rates_are_of_the_places_that_have_dropout_and_none_in_evaluation() -> None:
    rates = {"dropout": 0.2, "attention_dropout": 0.3}
    bert = encoder_of(family="bert", embedding=None, **rates).model
    albert = encoder_of(family="albert", **rates).model
    assert layers.rates_of(bert.train()) == Rates(0.2, 0.3, 0.2, 0.2)
    assert layers.rates_of(albert.train()) == Rates(0.2, 0.3, 0.2, 0.0) and layers.rates_of(albert.eval()) == Rates()


def test_groups_of_layers_share_their_weights_as_in_hugging_face() -> None:
    """An ALBERT may have several groups of several layers; published ones have one group of one layer."""
    from transformers import AlbertConfig, AlbertModel

    sizes = {"vocab_size": 60, "embedding_size": 24, "hidden_size": WIDTH, "num_attention_heads": 3}
    torch.manual_seed(0)
    model = AlbertModel(AlbertConfig(
        **sizes, intermediate_size=64, num_hidden_layers=5, num_hidden_groups=2, inner_group_num=2, hidden_act="gelu",
        initializer_range=0.3,
    )).eval()  # fmt: skip
    ids, attention = inputs(True)
    assert attention is not None
    assert len(layers.layers_of(model)) == 10
    with torch.no_grad():
        expected = model(ids, attention.long()).last_hidden_state
        found = layers.hidden_states(model, ids, attention)
    torch.testing.assert_close(found[attention], expected[attention], rtol=1e-5, atol=1e-5)


def test_encoders_of_another_design_or_activation_are_left_to_their_module() -> None:
    ids, encoder = inputs(False)[0], encoder_of(family="albert")
    encoder.model.config.hidden_act = "gelu_new"
    assert not layers.can(encoder.model, ids)
    decoder = encoder_of(family="bert", embedding=None, causal=True)
    assert layers.can(decoder.model, ids)
    decoder.model.config.add_cross_attention = True
    assert not layers.can(decoder.model, ids)
    for family in ("deberta-v2", "modernbert", "gpt2", "xlnet"):
        assert not layers.can(encoder_of(family=family, embedding=None).model, ids)
