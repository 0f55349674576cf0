"""One run on several processes: the losses, gradients and metrics of one process, for every objective and tying."""

from __future__ import annotations

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
from workbench.execution.request import host_of
from workbench.spec.host import Host
from workbench.training.ranks import ALONE, telling_of_loss


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


def alike(folder: Path, count: int, steps: int, *more: str) -> None:
    alone, together = computed(folder, 1, steps, count), computed(folder, count, steps, count, *more)
    assert alone.keys() == together.keys() == CASES.keys()
    for name, expected in alone.items():
        assert torch.isfinite(expected[:, :2]).all()
        torch.testing.assert_close(
            together[name], expected, rtol=1e-5, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    alike(tmp_path, 2, 6)


@pytest.mark.slow
def test_two_processes_that_share_the_weights_take_the_steps_of_one(tmp_path: Path) -> None:
    alike(tmp_path, 2, 6, "sharded")


@pytest.mark.slow
def test_four_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    alike(tmp_path, 4, 20)


def test_each_process_has_its_own_rows_and_they_are_the_whole_batch() -> None:
    from workbench.training.ranks import Ranks

    first = [Ranks(index, 4).first_row(32) for index in range(4)]
    assert first == [0, 8, 16, 24]
    assert ALONE.first_row(32) == 0


def test_parts_must_be_equal() -> None:
    assert Host(devices=4).rows_at_once(32) == 8
    assert Host(devices=2, micro_batch=4).rows_at_once(32) == 4
    assert Host(devices=2, micro_batch=100).rows_at_once(32) == 16
    with pytest.raises(InputError, match=r"--devices 3 does not divide batch\.size=32"):
        Host(devices=3).rows_at_once(32)
    with pytest.raises(InputError, match="--micro-batch 5 does not divide the 16 rows of each device"):
        Host(devices=2, micro_batch=5).rows_at_once(32)


@pytest.mark.parametrize("devices", [0, -1, 1025, "two"])
def test_a_number_of_devices_that_cannot_be_is_refused(devices: Any) -> None:
    with pytest.raises(InputError, match="is not a whole number from 1 to 1024"):
        host_of(devices=devices)


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
