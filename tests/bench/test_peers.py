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


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "model", "sizes"),
    [
        ("causal", "ours-causal-lm", "gpt2-hf", "gpt2", ("n_embd", "n_layer", "n_inner", "vocab_size")),
        ("permutation", "ours-permutation-lm", "xlnet-hf", "xlnet", ("d_model", "n_layer", "d_inner", "vocab_size")),
    ],
)
def test_both_sides_compute_the_same_loss_of_one_model(
    kind: str, ours: str, theirs: str, model: str, sizes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_models
    import peers

    same_loss, own = getattr(peers, f"same_{kind}_loss"), getattr(peer_models, model)
    values = same_loss("T")
    assert values[f"ours_{kind}"] == pytest.approx(values[f"hf_{kind}"], rel=1e-5)
    spec, other = peers.spec_of("T", ours), peers.spec_of("T", theirs)
    encoder, config = spec.encoder, own(other).config
    wanted = (encoder.hidden, encoder.layers, encoder.ffn_width, encoder.vocab)
    assert tuple(getattr(config, size) for size in sizes) == wanted
    assert encoder.embedding_width == encoder.hidden and spec.batch == other.batch

    if kind == "causal":
        monkeypatch.setattr(peer_models, "gpt2", lambda spec: own(spec.changed({"encoder.heads": 4})))
    else:
        seen = lambda batch, *_: batch.ids[..., None].expand(-1, -1, 64) > 0  # noqa: E731
        monkeypatch.setattr(peer_models, "visible_in_order", seen)
    with pytest.raises(SystemExit, match=f"{kind} losses differ"):
        same_loss("T")


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
