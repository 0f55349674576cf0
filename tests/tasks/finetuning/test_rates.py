"""Learning rates of fine-tuning against the paper's words, the released code's numbers and a plain Adam."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workbench.spec.parts import TasksSpec
from workbench.tasks.common.encoder_folders import Classifier
from workbench.tasks.common.fine_tuning import depth, layer_factor, layerwise_optimizer, optim_spec, schedule_spec
from workbench.training.optimizer import lr_factor, set_rate
from workbench.training.plan import warmup_steps


def test_the_released_codes_numbers() -> None:
    """For 12 layers and a decay of .8 the released code prints .044, .055, .64 and 1.0 (docs/electra.md 5)."""
    spec = TasksSpec(layer_decay=0.8, extra_decay=True)
    found = [layer_factor(place, 12, spec) for place in (0, 1, 12)]
    assert [round(x, 3) for x in found] == [0.044, 0.055, 0.64]


def test_the_papers_one_power_a_layer() -> None:
    spec = TasksSpec(layer_decay=0.8)
    assert layer_factor(12, 12, spec) == pytest.approx(0.8)  # the top layer, one below the head
    for place in range(12):
        assert layer_factor(place + 1, 12, spec) / layer_factor(place, 12, spec) == pytest.approx(1 / 0.8)
    assert layer_factor(0, 12, spec) == pytest.approx(0.8**13)


FAMILIES: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 8},
    "bert": {},
    "roberta": {},
    "albert": {"embedding_size": 8, "inner_group_num": 1},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "mpnet": {},
    "modernbert": {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_depth_of_every_weight_of_a_family(family: str) -> None:
    from transformers import AutoConfig, AutoModel

    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
             "intermediate_size": 32}  # fmt: skip
    config = AutoConfig.for_model(family, **sizes, **FAMILIES[family])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = AutoModel.from_config(config)
    found = {name: depth(name, 3) for name, _ in encoder.named_parameters()}
    tables = [name for name in found if "embedding" in name]
    assert tables and all(found[name] == 0 for name in tables)
    if family == "albert":  # its layers are all one
        assert set(found.values()) == {0, 3}
    else:
        assert set(found.values()) == {0, 1, 2, 3}
        for name, place in found.items():
            for layer in range(3):
                if f".{layer}." in name and "layer" in name:
                    assert place == layer + 1, name
    spec = TasksSpec(layer_decay=0.5, weight_decay=0.1)
    model = Classifier(encoder, 2, 0.0)
    groups = layerwise_optimizer(model, spec).param_groups
    grouped = {id(p): (g["ratio"], g["decay"]) for g in groups for p in g["params"]}
    assert len(grouped) == len(list(model.parameters())) == sum(len(g["params"]) for g in groups)
    for name, parameter in model.named_parameters():
        inside = name.startswith("encoder.")
        factor = 0.5 ** (4 - found[name.removeprefix("encoder.")]) if inside else 1.0
        plain = name.endswith("bias") or "norm" in name.lower().rsplit(".", 2)[-2]
        assert grouped[id(parameter)] == (pytest.approx(factor), 0.0 if plain else 0.1), name


def factors(spec: TasksSpec, steps: int) -> list[float]:
    schedule = schedule_spec(spec)
    return [lr_factor(step, steps, warmup_steps(schedule, steps), schedule) for step in range(steps)]


@given(st.integers(1, 400), st.floats(0, 0.9), st.booleans())
def test_schedule_rises_then_falls_to_nothing(steps: int, warmup: float, overlap: bool) -> None:
    spec = TasksSpec(warmup=warmup, overlap=overlap)
    rates = factors(spec, steps)
    assert all(0 <= rate <= 1 for rate in rates)
    peak = int(np.argmax(rates))
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    if not overlap:
        assert max(rates) == pytest.approx(1.0) and all(rate > 0 for rate in rates)
        assert peak == int(warmup * steps)
        assert rates[-1] == pytest.approx(1 / (steps - int(warmup * steps)))


def test_warm_up_is_a_tenth() -> None:
    rates = factors(TasksSpec(), 100)
    assert rates[10] == 1.0 and rates[0] == pytest.approx(1 / 11) and rates[55] == pytest.approx(0.5)
    both = factors(TasksSpec(overlap=True), 100)
    assert both[5] == pytest.approx(0.5 * 0.95) and both[10] == pytest.approx(0.9) and both[0] == 0.0


class Bare(nn.Module):
    """The least that has an encoder's parameters: a matrix and a bias at the embeddings, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder: Any = nn.Module()
        self.encoder.embeddings = nn.Linear(3, 4)
        self.encoder.config = type("Config", (), {"num_hidden_layers": 2})()
        self.head = nn.Linear(4, 2)


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adam_is_the_textbooks(bias_correction: bool, weight_decay: float) -> None:
    """Against moments written out in float64; small gradients make the place of epsilon visible."""
    torch.manual_seed(0)
    spec = TasksSpec(lr=0.1, layer_decay=0.5, weight_decay=weight_decay, bias_correction=bias_correction)
    model: Any = Bare()
    weights = {name: p.detach().numpy().astype(np.float64).copy() for name, p in model.named_parameters()}
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    optimizer = layerwise_optimizer(model, spec)
    random = np.random.default_rng(0)
    for step in range(1, 13):
        factor = factors(spec, 12)[step - 1]
        set_rate(optimizer, optim_spec(spec), 0.1 * factor, step)
        for name, parameter in model.named_parameters():
            gradient = random.normal(size=parameter.shape) * 1e-5
            parameter.grad = torch.tensor(gradient, dtype=torch.float32)
            m, v = moments[name]
            m[:] = 0.9 * m + 0.1 * gradient
            v[:] = 0.999 * v + 0.001 * gradient**2
            c1, c2 = (1 - 0.9**step, 1 - 0.999**step) if bias_correction else (1, 1)
            decay = weight_decay * weights[name] if name.endswith("weight") else 0
            rate = 0.1 * factor * (1.0 if name.startswith("head") else 0.5**3)
            weights[name] -= rate * ((m / c1) / (np.sqrt(v / c2) + 1e-6) + decay)
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert np.allclose(parameter.detach().numpy(), weights[name], rtol=2e-5, atol=2e-6), name


def test_norms_of_encoders_by_others_are_not_decayed_whatever_their_name() -> None:
    """GPT-2 calls them `ln_1`, `ln_2` and `ln_f`, which the released list of names does not have."""
    from transformers import GPT2Config, GPT2Model

    model = Classifier(GPT2Model(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2)), 2, 0.0)
    groups = layerwise_optimizer(model, TasksSpec(weight_decay=0.1)).param_groups
    decays = {id(p): g["decay"] for g in groups for p in g["params"]}
    found = {name: decays[id(p)] for name, p in model.named_parameters()}
    assert {name for name, decay in found.items() if not decay} == {
        name for name in found if ".ln_" in name or name.endswith("bias")
    }
    assert set(found.values()) == {0.0, 0.1}
