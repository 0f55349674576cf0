"""Saving and restoring the state of training, from a run's own checkpoints or from its parent's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from workbench.errors import DamagedRun, InputError
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.store import checkpoint
from workbench.store.atomic import read_object
from workbench.store.checkpoint import Checkpoint
from workbench.store.run_store import RunDir

if TYPE_CHECKING:
    from workbench.training.checkpoint_parts import Parts

log = logging.getLogger("workbench")
SAVING = 0.02  # largest share of the time for checkpoints that are written by time, as the reliability goals demand
MOMENTS = ("exp_avg", "exp_avg_sq", "step", "momentum_buffer")  # what AdamW, LAMB and Muon keep of each weight


def due(step: int, host: Host, since: float, took: float) -> bool:
    """Return whether to write a checkpoint; the last one was written `since` seconds ago and took `took` seconds."""
    if host.save_every:
        return step % host.save_every == 0
    return since >= max(host.save_seconds, took / SAVING)


def save(
    run: RunDir, step: int, seconds: float, saving: float, tensors: Mapping[str, Mapping[str, Tensor]],
    log_content: Mapping[str, Any], parts: Parts | None = None,
) -> None:  # fmt: skip
    """Write a checkpoint of weights, their moments and the place in training; shared weights are written once.

    `tensors` are those of `tensors_of`. `seconds` is the time of training so far, and `saving` the part of it spent on
    checkpoints. `log_content` is what `Metrics.content` returns for the rows up to this step. In a sharded run the
    tensors are the first of the `parts` that its processes write.
    """
    state = {"step": step, "seconds": seconds, "saving": saving, "run_id": run.run_id, "log": dict(log_content)}
    write = checkpoint.save if parts is None else parts.save
    write(run.path / "checkpoints", step, tensors, state, owner=run.owner)


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """Return the weights of a model and the optimizer's moments of them by name, as two groups of a checkpoint."""
    names = dict(model.named_parameters())
    moments = {
        f"{name}.{key}": optimizer.state[parameter][key]
        for name, parameter in names.items()
        if parameter in optimizer.state
        for key in MOMENTS
        if key in optimizer.state[parameter]
    }
    return {"model": {name: p.detach() for name, p in names.items()}, "optimizer": moments}


def restore(run: RunDir, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """Load the newest undamaged checkpoint into model and optimizer, if there is one.

    Return its step, its seconds of training and of saving, or zeros if there is none. Raises DamagedRun if all
    checkpoints are damaged, or this one belongs to another run.
    """
    newest = _newest(run)
    if newest is None:
        return 0, 0.0, 0.0
    for warning in newest.warnings:
        log.warning(warning)
    return load(newest, model, optimizer)


def _newest(run: RunDir) -> Checkpoint | None:
    """Return the newest undamaged checkpoint of a run, or None. Raises DamagedRun if it belongs to another run."""
    newest = checkpoint.newest(run.path / "checkpoints")
    if newest is not None and newest.state.get("run_id") != run.run_id:
        raise DamagedRun(
            f"{newest.path} belongs to run {newest.state.get('run_id')}, not to {run.run_id}; move it away"
        )
    return newest


def check_log(run: RunDir, step: int, log_content: Mapping[str, Any]) -> None:
    """Raise DamagedRun if the logged rows up to a checkpoint changed after it was written.

    Checkpoints of older versions have no hash of these rows and are accepted.
    """
    state = read_object(run.path / "checkpoints" / f"step-{step:08d}" / "state.json")["state"]
    if state.get("log", log_content) != log_content:
        raise DamagedRun(
            f"{run.path / 'metrics.jsonl'} has changed since the checkpoint of step {step} was written; "
            f"move the run's folder away and give the same command again"
        )


def load(saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """Load a checkpoint into model and optimizer; return its step, its seconds of training and of saving."""
    weights, moments = saved.tensors("model"), saved.tensors("optimizer")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            for key in MOMENTS:
                if f"{name}.{key}" in moments:
                    optimizer.state[parameter][key] = moments[f"{name}.{key}"].to(parameter.device)
    return saved.step, float(saved.state["seconds"]), float(saved.state.get("saving", 0.0))


# The weights of a run that are copied from its parent's, by the first part of their names (see `StartSpec`).
TAKEN: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {"encoder.": ("encoder.",)},
    "generator": {"encoder.": ("encoder.", "generator.body."), "head.": ("generator.head.",)},
}


def inherit(
    parent: RunDir, spec: RunSpec, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, float, float]:
    """Load the weights that `spec.start` takes from the end of the parent's training.

    Return the step after which training continues, and the parent's seconds of training and of saving. Raises
    InputError if the parent's last checkpoint is missing, or lacks weights that are to be taken.
    """
    assert spec.start is not None
    newest = _newest(parent)
    if newest is None or newest.step != parent.read_json("done.json")["steps"]:
        raise DamagedRun(
            f"{parent.path} is trained, but its last checkpoint is missing; delete that folder to train it again"
        )
    if spec.start.take == "all":
        return load(newest, model, optimizer)
    weights, copied = newest.tensors("model"), TAKEN[spec.start.take]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for source, targets in copied.items():
                for target in targets:
                    if name.startswith(target):
                        given = weights.get(source + name.removeprefix(target))
                        if given is None or given.shape != parameter.shape:
                            raise InputError(f"the parent {parent.run_id} has no weights for {name} of this run")
                        parameter.copy_(given)
    return 0, float(newest.state["seconds"]), float(newest.state.get("saving", 0.0))
