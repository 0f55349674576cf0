"""The place in training, kept and taken up again: a run's own, or its parent's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from workbench.errors import DamagedRun, InputError
from workbench.spec.run_spec import RunSpec
from workbench.store import checkpoint
from workbench.store.atomic import read_object
from workbench.store.checkpoint import Checkpoint
from workbench.store.run_store import RunDir

log = logging.getLogger("workbench")


def save(
    run: RunDir, step: int, seconds: float, saving: float, model: nn.Module, optimizer: torch.optim.Optimizer,
    log_content: Mapping[str, Any],
) -> None:  # fmt: skip
    """Weights, Adam moments and the place in training. Shared tables are written once.

    `log_content` is what `Metrics.content` says of the rows up to this step.
    """
    names = dict(model.named_parameters())
    moments = {
        f"{name}.{key}": optimizer.state[parameter][key]
        for name, parameter in names.items()
        if parameter in optimizer.state
        for key in ("exp_avg", "exp_avg_sq", "step")
    }
    tensors = {"model": {name: p.detach() for name, p in names.items()}, "optimizer": moments}
    state = {"step": step, "seconds": seconds, "saving": saving, "run_id": run.run_id, "log": dict(log_content)}
    checkpoint.save(run.path / "checkpoints", step, tensors, state, owner=run.owner)


def restore(run: RunDir, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """Step, seconds of training and of saving that the newest good checkpoint holds, zeros without one."""
    found = checkpoint.newest(run.path / "checkpoints")
    if found is None:
        return 0, 0.0, 0.0
    for warning in found.warnings:
        log.warning(warning)
    if found.state.get("run_id") != run.run_id:
        raise DamagedRun(f"{found.path} belongs to run {found.state.get('run_id')}, not to {run.run_id}; move it away")
    return load(found, model, optimizer)


def check_log(run: RunDir, step: int, log_content: Mapping[str, Any]) -> None:
    """Raises DamagedRun where the rows up to a checkpoint are not those that were logged when it was written.

    Checkpoints of older versions do not say.
    """
    state = read_object(run.path / "checkpoints" / f"step-{step:08d}" / "state.json")["state"]
    if state.get("log", log_content) != log_content:
        raise DamagedRun(
            f"{run.path / 'metrics.jsonl'} has changed since the checkpoint of step {step} was written; "
            f"move the run's folder away and give the same command again"
        )


def load(found: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """All of a checkpoint into model and optimizer; its step, seconds of training and of saving."""
    weights, moments = found.tensors("model"), found.tensors("optimizer")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            if f"{name}.step" in moments:
                state = optimizer.state[parameter]
                state["step"] = moments[f"{name}.step"].to(parameter.device)
                for key in ("exp_avg", "exp_avg_sq"):
                    state[key] = moments[f"{name}.{key}"].to(parameter.device)
    return found.step, float(found.state["seconds"]), float(found.state.get("saving", 0.0))


# Where a parent's weights go, by the beginning of their names (see `StartSpec`).
TAKEN: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {"encoder.": ("encoder.",)},
    "generator": {"encoder.": ("encoder.", "generator.body."), "head.": ("generator.head.",)},
}


def inherit(
    parent: RunDir, spec: RunSpec, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, float, float]:
    """Begin from the end of the parent's training: the step to go on after, its seconds of training and of saving.

    Raises InputError where the parent's last checkpoint is gone or lacks weights that are to be taken.
    """
    assert spec.start is not None
    found = checkpoint.newest(parent.path / "checkpoints")
    if found is not None and found.state.get("run_id") != parent.run_id:
        raise DamagedRun(
            f"{found.path} belongs to run {found.state.get('run_id')}, not to {parent.run_id}; move it away"
        )
    if found is None or found.step != parent.read_json("done.json")["steps"]:
        raise DamagedRun(
            f"{parent.path} is trained, but its last checkpoint is gone; delete that folder to train it again"
        )
    if spec.start.take == "all":
        return load(found, model, optimizer)
    weights, wanted = found.tensors("model"), TAKEN[spec.start.take]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for source, targets in wanted.items():
                for target in targets:
                    if name.startswith(target):
                        given = weights.get(source + name.removeprefix(target))
                        if given is None or given.shape != parameter.shape:
                            raise InputError(f"the parent {parent.run_id} has no weights for {name} of this run")
                        parameter.copy_(given)
    return 0, float(found.state["seconds"]), float(found.state.get("saving", 0.0))
