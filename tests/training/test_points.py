"""Points of training: which steps they are, and what is measured there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import STEPS, carried_out, values, with_points

from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.execution import one_run, study_runner
from workbench.spec.host import Host
from workbench.store import validation
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.store.verify import verify
from workbench.tasks import Suite
from workbench.tasks.common.contract import Model, expected, take
from workbench.tasks.minimal_pairs import PairSet
from workbench.training import snapshots
from workbench.training.plan import plan, spent_by

# ---- which steps ----


def test_log_points_have_equal_distances_over_two_decades() -> None:
    shares = snapshots.shares(6)
    assert [round(float(100 * share), 2) for share in shares] == [1, 2.15, 4.64, 10, 21.54, 46.42]
    assert snapshots.shares(3) == shares[::2], "a shorter series is a part of a longer one"
    found = snapshots.log_points(plan(with_points(budget__steps=10_000)), 6, "matmul")
    assert [p.step for p in found] == [100, 215, 464, 1000, 2154, 4642]
    assert [p.mark for p in found] == ["1 %", "2.15 %", "4.64 %", "10 %", "21.5 %", "46.4 %"]
    assert [p.step for p in snapshots.log_points(plan(with_points()), 3, "matmul")] == STEPS


def test_points_of_a_branch_lie_in_its_own_part_and_count_what_its_trunk_spent() -> None:
    trunk = {"schedule.kind": "constant"}
    spec = with_points(schedule__kind="wsd", start__parent=trunk, start__share=0.05, budget__steps=1000)
    found = snapshots.log_points(plan(spec), 6, "matmul")
    assert [p.step for p in found] == [100, 215, 464], "those below 50 are the trunk's"
    child = with_points(
        start__take="encoder", start__parent={"objective": "bert-mlm"}, budget__steps=None, budget__tokens=64_000
    )
    priced = plan(child)
    spent = [spent_by(priced, child, p.step)["flops"]["paper"] for p in snapshots.log_points(priced, 2, "paper")]
    assert spent == [], "half of its budget is the parent's, so 1 % and 10 % were passed before it began"
    (late,) = snapshots.log_points(priced, 8, "paper")[-1:]
    share = spent_by(priced, child, late.step)["flops"]["paper"] / priced.flops["paper"]
    assert late.mark == "56.2 %" and share == pytest.approx(0.562, abs=0.002)


def test_word_points_are_the_last_steps_before_each_amount() -> None:
    spec = with_points(budget__steps=None, budget__tokens=64.0 * 10**6, data__words=8, data__tokens=14)
    found = snapshots.word_points(spec, plan(spec))  # of 64 tokens of a step 56 are text, 32 words: 32 million in all
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


def test_damage_in_a_point_is_named_with_its_step(prepared: Prepared, toy: Suite, tmp_path: Path) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
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
    monkeypatch.setattr(snapshots, "WORDS", tuple(range(100, 700, 100)))
    run = carried_out(with_points(tasks__at="words"), prepared, toy, tmp_path)
    per_step = 4 * 14 * prepared.words / prepared.tokens  # two of sixteen tokens are [CLS] and [SEP]
    assert [snapshots.step_of(place) for place in run.points()] == [int(n / per_step) for n in range(100, 700, 100)]
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


def test_more_points_than_a_run_kept_are_said(prepared: Prepared, toy: Suite, tmp_path: Path) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
    assert one_run.Wanted(with_points().tasks, toy, prepared).unmeasured(run) == 0
    more = one_run.Wanted(with_points(tasks__at="log:6").tasks, toy, prepared)
    lacking = {p.step for p in more.points(run.spec(), plan(run.spec()))} - set(STEPS)
    assert len(lacking) == more.unmeasured(run) == 2 and one_run.complete(run, more)


def test_a_point_whose_weights_were_deleted_keeps_its_scores_and_gets_no_others(
    prepared: Prepared, toy: Suite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
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
def test_verify_names_what_is_wrong_with_a_point(prepared: Prepared, toy: Suite, tmp_path: Path, damage: str) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
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


def test_weights_of_points_may_be_deleted_once_they_are_measured(
    prepared: Prepared, toy: Suite, tmp_path: Path
) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
    for place in run.points():
        shutil.rmtree(run.path / place / "encoder")
        shutil.rmtree(run.path / place / "heads")
    assert run.state == "done" and not run.damage
    carried_out(with_points(), prepared, toy, tmp_path)
    assert run.state == "done" and len(values(run)) == 3


def test_a_score_of_another_point_is_damage(prepared: Prepared, toy: Suite, tmp_path: Path) -> None:
    run = carried_out(with_points(), prepared, toy, tmp_path)
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
