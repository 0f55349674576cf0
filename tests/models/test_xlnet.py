"""XLNet's encoder against Hugging Face's module, into which the same weights go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from objective_oracle import build, shaken, synthetic, tiny
from transformers import AutoModel, XLNetModel

from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.tasks.common.encoder_folders import Classifier, is_causal, load_encoder, reads_last

XLNET: dict[str, Any] = {"encoder.family": "xlnet", "encoder.embedding": 32}
STILL = {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0}
LENGTHS = (24, 24, 17, 9, 3, 24)


@pytest.mark.parametrize("pairs", [None, "next"])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_states_and_gradients_are_those_of_hugging_face(lengths: tuple[int, ...] | None, pairs: str | None) -> None:
    spec = tiny("bert-mlm", XLNET | STILL | {"data.pairs": pairs})
    batch = synthetic(spec, rows=6, lengths=lengths)
    real = torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention is None else batch.attention
    results = []
    for plain in (False, True):
        encoder = shaken(spec).encoder
        encoder.plain = plain
        hidden = encoder(batch.ids, batch.attention, batch.segments)
        (hidden * real[..., None] * torch.linspace(-1, 2, 32)).sum().backward()
        trained = {name: p.grad for name, p in encoder.named_parameters() if p.requires_grad}
        assert pairs is None or all(grad.any() for name, grad in trained.items() if name.endswith("seg_embed"))
        assert any(name.endswith("seg_embed") for name in trained) is (pairs is not None)
        results.append((hidden[real], trained))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-4)
    for name, grad in results[0][1].items():
        torch.testing.assert_close(grad, results[1][1][name], rtol=1e-3, atol=1e-3, msg=name)


def test_initial_weights_and_settings() -> None:
    keys = {"encoder.hidden": 64, "encoder.embedding": 64, "encoder.vocab": 4000, "encoder.ffn": 100}
    encoder = build_encoder(tiny("bert-mlm", XLNET | keys | {"encoder.init": 0.02}))
    config = encoder.model.config
    assert isinstance(encoder.model, XLNetModel)
    assert (config.d_model, config.n_layer, config.n_head, config.d_inner, config.ff_activation) == (
        64,
        2,
        2,
        100,
        "gelu",
    )
    special = encoder.special
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (special.pad, special.cls, special.sep)
    assert (config.attn_type, config.ff_activation) == ("bi", "gelu") and not config.use_mems_eval
    for name, weight in encoder.model.named_parameters():
        if "layer_norm" in name or name.endswith(("layer_1.bias", "layer_2.bias")):
            assert bool((weight == float(name.endswith("layer_norm.weight"))).all()), name
        else:
            assert weight.std().item() == pytest.approx(0.02, rel=0.3), name


def test_weights_that_rows_of_one_segment_do_not_train_are_frozen() -> None:
    """Whatever the objective; the first vector of the query stream is trained where there is such a stream."""
    for name, idle in (
        ("bert-mlm", {"r_s_bias", "seg_embed", "mask_emb"}),
        ("permutation-lm", {"r_s_bias", "seg_embed"}),
    ):
        spec = tiny(name, XLNET)
        objective = shaken(spec)
        objective(synthetic(spec, rows=6)).total.backward()
        frozen = {key.rpartition(".")[2] for key, p in objective.named_parameters() if not p.requires_grad}
        assert frozen == idle
        left = [
            key for key, p in objective.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
        ]
        assert left == []


@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "gdes"])
def test_it_may_be_encoder_and_generator_of_other_objectives(tying: str) -> None:
    spec = tiny("rtd", XLNET | {"tying": tying, "generator.width": 1.0})
    objective = build(spec)
    objective(synthetic(spec, rows=6)).total.backward()
    shared = objective.generator.body.table.weight is objective.encoder.table.weight
    assert shared == (tying in ("tokens", "embeddings"))


def test_one_rate_of_dropout() -> None:
    with pytest.raises(
        InputError, match=r"encoder.attention_dropout=0.1 must equal encoder.dropout=0.2 for encoder.fa"
    ):
        build_encoder(tiny("bert-mlm", XLNET | {"encoder.dropout": 0.2, "encoder.attention_dropout": 0.1}))


def test_an_exported_encoder_loads_whole_and_is_read_at_its_last_token(tmp_path: Path) -> None:
    """It is bidirectional, as nothing masks it: the first token sees the last ones. The family decides the place."""
    spec = tiny("permutation-lm", XLNET | STILL)
    encoder, batch = shaken(spec).eval().encoder, synthetic(spec, rows=6, lengths=LENGTHS)
    encoder.save(tmp_path)
    foreign, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and isinstance(foreign, XLNetModel)
    ours: Any = load_encoder(tmp_path, 0.0).eval()
    assert reads_last(ours.config) and not is_causal(ours.config)
    real = batch.attention
    assert real is not None
    with torch.no_grad():
        want = foreign.eval()(batch.ids, attention_mask=real.long()).last_hidden_state
        for found in (ours(batch.ids, attention_mask=real.long()).last_hidden_state, encoder(batch.ids, real)):
            torch.testing.assert_close(found[real], want[real], rtol=1e-4, atol=1e-4)
        torch.manual_seed(0)
        model = Classifier(ours, 2, 0.0).eval()
        ends = torch.tensor(LENGTHS) - 1
        last = want[torch.arange(6), ends]
        given = {"input_ids": batch.ids, "attention_mask": real.long()}
        torch.testing.assert_close(model(given), model.head(last), rtol=1e-4, atol=1e-4)
        other = batch.ids.clone()
        other[torch.arange(6), ends - 1] = 20
        after = encoder(other, real)
    assert (after[:, 0] - want[:, 0]).abs().amax(-1).min() > 1e-3
