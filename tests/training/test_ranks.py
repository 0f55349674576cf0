"""One run on several processes: the losses, gradients and metrics of one process, and weights that are split."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.helpers.steps_of_ranks import CASES
from workbench.errors import InputError, RankLost
from workbench.execution.devices import check, refuse
from workbench.options import Computation, checked
from workbench.rng import row_keys
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.tensors import Batch, Mean, StepLoss
from workbench.training.distributed import Ranks, layers_of, telling_of_loss
from workbench.training.loop import build
from workbench.training.optimizer import make_optimizer
from workbench.training.steps import Steps

UNEVEN = ("bert", "albert", "causal-lm", "a user's means")  # their rows differ in how many tokens they score


def computed(folder: Path, count: int, steps: int, parts: int, *more: str) -> dict[str, torch.Tensor]:
    """Norm, losses and metrics (steps, n) of each case, which all processes have alike."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "tests.helpers.steps_of_ranks"]
    rest = [str(count), str(port), str(folder), str(steps), str(parts), *more]
    children = [subprocess.Popen([*words, str(index), *rest]) for index in range(count)]
    assert [child.wait(300) for child in children] == [0] * count
    files = [json.loads((folder / f"rows-{index}-of-{count}.json").read_text()) for index in range(count)]
    assert all(rows == files[0] for rows in files)
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in files[0].items()}


def alike(folder: Path, count: int, steps: int, *more: str, parts: int | None = None) -> None:
    """Compare steps of `count` processes with those of one, which takes their rows in as many parts unless told."""
    both = [word for word in more if word != "sharded"]
    alone = computed(folder, 1, steps, parts or count, *both)
    together = computed(folder, count, steps, count, *more)
    assert alone.keys() == together.keys() == ({*more[-1].split(",")} if "only" in more else CASES.keys())
    for name, expected in alone.items():
        assert torch.isfinite(expected[:, :2]).all()
        torch.testing.assert_close(
            together[name], expected, rtol=1e-5, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("how", ["whole", pytest.param("sharded", marks=pytest.mark.slow)])
def test_two_processes_take_the_steps_of_one(how: str, tmp_path: Path) -> None:
    """RTD with dropout in micro-batches, and undivided steps of rows that differ in how many tokens they score.

    The slow test has all cases.
    """
    words = [*(["sharded"] if how == "sharded" else []), "only", ",".join(["dropout", *UNEVEN])]
    alike(tmp_path, 2, 4, *words, parts=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "sharded"])
def test_two_processes_take_twenty_steps_of_one_also_where_they_share_the_weights(how: str, tmp_path: Path) -> None:
    alike(tmp_path, 2, 20, *(["sharded"] if how == "sharded" else []))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("how", ["whole", "sharded"])
def test_two_gpus_take_the_steps_of_one(how: str, tmp_path: Path) -> None:
    alike(tmp_path, 2, 6, "cuda", *(["sharded"] if how == "sharded" else []))


@pytest.mark.slow
def test_four_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    alike(tmp_path, 4, 20)


@pytest.mark.parametrize("how", [pytest.param("whole", marks=pytest.mark.slow), "sharded"])
def test_a_loss_of_one_process_that_is_nan_changes_no_weights_of_any(how: str, tmp_path: Path) -> None:
    """In that step and all later ones; `computed` compares what the processes found."""
    words = ["poisoned", "only", "bert-mlm", *(["sharded"] if how == "sharded" else [])]
    (rows,) = computed(tmp_path, 2, 5, 2, *words).values()
    assert rows[:, 0].tolist() == [1, 1, 0, 0, 0], "which steps changed weights"
    assert rows[:, 1].tolist() == [0, 0, 1, 1, 1], "which were found to be bad"
    assert (rows[:2, 2] > 0).all() and (rows[2:, 2] == -1).all()


def test_gradients_are_exchanged_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the backward pass of the last of four micro-batches; one bucket holds all gradients of a small model."""
    spec = resolve("nano", {"objective": "bert-mlm", "batch.size": 8})
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(Linear())
        exchanged: list[int] = []

        def noted(_, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations with its own classes
            exchanged.append(int(bucket.buffer().numel()))
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, noted)
        optimizer, host = make_optimizer(model, spec.optim), Host(device="cpu", micro_batch=1)
        steps = Steps(spec, Rows(), host, torch.device("cpu"), contextlib.nullcontext(), model, optimizer)  # type: ignore[arg-type]
        steps.ranks = Ranks(0, 2)
        for step in (1, 2, 3):
            steps.gradients(step)
            assert exchanged == [3] * step
            model.zero_grad()
    finally:
        dist.destroy_process_group()


class Linear(torch.nn.Module):
    """A loss with three weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, batch: Batch) -> StepLoss:
        return StepLoss(Mean(self.weight.sum() * batch.ids.float().mean(), len(batch.ids)), {}, {})


class Rows:
    """A corpus that has the same rows everywhere."""

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        return Batch(torch.ones(rows, 4, dtype=torch.int64), row_keys(0, torch.arange(rows)))


@pytest.mark.parametrize("devices", [0, -1, 1025, "two"])
def test_a_number_of_devices_that_cannot_be_is_refused(devices: Any) -> None:
    with pytest.raises(InputError, match="is not a whole number from 1 to 1,024"):
        checked(Computation, {"devices": devices})


@pytest.mark.parametrize(
    "error", [dist.DistNetworkError("x"), RuntimeError("[gloo/pair.cc:5] Connection closed by peer [127.0.0.1]:1")]
)
def test_the_end_of_another_process_is_said_as_that(error: RuntimeError) -> None:
    with pytest.raises(RankLost, match="another process of this run ended or did not answer"), telling_of_loss():
        raise error


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes") as caught, telling_of_loss():
        raise RuntimeError("shapes do not fit")
    assert not isinstance(caught.value, RankLost)


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
