"""An encoder with one layer above it: what is loaded, which token is read, and where dropout is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from causal_folders import KINDS

from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import EncoderFacts, Model, take
from workbench.tasks.common.encoder_folders import Classifier, encoder_facts, load_encoder, pooled
from workbench.tasks.common.examples import Task

SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)

CPU = Host(device="cpu")


def test_head_is_one_glorot_layer(encoder: Path) -> None:
    torch.manual_seed(0)
    backbone = load_encoder(encoder, 0.1)
    model = Classifier(backbone, 4, 0.1)
    head = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in backbone.parameters())
    assert head == 32 * 4 + 4
    bound = (6 / (32 + 4)) ** 0.5
    assert 0.8 * bound < model.head.weight.abs().max() <= bound and not model.head.bias.any()


def test_dropout_is_the_tasks_own_everywhere(electra: Callable[..., Path]) -> None:
    folder = electra(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    rates = {rate for m in load_encoder(folder, 0.25).modules() for rate in getattr(m, "rates", ())}
    assert rates == {0.25}
    path = folder / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"hidden_act": "relu"})
    )  # which is Hugging Face's to load
    assert {m.p for m in load_encoder(folder, 0.25).modules() if isinstance(m, torch.nn.Dropout)} == {0.25}


def test_folders_that_hold_no_encoder(electra: Callable[..., Path], keyword: Task, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no encoder: it has no config\.json"):
        take(keyword, Model(tmp_path, SPEC, 0), CPU)
    bare = electra()
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (bare / file).unlink(missing_ok=True)
    with pytest.raises(InputError, match="holds no tokenizer"):
        take(keyword, Model(bare, SPEC, 0), CPU)
    with pytest.raises(InputError, match="cuda"):
        take(keyword, Model(electra(), SPEC, 0), Host(device="cuda" if not torch.cuda.is_available() else "cuda:x"))


@pytest.mark.parametrize("padded", [False, True])
def test_the_classifier_computes_what_hugging_face_s_model_does(encoder: Path, padded: bool) -> None:
    """With segments and padding, which pre-training's full rows never have: outputs and gradients."""
    model = Classifier(load_encoder(encoder, 0.0), 3, 0.0)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, model.encoder.config.vocab_size, (4, 12), generator=generator)
    inputs = {"input_ids": ids, "token_type_ids": (torch.arange(12) > 6).long().expand(4, -1)}
    if padded:
        inputs["attention_mask"] = (torch.arange(12) < torch.tensor([12, 9, 5, 3])[:, None]).long()
    wanted = torch.randn(4, 3, generator=generator)

    def gradients(outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        model.zero_grad()
        (outputs * wanted).sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    ours = model(inputs)
    plain = model.head(model.encoder(**inputs).last_hidden_state[:, 0])
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    found, expected = gradients(ours), gradients(plain)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


LAST = [kind for kind in KINDS if kind != "bert"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_token_is_seen_and_padding_on_either_side_is_not(kind: str, make: Callable[[str], Path]) -> None:
    model = Classifier(load_encoder(make(kind), 0.0), 2, 0.0).eval()
    assert model.reads_last == (kind in LAST)
    words = torch.tensor([[7, 8, 9, 10, 11]])
    other = torch.tensor([[7, 8, 9, 10, 12]])
    with torch.no_grad():
        plain, changed = model({"input_ids": words}), model({"input_ids": other})
        assert (plain - changed).abs().max() > 1e-4
        for garbage in (0, 20):
            pad = torch.full((1, 3), garbage)
            mask = torch.tensor([[1] * 5 + [0] * 3])
            right = {"input_ids": torch.cat([words, pad], 1), "attention_mask": mask}
            torch.testing.assert_close(model(right), plain, rtol=1e-4, atol=1e-5)
        if kind == "xlnet":  # whose positions are relative, so that rows may begin anywhere
            left = {"input_ids": torch.cat([pad, words], 1), "attention_mask": mask.flip(1)}
            torch.testing.assert_close(model(left), plain, rtol=1e-4, atol=1e-5)


def test_pooling_takes_the_first_or_last_real_token() -> None:
    hidden = torch.arange(8.0).view(2, 4, 1)
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]])
    assert pooled(hidden, None, True).flatten().tolist() == [3, 7]
    assert pooled(hidden, None, False).flatten().tolist() == [0, 4]
    assert pooled(hidden, mask, True).flatten().tolist() == [2, 7]
    assert pooled(hidden, mask, False).flatten().tolist() == [0, 6]


def test_facts_come_from_the_folder(electra: Callable[..., Path]) -> None:
    folder = electra(num_hidden_layers=3)
    assert encoder_facts(folder) == EncoderFacts(3, 32, 48, False)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"model_max_length": 20}))
    assert encoder_facts(folder).longest == 20
    path.write_text(json.dumps(settings | {"model_max_length": 1e30}))  # as transformers writes that there is no limit
    assert encoder_facts(folder).longest == 48


@pytest.mark.parametrize(("kind", "pad", "longest"), [("roberta", 1, 46), ("camembert", 1, 46), ("roberta", 0, 46),
                                                      ("bert", 0, 48)])  # fmt: skip
def test_positions_that_a_family_keeps_are_not_counted(
    electra: Callable[..., Path], kind: str, pad: int, longest: int
) -> None:
    folder = electra()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": kind, "pad_token_id": pad}))
    assert encoder_facts(folder).longest == longest
