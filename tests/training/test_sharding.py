"""A run whose weights are split over two processes: its checkpoints, points and encoder, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from workbench.errors import InputError
from workbench.execution.devices import check, refuse
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.training.distributed import layers_of
from workbench.training.loop import build


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (Host(shard=True), "--shard splits a model over several devices, and there is one; give --devices"),
        (Host(shard=True, devices=2, compile=True), "--shard does not work with --compile"),
        (Host(shard=True, devices=2, plain=True), "--shard does not work with --plain"),
    ],
)
def test_what_does_not_go_together_is_refused(host: Host, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(host)


@pytest.mark.parametrize("kind", ["lamb", "muon"])
def test_update_rules_of_whole_weights_are_refused(kind: str) -> None:
    spec = resolve("nano", {"optim.kind": kind})
    with pytest.raises(InputError, match=f"optim.kind={kind} updates whole ones; set optim.kind=adamw"):
        refuse(spec, Host(devices=2, shard=True))
    refuse(spec, Host(devices=2))
    refuse(resolve("nano"), Host(devices=2, shard=True))


@pytest.mark.parametrize(
    ("device", "settings", "count"),
    [
        ("cpu", {"encoder.family": "electra"}, 0),
        ("cuda", {"encoder.family": "electra", "generator.depth": 0.5}, 6),
        ("cpu", {"encoder.family": "bert", "tying": "all", "generator.width": 1.0}, 0),
        ("cuda", {"encoder.family": "bert", "tying": "all", "generator.width": 1.0}, 4),
        ("cpu", {"encoder.family": "modernbert", "tying": "all", "generator.width": 1.0}, 4),
        ("cuda", {"encoder.family": "xlnet", "tying": "tokens", "generator.width": 1.0}, 0),
    ],
)
def test_layers_are_gathered_one_by_one_where_they_are_called(
    device: str, settings: dict[str, Any], count: int
) -> None:
    """Those of the generator too, and shared ones once."""
    model = build(resolve("nano", {"objective": "rtd", "encoder.layers": 4, **settings}))
    assert len(layers_of(model, torch.device(device))) == count
