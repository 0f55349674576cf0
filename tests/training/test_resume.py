"""What a checkpoint holds, whose it is, and what a run takes over from the run that it starts from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from objective_oracle import shaken, synthetic, tiny
from torch import nn

from workbench.errors import DamagedRun, InputError, LeaseLost
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.store import checkpoint
from workbench.store.run_store import RunDir
from workbench.training.checkpointing import check_log, due, inherit, restore, save, tensors_of
from workbench.training.optimizer import make_optimizer

DONE = {"format": 1, "tokens": 1, "flops": {}, "seconds": 0.0, "final": {}}
LOGGED = {"rows": 5, "sha256": "abc"}
CHANGED = {"encoder": ("encoder.",), "generator": ("encoder.", "generator.body.", "generator.head.")}


def trained(folder: Path, spec: RunSpec, seed: int = 0, steps: int = 5, said: int | None = None) -> tuple[RunDir, Any]:
    """A run that says it ended after `said` steps and has a checkpoint of `steps`, and its model."""
    model = shaken(spec, seed)
    optimizer = make_optimizer(model, spec.optim)
    model(synthetic(spec)).total.backward()
    optimizer.step()
    folder.mkdir()
    RunDir(folder).write_json("done.json", DONE | {"steps": steps if said is None else said})
    save(RunDir(folder), steps, 2.5, 0.5, tensors_of(model, optimizer), LOGGED)
    return RunDir(folder), model


def child(objective: str, take: str, **keys: Any) -> RunSpec:
    return tiny(objective, {"start.parent": {"objective": "bert-mlm"}, "start.take": take} | keys)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_a_checkpoint_holds_each_weight_and_moment_once_under_its_name(tmp_path: Path) -> None:
    run, model = trained(tmp_path / "run", tiny("bert-mlm"))
    found = checkpoint.newest(run.path / "checkpoints")
    assert found is not None and found.step == 5
    kept = {name: p for name, p in model.named_parameters()}
    assert found.tensors("model").keys() == kept.keys()
    moments = found.tensors("optimizer")
    assert moments.keys() == {f"{name}.{key}" for name in kept for key in ("exp_avg", "exp_avg_sq", "step")}
    assert all(moments[f"{name}.exp_avg"].shape == weight.shape for name, weight in kept.items())
    assert {float(value) for name, value in moments.items() if name.endswith(".step")} == {1.0}
    assert found.state["run_id"] == "run" and found.state["step"] == 5
    assert (found.state["seconds"], found.state["saving"]) == (2.5, 0.5)


def test_a_log_that_changed_since_the_checkpoint_is_refused(tmp_path: Path) -> None:
    run, _ = trained(tmp_path / "run", tiny("bert-mlm"))
    check_log(run, 5, LOGGED)
    with pytest.raises(DamagedRun) as error:
        check_log(run, 5, LOGGED | {"rows": 4})
    assert str(error.value) == (
        f"{run.path / 'metrics.jsonl'} has changed since the checkpoint of step 5 was written; "
        f"move the run's folder away and give the same command again"
    )


def test_weights_without_moments_are_kept_and_come_back(tmp_path: Path) -> None:
    """Before the first step there are no moments, and a frozen part never has any."""
    spec = tiny("bert-mlm")
    model, fresh = shaken(spec, 0), shaken(spec, 1)
    (tmp_path / "run").mkdir()
    save(RunDir(tmp_path / "run"), 0, 0.0, 0.0, tensors_of(model, make_optimizer(model, spec.optim)), LOGGED)
    optimizer = make_optimizer(fresh, spec.optim)
    assert restore(RunDir(tmp_path / "run"), fresh, optimizer) == (0, 0.0, 0.0)
    assert all(torch.equal(weights(fresh)[name], value) for name, value in weights(model).items())
    assert not optimizer.state


def test_without_a_checkpoint_a_run_starts_from_nothing(tmp_path: Path) -> None:
    model = shaken(tiny("bert-mlm"))
    before = weights(model)
    assert restore(RunDir(tmp_path), model, make_optimizer(model, tiny("bert-mlm").optim)) == (0, 0.0, 0.0)
    assert all(torch.equal(before[name], value) for name, value in weights(model).items())


@pytest.mark.parametrize("of_parent", [False, True])
def test_another_runs_checkpoint_is_refused_by_name(of_parent: bool, tmp_path: Path) -> None:
    spec = child("bert-mlm", "all")
    run, model = trained(tmp_path / "one", tiny("bert-mlm"))
    run.path.rename(tmp_path / "other")
    given, optimizer = RunDir(tmp_path / "other"), make_optimizer(model, spec.optim)
    with pytest.raises(DamagedRun) as error:
        inherit(given, spec, model, optimizer) if of_parent else restore(given, model, optimizer)
    place = tmp_path / "other" / "checkpoints" / "step-00000005"
    assert str(error.value) == f"{place} belongs to run one, not to other; move it away"


def test_a_damaged_newest_checkpoint_is_told_and_the_one_before_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = tiny("bert-mlm")
    run, model = trained(tmp_path / "run", spec)
    save(run, 6, 3.0, 0.75, tensors_of(shaken(spec, 3), make_optimizer(model, spec.optim)), LOGGED)
    for path in (run.path / "checkpoints" / "step-00000006").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    fresh = shaken(spec, 1)
    with caplog.at_level(logging.WARNING, logger="workbench"):
        assert restore(run, fresh, make_optimizer(fresh, spec.optim)) == (5, 2.5, 0.5)
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "step-00000006" in caplog.text
    assert all(torch.equal(weights(fresh)[name], value) for name, value in weights(model).items())


def test_a_child_that_takes_all_goes_on_in_its_parents_place(tmp_path: Path) -> None:
    parent, model = trained(tmp_path / "parent", tiny("bert-mlm"))
    spec = child("bert-mlm", "all")
    fresh = shaken(spec, 1)
    optimizer = make_optimizer(fresh, spec.optim)
    assert inherit(parent, spec, fresh, optimizer) == (5, 2.5, 0.5)
    assert all(torch.equal(weights(fresh)[name], value) for name, value in weights(model).items())
    found = checkpoint.newest(parent.path / "checkpoints")
    assert found is not None
    moments = {
        f"{name}.{key}": value for name, p in fresh.named_parameters() for key, value in optimizer.state[p].items()
    }
    saved = found.tensors("optimizer")
    assert moments.keys() == saved.keys()
    assert all(torch.equal(moments[name], saved[name]) for name in saved)


def test_nothing_is_saved_after_the_lease_was_lost(tmp_path: Path) -> None:
    spec = tiny("bert-mlm")
    run, model = trained(tmp_path / "run", spec)
    with run.lease(), pytest.raises(LeaseLost):
        (run.path / "lease").unlink()
        save(run, 6, 3.0, 0.75, tensors_of(model, make_optimizer(model, spec.optim)), LOGGED)
    assert [path.name for path in (run.path / "checkpoints").glob("step-*")] == ["step-00000005"]


@pytest.mark.parametrize(("objective", "take"), [("rtd", "encoder"), ("rtd", "generator"), ("bert-mlm", "encoder")])
def test_a_child_that_takes_a_part_starts_from_step_zero_with_the_rest_its_own(
    objective: str, take: str, tmp_path: Path
) -> None:
    """An encoder's weights go into the encoder; as a generator, into its body, and the head with them."""
    parent, model = trained(tmp_path / "parent", tiny("bert-mlm"))
    spec = child(objective, take, **{"generator.width": 1.0, "tying": "none"})
    fresh = shaken(spec, 1)
    before, given = weights(fresh), weights(model)
    optimizer = make_optimizer(fresh, spec.optim)
    assert inherit(parent, spec, fresh, optimizer) == (0, 2.5, 0.5)
    assert not optimizer.state
    taken = 0
    for name, value in weights(fresh).items():
        source = name.replace("generator.body.", "encoder.").removeprefix("generator.")
        if name.startswith(CHANGED[take]):
            assert torch.equal(value, given[source]), name
            taken += 1
        else:
            assert torch.equal(value, before[name]), name
    sources = [name for name in given if take == "generator" or name.startswith("encoder.")]
    body = [name for name in given if name.startswith("encoder.")]
    assert taken == len(sources) + (len(body) if take == "generator" else 0)


