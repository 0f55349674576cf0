"""The state of a fine-tuning that has not ended, from which the same command goes on exactly.

    RUN/unfinished/CoLA-1f0c2a9b-0/step-00001200/     as a checkpoint of pre-training (`workbench.store.checkpoint`)

That of a fine-tuning which `workbench submit` repeats lies in the cache. A state is written as often as checkpoints of
pre-training are, and after a signal, and deleted once the score is stored. Since the order of the rows and the rates
are functions of the step, it holds the weights, the optimizer's moments and the state of torch's draws.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from workbench.errors import DamagedRun
from workbench.store import checkpoint
from workbench.store.lease import Lease
from workbench.training import checkpointing

log = logging.getLogger("workbench")
FOLDER = "unfinished"  # of a run


class Place(Protocol):
    """A folder that holds states: a run's (`RunDir`), or one of the cache. `owner` is its lease if it has one."""

    owner: Lease | None

    def file(self, name: str) -> Path:
        """Return the path of a file or folder within."""

    def remove(self, name: str) -> None:
        """Delete a file or folder within, if it exists."""


@dataclass(frozen=True)
class Unfinished:
    """The place for the state of one fine-tuning.

    `score` is the name of the file of the score, which says task, settings and seed, and `weights` are the hashes of
    the encoder; a state that was saved for others, in this run or in another one, is not used.
    """

    run: Place
    score: str
    weights: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder within that of the run."""
        return f"{FOLDER}/{Path(self.score).stem}"

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> tuple[int, float]:
        """Load the newest state; return its step and its seconds of fine-tuning, or zeros if there is none.

        A damaged state is deleted with a warning, because the fine-tuning can begin again.
        """
        try:
            newest = checkpoint.newest(self.run.file(self.name))
            if newest is None:
                return 0, 0.0
            if newest.state.get("weights") != dict(self.weights):
                raise DamagedRun(f"{newest.path} belongs to other weights")
            if newest.state.get("score") != self.name:
                raise DamagedRun(f"{newest.path} belongs to {ascii(newest.state.get('score'))[:80]}")
        except DamagedRun as error:
            log.warning(f"{error}; this fine-tuning begins again".replace("\n", " "))
            self.delete()
            return 0, 0.0
        draws = newest.tensors("draws")
        step, seconds, _ = checkpointing.load(newest, model, optimizer)
        torch.set_rng_state(draws["cpu"])
        if "device" in draws:
            torch.cuda.set_rng_state(draws["device"], device)
        return step, seconds

    def save(self, step: int, seconds: float, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
        """Write the state after a step, in which `seconds` were spent in all. Raises OSError or LeaseLost."""
        tensors = checkpointing.tensors_of(model, optimizer) | {"draws": _draws(device)}
        state = {"seconds": seconds, "weights": dict(self.weights), "score": self.name}
        checkpoint.save(self.run.file(self.name), step, tensors, state, owner=self.run.owner)

    def delete(self) -> None:
        """Delete the state, if there is one."""
        self.run.remove(self.name)


def _draws(device: str) -> dict[str, Tensor]:
    """Return the states of torch's random generators, of the CPU and of a CUDA device."""
    states = {"cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["device"] = torch.cuda.get_rng_state(device)
    return states
