"""Points of training: which steps they are, what is kept and measured there, also after the run was killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import STEPS, carried_out, values, weights, with_points
from torch import nn

from workbench import objectives
from workbench.data.prepare import Prepared
from workbench.errors import DamagedRun, InputError, Interrupted
from workbench.execution import one_run, study_runner
from workbench.models.encoder import build_encoder
from workbench.spec.host import Host
from workbench.spec.stages import BoundRun
from workbench.store import checkpoint, validation
from workbench.store.run_store import RunDir, RunStore
from workbench.store.verify import verify
from workbench.tasks import Suite
from workbench.tasks.common.contract import Model, expected, take
from workbench.tasks.minimal_pairs import PairSet
from workbench.training import plan as plans
from workbench.training.plan import Point, plan, spent_by


def test_log_points_have_equal_distances_over_two_decades() -> None:
    long = plan(with_points(budget__steps=10_000))
    found = plans.log_points(long, 6, "matmul")
    assert plans.log_points(long, 3, "matmul") == found[::2], "a shorter series is a part of a longer one"
    assert [p.step for p in found] == [100, 215, 464, 1000, 2154, 4642]
    assert [p.mark for p in found] == ["1 %", "2.15 %", "4.64 %", "10 %", "21.5 %", "46.4 %"]
    assert [p.step for p in plans.log_points(plan(with_points()), 3, "matmul")] == STEPS


def test_points_of_a_branch_lie_in_its_own_part_and_count_what_its_trunk_spent() -> None:
    trunk = {"schedule.kind": "constant"}
    spec = with_points(schedule__kind="wsd", start__parent=trunk, start__share=0.05, budget__steps=1000)
    found = plans.log_points(plan(spec), 6, "matmul")
    assert [p.step for p in found] == [100, 215, 464], "those below 50 are the trunk's"
    child = with_points(
        start__take="encoder", start__parent={"objective": "bert-mlm"}, budget__steps=None, budget__tokens=64_000
    )
    priced = plan(child)
    spent = [spent_by(priced, child, p.step)["flops"]["paper"] for p in plans.log_points(priced, 2, "paper")]
    assert spent == [], "half of its budget is the parent's, so 1 % and 10 % were passed before it began"
    (late,) = plans.log_points(priced, 8, "paper")[-1:]
    share = spent_by(priced, child, late.step)["flops"]["paper"] / priced.flops["paper"]
    assert late.mark == "56.2 %" and share == pytest.approx(0.562, abs=0.002)


def test_word_points_are_the_last_steps_before_each_amount() -> None:
    spec = with_points(budget__steps=None, budget__tokens=64.0 * 10**6, data__words=8, data__tokens=14)
    found = plans.word_points(spec, plan(spec))  # of 64 tokens of a step 56 are text, 32 words: 32 million in all
    assert [p.mark for p in found] == [f"{n} M words" for n in (*range(1, 11), 20, 30)]
    assert found[0].step == 31_250 and found[-1].step * 32 <= 30_000_000 < (found[-1].step + 1) * 32


@pytest.mark.parametrize("text", ["log:0", "log:51", "sometimes", "log:", "6"])
def test_other_words_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"--evaluate-at .* must be auto, none, words, or log:N"):
        with_points(tasks__at=text)


def test_the_setting_is_no_part_of_what_a_run_or_a_score_is(toy: Suite) -> None:
    one, other = with_points(tasks__at="none"), with_points(tasks__at="words")
    assert one.name == other.name
    names = [[name for *_, name in expected(toy, spec.tasks)] for spec in (one, other)]
    assert names[0] == names[1]


# ---- what is kept ----


def names(run: RunDir, place: str, file: str) -> bool:
    """Whether the fault that is found in a run names the step and the file."""
    told = str(validation.fault(run.path))
    return told.startswith(place) and Path(file).name in told


def test_damage_in_a_point_is_named_with_its_step(run: RunDir) -> None:
    place = run.points()[0]
    for name in (f"{place}point.json", f"{place}scores/{next(iter(run.scores(place)))}"):
        whole = (run.path / name).read_bytes()
        for content in (whole[:40], b"[]", whole.replace(b'"format"', b'"fromat"')):
            (run.path / name).write_bytes(content)
            assert names(run, place, name), content[:20]
        (run.path / name).unlink()
        assert names(run, place, name)
        (run.path / name).write_bytes(whole)
    assert validation.fault(run.path) is None


def test_words_are_counted_in_the_prepared_text(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a hundredth of its amounts: after 100, 200 ... words. Also for runs whose spec does not say how many."""
    monkeypatch.setattr(plans, "WORDS", tuple(range(100, 700, 100)))
    run = carried_out(with_points(tasks__at="words"), prepared, toy, tmp_path)
    per_step = 4 * 14 * prepared.words / prepared.tokens  # two of sixteen tokens are [CLS] and [SEP]
    assert [plans.step_of(place) for place in run.points()] == [int(n / per_step) for n in range(100, 700, 100)]
    assert len(values(run)) == 7 and run.state == "done"
    older = run.spec().changed({"data.words": 0, "data.tokens": 0})
    assert one_run.Wanted(older.tasks, toy, prepared).points(older, plan(run.spec()))


