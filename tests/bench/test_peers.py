"""The comparison with other trainers is fair: the same weights give the same loss."""

from __future__ import annotations

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