UNTIED = {"generator.width": 1.0, "tying": "none"}


@pytest.mark.parametrize(
    ("of", "take", "part"),
    [
        (tiny("bert-mlm", {"encoder.vocab": 30}), "encoder", "encoder"),
        (tiny("rtd", UNTIED), "generator", r"generator\.head"),
    ],
)
def test_a_parent_of_another_shape_or_without_the_weights_is_refused(
    of: RunSpec, take: str, part: str, tmp_path: Path
) -> None:
    """RTD's head is not that of a masked language model, so no generator is made from it."""
    parent, _ = trained(tmp_path / "parent", of)
    spec = child("rtd", take, **UNTIED)
    fresh = shaken(spec, 1)
    with pytest.raises(InputError, match=rf"^the parent parent has no weights for {part}\.\S+ of this run$"):
        inherit(parent, spec, fresh, make_optimizer(fresh, spec.optim))


@pytest.mark.parametrize("said", [4, 6, None])
def test_a_parent_whose_last_checkpoint_is_gone_is_named(said: int | None, tmp_path: Path) -> None:
    """It ended after a step that no checkpoint is of, or there is none at all."""
    parent, _ = trained(tmp_path / "parent", tiny("bert-mlm"), said=said)
    if said is None:
        (parent.path / "checkpoints").rename(tmp_path / "elsewhere")
    spec = child("bert-mlm", "all")
    fresh = shaken(spec, 1)
    with pytest.raises(InputError) as error:
        inherit(parent, spec, fresh, make_optimizer(fresh, spec.optim))
    assert str(error.value) == (
        f"{parent.path} is trained, but its last checkpoint is missing; delete that folder to train it again"
    )


@pytest.mark.parametrize(
    ("every", "step", "since", "took", "expected"),
    [
        (4, 8, 0.0, 0.0, True),
        (4, 9, 1e9, 0.0, False),  # the number of steps alone decides
        (4, 3, 1e9, 0.0, False),
        (None, 1, 299.9, 0.0, False),
        (None, 1, 300.0, 0.0, True),
        (None, 8, 300.0, 6.0, True),
        (None, 8, 499.9, 10.0, False),  # 10 s of saving are at most 2 % of the time
        (None, 8, 500.0, 10.0, True),
    ],
)
def test_a_checkpoint_is_due_by_steps_or_by_time(
    every: int | None, step: int, since: float, took: float, expected: bool
) -> None:
    assert due(step, Host(save_every=every, save_seconds=300.0), since, took) is expected
