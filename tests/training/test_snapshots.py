"""What a run keeps at a point: the weights of a run that ends there, also after the run was killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import STEPS, carried_out, values, weights, with_points
from torch import nn

from workbench import objectives
from workbench.data.prepare import Prepared
from workbench.errors import DamagedRun, Interrupted
from workbench.models.encoder import build_encoder
from workbench.spec.stages import BoundRun
from workbench.store import checkpoint, validation
from workbench.store.run_store import RunDir, RunStore
from workbench.store.verify import verify
from workbench.tasks import Suite
from workbench.training import snapshots
from workbench.training.plan import plan
from workbench.training.snapshots import Point


def test_a_point_is_what_a_run_that_ends_there_at_the_same_rates_exports(
    prepared: Prepared, toy: Suite, tmp_path: Path
) -> None:
    """With a constant rate a run of four steps is the first four of twenty: equal weights, equal scores."""
    same = {"schedule__kind": "constant", "schedule__warmup": 2}
    run = carried_out(with_points(**same), prepared, toy, tmp_path / "a")
    short = carried_out(with_points(budget__steps=4, tasks__at="none", **same), prepared, toy, tmp_path / "b")
    assert run.points() == [f"points/{step:08d}/" for step in STEPS] and not short.points()
    place = run.points()[1]
    for part in ("encoder", "heads"):
        mine, theirs = (load_file(f / part / "model.safetensors") for f in (run.path / place, short.path))
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert {name: value for name, value in values(run).items() if name.startswith(place)} == {
        f"{place}{name}": value for name, value in values(short).items()
    }
    point = run.read_json(f"{place}point.json")
    assert (point["step"], point["mark"], point["tokens"]) == (4, "21.5 %", 4 * 64)
    assert point["flops"] == plan(short.spec()).flops and 0 < point["seconds"] < run.metrics()[-1]["seconds"]


def test_keeping_points_changes_nothing_of_the_training(prepared: Prepared, toy: Suite, tmp_path: Path) -> None:
    runs = [carried_out(with_points(tasks__at=at), prepared, toy, tmp_path / at[:3]) for at in ("log:6", "none")]
    assert weights(runs[0], "") == weights(runs[1], "") and runs[0].points() and not runs[1].points()
    rows = [[(row["step"], row["loss"], row["gradient_norm"]) for row in run.metrics()] for run in runs]
    assert rows[0] == rows[1]
    assert runs[0].metrics()[-1]["saving_share"] > 0


@contextmanager
def killed_at(point: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Training inside is interrupted at the point of a step, before or after its weights are kept."""
    real = snapshots.Snapshots.keep

    def killed(self: Any, model: Any, step: int, seconds: float) -> None:
        if step != point or after:
            real(self, model, step, seconds)
        if step == point:
            raise Interrupted(9)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(snapshots.Snapshots, "keep", killed)
        yield


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_run_keeps_the_same_points(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Killed at the point of step 4, before or after it was kept, with the last checkpoint at step 3."""
    whole = carried_out(with_points(), prepared, toy, tmp_path / "whole")
    with killed_at(4, after, monkeypatch):
        carried_out(with_points(), prepared, toy, tmp_path / "cut")
    cut = RunStore(tmp_path / "cut").get(whole.run_id)
    assert len(cut.points()) == 1 + after and not cut.trained and verify(RunStore(tmp_path / "cut")).exit_code == 0
    if after:  # what lies beyond the checkpoint is kept anew, so that all points are of one training
        (cut.path / "points/00000004/encoder/model.safetensors").write_bytes(b"of another training")
    carried_out(with_points(), prepared, toy, tmp_path / "cut")
    assert cut.points() == whole.points()
    assert all(weights(cut, place) == weights(whole, place) for place in ["", *whole.points()])
    assert values(cut) == values(whole) and len(values(cut)) == 3
    assert verify(RunStore(tmp_path / "cut")).exit_code == 0


@pytest.mark.parametrize(
    ("name", "moved", "told"),
    [
        ("points/00000001/encoder/model.safetensors", "points/00000001", "model.safetensors has changed"),
        ("points/00000001/point.json", "points/00000001", "point.json has changed"),
        ("checkpoints/step-00000018/model.safetensors", "checkpoints/step-00000018", "model.safetensors has changed"),
        ("metrics.jsonl", "", "metrics.jsonl has changed in the rows before step-00000020"),
    ],
)
def test_what_is_damaged_during_training_is_not_listed_as_right(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    name: str, moved: str, told: str,
) -> None:  # fmt: skip
    """The damage comes after the last check that is made while training goes on."""
    real = RunDir.finish

    def damaged(run: RunDir, facts: Any) -> None:
        content = bytearray((run.path / name).read_bytes())
        content[content.index(b"6")] += 1  # a digit of a number that is written, or a byte of weights
        (run.path / name).write_bytes(content)
        real(run, facts)

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "finish", damaged)
        run = carried_out(with_points(), prepared, toy, tmp_path / "runs")
    assert not run.trained and not (run.path / "manifest.json").exists() and told in caplog.text
    assert "and give the same command again" in caplog.text and f"move {moved or 'that folder'} away" in caplog.text
    (run.path / moved).rename(tmp_path / "aside")
    run = carried_out(with_points(), prepared, toy, tmp_path / "runs")
    assert run.state == "done" and verify(RunStore(tmp_path / "runs")).exit_code == 0


def test_points_of_another_setting_beyond_the_checkpoint_are_taken_away(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the point of step 9 was kept, with the last checkpoint at step 6, and gone on with otherwise."""
    with killed_at(9, True, monkeypatch):
        carried_out(with_points(tasks__at="log:6"), prepared, toy, tmp_path)
    (run,) = RunStore(tmp_path).runs()
    assert [snapshots.step_of(place) for place in run.points()] == [1, 2, 4, 9]
    carried_out(with_points(), prepared, toy, tmp_path)
    assert [snapshots.step_of(place) for place in run.points()] == [1, 2, 4], "the others are of this training"
    assert len(values(run)) == 3 and run.state == "done" and verify(RunStore(tmp_path)).exit_code == 0


def test_room_for_points_is_checked_beforehand(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr("workbench.training.loop.checkpoint.room", lambda folder, needed: asked[-1].append(needed))
    for at in ("none", "log:3"):
        asked.append([])
        run = carried_out(with_points(tasks__at=at), prepared, toy, tmp_path / at[:3])
    taken = sum(f.stat().st_size for place in run.points() for f in (run.path / place).rglob("*") if f.is_file())
    assert asked[1][0] - asked[0][0] >= 0.9 * taken, "checked once, before the first step"
    last = checkpoint.newest(run.path / "checkpoints")
    assert last is not None
    weights = sum(weight.numel() for weight in last.tensors("model").values())
    assert asked[0][0] >= 2 * 12 * weights + 4 * weights, "two checkpoints and the weights that are exported"


def points_at(steps: Sequence[int], folder: Path) -> tuple[snapshots.Snapshots, nn.Module]:
    """The snapshots of a new run with points at these steps, and a model of the run."""
    spec = with_points()
    run = RunStore(folder / "runs").open(BoundRun(spec))
    tokenizer = folder / "words"
    tokenizer.mkdir()
    (tokenizer / "vocab.txt").write_text("x" * 100)
    points = [Point(step, f"{5 * step} %") for step in steps]
    kept = snapshots.Snapshots(run, spec, plan(spec), tokenizer, points)
    return kept, objectives.build(spec, build_encoder(spec))


def test_points_after_the_step_that_training_continues_from_are_taken_away(tmp_path: Path) -> None:
    kept, model = points_at((2, 4, 6), tmp_path)
    run, made = kept.run, kept.plan
    assert [step for step in range(8) if kept.due(step)] == [2, 4, 6]
    weights = made.parameters["total"]
    assert kept.room(0, weights) == 3 * (4 * weights + 2 * 100 + snapshots.DESCRIPTIONS) and kept.room(
        4, weights
    ) * 3 == kept.room(0, weights)
    for step in (2, 4, 6):
        kept.keep(model, step, seconds=step / 2)
    taken = sum(f.stat().st_size for f in (run.path / "points").rglob("*.safetensors")) + 3 * 100
    assert 0.8 * kept.room(0, weights) < taken <= kept.room(0, weights)
    kept.begin(4)
    assert run.points() == ["points/00000002/", "points/00000004/"]
    point = run.read_json("points/00000004/point.json")
    assert (point["mark"], point["seconds"], point["tokens"]) == ("20 %", 2.0, 4 * 64)
    assert point["heads"] == validation.hashes(run.path / "points/00000004/heads") != {}
    assert (run.path / "points/00000004/encoder/vocab.txt").read_text() == "x" * 100


def test_a_damaged_point_is_found_before_training_goes_on(tmp_path: Path) -> None:
    kept, model = points_at((2, 4), tmp_path)
    run = kept.run
    for step in (2, 4):
        kept.keep(model, step, seconds=1.0)
    words = run.path / "points/00000002/encoder/vocab.txt"
    words.write_text("y" * 100)
    with pytest.raises(DamagedRun) as caught:
        kept.begin(4)
    assert str(caught.value).startswith(f"{run.path} is damaged: points/00000002/encoder/vocab.txt has changed since ")
    assert "move points/00000002 away and give the same command again" in str(caught.value)
    words.unlink()
    words.mkdir()
    with pytest.raises(DamagedRun, match=r"points/00000002/encoder/vocab\.txt is not a regular file; move points/"):
        kept.begin(4)
    (run.path / "points/00000002").rename(tmp_path / "aside")
    (run.path / "points/00000004/heads/model.safetensors").write_bytes(b"after the step")
    kept.begin(2)  # whose points after it are kept anew
    assert run.points() == []
