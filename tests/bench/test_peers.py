"""The comparison with other trainers is fair: the same weights give the same loss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


def test_both_sides_compute_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_models
    import peers

    values = peers.same_loss("T")
    assert values["ours_generator"] == pytest.approx(values["hf_generator"], rel=1e-5)
    assert values["ours_discriminator"] == pytest.approx(values["hf_discriminator"], rel=1e-5)

    monkeypatch.setattr(peer_models.Pair, "take", lambda self, ours: None)
    with pytest.raises(SystemExit, match="losses differ"):
        peers.same_loss("T")


def test_both_sides_compute_the_same_causal_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_models
    import peers

    values = peers.same_causal_loss("T")
    assert values["ours_causal"] == pytest.approx(values["hf_causal"], rel=1e-5)
    ours, theirs = peers.spec_of("T", "ours-causal-lm"), peer_models.gpt2(peers.spec_of("T", "gpt2-hf")).config
    sizes = (ours.encoder.hidden, ours.encoder.layers, ours.encoder.ffn_width, ours.encoder.vocab)
    assert (theirs.n_embd, theirs.n_layer, theirs.n_inner, theirs.vocab_size) == sizes
    assert ours.encoder.embedding_width == theirs.n_embd and ours.batch == peers.spec_of("T", "gpt2-hf").batch

    own = peer_models.gpt2
    monkeypatch.setattr(peer_models, "gpt2", lambda spec: own(spec.changed({"encoder.heads": 4})))
    with pytest.raises(SystemExit, match="causal losses differ"):
        peers.same_causal_loss("T")


def test_both_sides_compute_the_same_permutation_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_models
    import peers

    values = peers.same_permutation_loss("T")
    assert values["ours_permutation"] == pytest.approx(values["hf_permutation"], rel=1e-5)
    ours, theirs = peers.spec_of("T", "ours-permutation-lm"), peer_models.xlnet(peers.spec_of("T", "xlnet-hf")).config
    sizes = (ours.encoder.hidden, ours.encoder.layers, ours.encoder.ffn_width, ours.encoder.vocab)
    assert (theirs.d_model, theirs.n_layer, theirs.d_inner, theirs.vocab_size) == sizes

    monkeypatch.setattr(peer_models, "visible_in_order", lambda batch, *_: batch.ids[..., None].expand(-1, -1, 64) > 0)
    with pytest.raises(SystemExit, match="permutation losses differ"):
        peers.same_permutation_loss("T")


@pytest.mark.slow
def test_measurements_of_a_gpu_are_rehearsed_on_a_cpu(tmp_path: Path) -> None:
    """By the script of `make gpu-check`, with tiny models: every row has a speed."""
    words = [BENCHMARKS / "gpu.py", tmp_path / "gpu.json", "--device", "cpu", "--tiny", "--threads", "1"]
    words += ["--repeats", "1", "--seconds", "900", "--turn", "0.3", "--part", "small"]  # only a busy machine takes 900
    words += ["--only", "hf bf16", "--only", "rtd", "--only", "bert-mlm"]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False, timeout=1000)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    speeds = {(row["part"], row["contender"]): row.get("tokens_per_second") for row in found["rows"]}
    assert {("small", "hf bf16"), ("small", "rtd"), ("small", "bert-mlm")} == speeds.keys()
    assert all(speeds.values()), found["rows"]
    assert found["ceiling"]["bf16"] > 0 and found["ceiling"]["fp32"] > 0