# ---- what is measured ----


def test_one_score_of_a_point_fails_alone_and_is_tried_again(
    prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = take

    def fails(measure: Any, model: Model, host: Host) -> Any:
        if model.folder.parent.name == "00000004":
            raise ValueError("no")
        return real(measure, model, host)

    with monkeypatch.context() as patch:
        patch.setattr(one_run, "take", fails)
        run = carried_out(with_points(), prepared, toy, tmp_path)
    assert len(values(run)) == 2 and run.state == "trained" and "scoring on toy" in run.note
    assert [path.parent.parent.name for path in run.path.rglob("failures/*.json")] == ["00000004"]
    assert verify(RunStore(tmp_path)).exit_code == 0
    carried_out(with_points(), prepared, toy, tmp_path, since="2100-01-01")
    assert len(values(run)) == 3 and run.state == "done" and "toy" not in run.note
    assert not list(run.path.rglob("failures/*")) and verify(RunStore(tmp_path)).exit_code == 0


def test_a_run_that_kept_nothing_has_scores_of_its_end_alone(
    prepared: Prepared, toy: Suite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = carried_out(with_points(tasks__at="none"), prepared, toy, tmp_path)
    wanted = one_run.Wanted(with_points().tasks, toy, prepared)
    study_runner._warn_of_missing_points([run], wanted)
    assert "1 of 1 runs have no weights at requested points" in caplog.text
    assert f"{run.run_id} at 2 points" in caplog.text
    assert one_run.complete(run, wanted) and run.state == "done"


def test_more_points_than_a_run_kept_are_said(run: RunDir, prepared: Prepared, toy: Suite) -> None:
    assert one_run.Wanted(with_points().tasks, toy, prepared).unmeasured(run) == 0
    more = one_run.Wanted(with_points(tasks__at="log:6").tasks, toy, prepared)
    lacking = {p.step for p in more.points(run.spec(), plan(run.spec()))} - set(STEPS)
    assert len(lacking) == more.unmeasured(run) == 2 and one_run.complete(run, more)


def test_a_point_whose_weights_were_deleted_keeps_its_scores_and_gets_no_others(
    run: RunDir, prepared: Prepared, toy: Suite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(run.path / "points/00000004/encoder")
    shutil.rmtree(run.path / "points/00000004/heads")
    assert one_run.Wanted(with_points().tasks, toy, prepared).unmeasured(run) == 0
    assert len(list(one_run.Wanted(with_points().tasks, toy, prepared).expected(run))) == 3
    (pairs,) = toy.tasks
    both = Suite((pairs, replace(pairs, name="other")))
    carried_out(with_points(), prepared, both, tmp_path)
    found = sorted(name.rpartition("/")[0] for name in values(run) if "other" in name)
    assert found == ["points/00000001/scores", "scores"]
    wanted = one_run.Wanted(with_points().tasks, both, prepared)
    assert one_run.complete(run, wanted) and run.state == "done" and wanted.unmeasured(run) == 1
    study_runner._warn_of_missing_points([run], wanted)
    assert f"the weights were deleted; scores of these points are left out: {run.run_id} at 1 points" in caplog.text


@pytest.mark.parametrize("damage", ["changed", "missing", "stranger"])
def test_verify_names_what_is_wrong_with_a_point(run: RunDir, tmp_path: Path, damage: str) -> None:
    file = run.path / "points/00000004/heads/model.safetensors"
    if damage == "changed":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    elif damage == "missing":
        next((run.path / "points/00000004/scores").iterdir()).unlink()
    else:
        (file.parent / "extra").write_text("x")
    found = verify(RunStore(tmp_path))
    assert found.exit_code == 1 and "points/00000004" in found.text()


def test_a_score_of_another_point_is_damage(run: RunDir) -> None:
    (one,), (other,) = (list((run.path / place / "scores").iterdir()) for place in run.points())
    other.write_bytes(one.read_bytes())
    assert run.damage is not None and "is the score of another encoder" in run.damage


def test_fine_tuning_is_never_done_along_training(prepared: Prepared, toy: Suite) -> None:
    from workbench.tasks import Examples, Task

    rows = Examples(["a", "b"], None, [0, 1])
    task = Task("mine", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    spec = study_runner.bind(with_points(), prepared)
    both = one_run.Wanted(spec.tasks, replace(toy, tasks=(*toy.tasks, task)), prepared)
    assert [one.suite for one in both.series(spec, plan(spec))] == ["minimal-pairs"]
    assert not one_run.Wanted(spec.tasks, Suite((task,)), prepared).during_training
    assert isinstance(toy.tasks[0], PairSet)


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


@contextmanager
def killed_at(point: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Training inside is interrupted at the point of a step, before or after its weights are kept."""
    real = plans.Snapshots.keep

    def killed(self: Any, model: Any, step: int, seconds: float) -> None:
        if step != point or after:
            real(self, model, step, seconds)
        if step == point:
            raise Interrupted(9)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(plans.Snapshots, "keep", killed)
        yield


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_run_keeps_the_same_points(
    pointed: RunDir, prepared: Prepared, toy: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Killed at the point of step 4, before or after it was kept, with the last checkpoint at step 3."""
    with killed_at(4, after, monkeypatch):
        carried_out(with_points(), prepared, toy, tmp_path / "cut")
    cut = RunStore(tmp_path / "cut").get(pointed.run_id)
    assert len(cut.points()) == 1 + after and not cut.trained and verify(RunStore(tmp_path / "cut")).exit_code == 0
    if after:  # what lies beyond the checkpoint is kept anew, so that all points are of one training
        (cut.path / "points/00000004/encoder/model.safetensors").write_bytes(b"of another training")
    carried_out(with_points(), prepared, toy, tmp_path / "cut")
    assert cut.points() == pointed.points()
    assert all(weights(cut, place) == weights(pointed, place) for place in ["", *pointed.points()])
    assert values(cut) == values(pointed) and len(values(cut)) == 3
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


def points_at(steps: Sequence[int], folder: Path) -> tuple[plans.Snapshots, nn.Module]:
    """The snapshots of a new run with points at these steps, and a model of the run."""
    spec = with_points()
    run = RunStore(folder / "runs").open(BoundRun(spec))
    tokenizer = folder / "words"
    tokenizer.mkdir()
    (tokenizer / "vocab.txt").write_text("x" * 100)
    points = [Point(step, f"{5 * step} %") for step in steps]
    kept = plans.Snapshots(run, spec, plan(spec), tokenizer, points)
    return kept, objectives.build(spec, build_encoder(spec))


def test_points_after_the_step_that_training_continues_from_are_taken_away(tmp_path: Path) -> None:
    kept, model = points_at((2, 4, 6), tmp_path)
    run, made = kept.run, kept.plan
    assert [step for step in range(8) if kept.due(step)] == [2, 4, 6]
    weights = made.parameters["total"]
    assert kept.room(0, weights) == 3 * (4 * weights + 2 * 100 + plans.DESCRIPTIONS) and kept.room(
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
