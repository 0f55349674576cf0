"""Our ELECTRA encoder against Hugging Face's: outputs, gradients, files, and folders that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, ElectraConfig, ElectraForPreTraining, ElectraModel

from workbench.encoders import electra
from workbench.encoders.electra import Electra, hugging_face
from workbench.models.encoder import Encoder, build_encoder
from workbench.spec.presets import resolve


def encoder_of(**keys: Any) -> Encoder:
    tiny = {"encoder.hidden": 48, "encoder.layers": 3, "encoder.heads": 3, "encoder.vocab": 120,
            "encoder.positions": 40, "data.length": 20}  # fmt: skip
    found = build_encoder(resolve("nano", tiny | {key.replace("__", "."): value for key, value in keys.items()}))
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=numbers) * 0.2)
    return found


def inputs(padded: bool) -> dict[str, Tensor]:
    ids = torch.randint(5, 120, (4, 20), generator=torch.Generator().manual_seed(1))
    if not padded:
        return {"input_ids": ids}
    attention = torch.arange(20) < torch.tensor([[20], [3], [11], [19]])
    segments = (torch.arange(20) > 6).long().expand(4, -1)
    return {"input_ids": ids * attention, "attention_mask": attention, "token_type_ids": segments}


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("embedding", "attention"), [(48, "sdpa"), (48, "eager"), (16, "sdpa"), (16, "eager"), (64, "sdpa")]
)
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "as on a GPU"])
def test_hidden_states_and_gradients_agree_with_hugging_face(
    embedding: int, attention: str, padded: bool, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electra, "_on_gpu", lambda _: on_gpu)  # where query, key and value are one product
    ours = encoder_of(encoder__embedding=embedding, encoder__attention=attention).model.double().eval()
    config = ElectraConfig(**ours.config.facts())
    theirs = ElectraModel._from_config(config, attn_implementation=attention).double().eval()
    theirs.load_state_dict(ours.state_dict())
    given = inputs(padded)
    kept = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
    found, expected = ours(**given).last_hidden_state, theirs(**given).last_hidden_state
    torch.testing.assert_close(found[kept], expected[kept], rtol=1e-6, atol=1e-6)
    found[kept].square().sum().backward()
    expected[kept].square().sum().backward()
    wanted = dict(theirs.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == list(wanted)
    for name, parameter in ours.named_parameters():
        exact = {"rtol": 1e-5, "atol": 1e-6} if attention == "sdpa" else {"rtol": 1e-4, "atol": 1e-4}  # fp32 softmax
        torch.testing.assert_close(
            parameter.grad, wanted[name].grad, **exact, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_narrow_states_between_layers_are_as_near_as_autocast_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, given = encoder_of(), inputs(padded=True)
    with torch.no_grad():
        exact, results = ours.model.eval()(**given).last_hidden_state, {}
        for on_gpu in (False, True):
            monkeypatch.setattr(electra, "_on_gpu", lambda _, on_gpu=on_gpu: on_gpu)
            with torch.autocast("cpu", torch.bfloat16):
                results[on_gpu] = ours.model(**given).last_hidden_state
    assert (results[False].dtype, results[True].dtype) == (torch.float32, torch.bfloat16)
    kept = given["attention_mask"]
    wide, narrow = ((each.float() - exact)[kept].norm() for each in results.values())
    assert 0 < narrow < 1.5 * wide


@pytest.mark.gpu
def test_one_product_equals_three_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, given, results = encoder_of().model.cuda().double(), inputs(padded=False), []
    for on_gpu in (True, False):
        monkeypatch.setattr(electra, "_on_gpu", lambda _, on_gpu=on_gpu: on_gpu)
        states = ours(given["input_ids"].cuda()).last_hidden_state
        results.append([states, *torch.autograd.grad(states.square().sum(), list(ours.parameters()))])
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-8)


def test_dropout_agrees_with_hugging_face() -> None:
    """Both drop numbers at the same places of the network, at the same rates and in the same order of draws."""
    ours = encoder_of(encoder__dropout=0.3, encoder__attention_dropout=0.2, encoder__attention="eager").model.train()
    theirs = hugging_face(ours).train()
    hidden = []
    for model in (ours, theirs):
        torch.manual_seed(7)
        hidden.append(model(**inputs(False)).last_hidden_state)
    torch.testing.assert_close(*hidden, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(hidden[0], ours.eval()(**inputs(False)).last_hidden_state, atol=0.1)


def test_hugging_faces_module_shares_our_weights() -> None:
    encoder = encoder_of()
    twin = hugging_face(encoder.model)
    assert {id(p) for p in twin.parameters()} == {id(p) for p in encoder.model.parameters()}
    names = [name for name, _ in encoder.named_parameters()]
    encoder.plain = True
    encoder(inputs(False)["input_ids"]).sum().backward()
    assert [name for name, _ in encoder.named_parameters()] == names  # theirs is neither trained nor saved
    assert all(p.grad is not None for p in encoder.parameters())


@pytest.mark.parametrize("embedding", [48, 16])
def test_files_have_hugging_faces_layout(embedding: int, tmp_path: Path) -> None:
    encoder = encoder_of(encoder__embedding=embedding).eval()
    encoder.save(tmp_path)
    theirs, told = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(theirs, ElectraModel) and not told["missing_keys"] and not told["unexpected_keys"]
    assert theirs.config.num_attention_heads == 3 and theirs.config.layer_norm_eps == 1e-12
    again = electra.from_hub(tmp_path, 0.0)
    assert again is not None
    given = inputs(True)
    kept = given["attention_mask"]
    with torch.no_grad():
        hidden = [model.eval()(**given).last_hidden_state[kept] for model in (encoder.model, theirs, again)]
    torch.testing.assert_close(hidden[0], hidden[1], rtol=1e-5, atol=1e-5)
    assert torch.equal(hidden[0], hidden[2])


def test_a_published_model_is_loaded_with_its_head_left_out(tmp_path: Path) -> None:
    sizes = {"vocab_size": 90, "hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 2}
    theirs = ElectraForPreTraining(ElectraConfig(**sizes, num_attention_heads=2, intermediate_size=64)).eval()
    theirs.save_pretrained(tmp_path)
    ours = electra.from_hub(tmp_path, 0.3)
    assert isinstance(ours, Electra) and ours.config.hidden_dropout_prob == 0.3
    ids = torch.randint(0, 90, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(
            ours.eval()(ids).last_hidden_state, theirs.electra(ids).last_hidden_state, rtol=1e-4, atol=1e-5
        )


OTHERS: list[dict[str, Any]] = [
    {"hidden_act": "relu"}, {"add_cross_attention": True}, {"model_type": "bert"}, {"hidden_size": 64},
    {"hidden_size": "x"}, {"position_embedding_type": "relative_key"},
]  # fmt: skip


@pytest.mark.parametrize("change", OTHERS)
def test_other_models_are_left_to_hugging_face(change: dict[str, Any], tmp_path: Path) -> None:
    encoder_of().save(tmp_path)
    assert electra.from_hub(tmp_path, 0.0) is not None
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert electra.from_hub(tmp_path, 0.0) is None


def test_a_missing_weight_is_not_initialised_anew(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    encoder_of().save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert electra.from_hub(tmp_path, 0.0) is None
