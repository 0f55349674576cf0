"""The folder of a run: its state is read from its files, and only its owner writes to it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from limits import files_of_at_most
from written_runs import SPEC, begun, finish, one_line, rows, score

from workbench.errors import InputError, LeaseHeld, LeaseLost
from workbench.spec.stages import BoundRun
from workbench.store import manifest
from workbench.store.run_directory import home_of
from workbench.store.run_store import RunDir, RunStore


def test_every_state_is_read_from_files(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    assert run.state == "new"
    run.write_json("plan.json", {"steps": 4, "tokens": 512, "flops": {}})
    assert run.state == "interrupted"
    with run.lease():
        assert run.state == "running" and f"process {os.getpid()}" in run.note
    assert run.state == "interrupted"
    run.fail("failed", "RuntimeError: no", step=2, where="train", trace="Traceback ...")
    assert run.state == "failed" and run.note == "RuntimeError: no"
    assert (run.path / run.read_json("error.json")["log"]).read_text() == "Traceback ..."
    run.fail("diverged", "loss nan at step 3", step=3)
    assert run.state == "diverged" and run.read_json("error.json")["step"] == 3
    run.clear_error()
    assert run.state == "interrupted" and not (run.path / "error.log").exists()
    assert not run.trained
    finish(run)
    assert run.trained and run.state == "trained"
    run.want(["package-0.json", "order-0.json"])
    told = score(run)
    assert run.state == "trained"
    score(run, "order-0.json")
    assert run.state == "done"
    run.want(["order-0.json"])
    assert run.state == "done"
    run.want(["next-0.json"])
    assert run.state == "trained"
    assert run.scores() == {"package-0.json": told, "order-0.json": told}
    summary = run.summary()
    assert (summary["run_id"], summary["state"], summary["note"]) == (run.run_id, "trained", "")


def test_a_damaged_checkpoint_of_an_unfinished_run_is_told_with_its_state(store: RunStore) -> None:
    """The next command goes on from the one before, which costs the steps in between."""
    run = begun(store, 0)
    assert (run.state, run.note) == ("interrupted", "")
    weights = run.path / "checkpoints" / "step-00000004" / "model.safetensors"
    os.truncate(weights, 5)
    told = "step-00000004 is damaged: model.safetensors has 5 bytes instead of "
    assert run.state == "interrupted" and run.note.startswith(told), run.note
    run.fail("failed", "RuntimeError: no")
    assert run.state == "failed" and run.note.startswith("RuntimeError: no; step-00000004 is damaged: model.safe")
    run.clear_error()
    weights.unlink()
    assert run.note == "step-00000004 is damaged: model.safetensors is missing"


def test_without_tasks_trained_is_done(store: RunStore) -> None:
    assert finish(store.open(BoundRun(SPEC.changed({"tasks.names": "none"})))).state == "done"


def test_a_dead_owner_is_not_running(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    code = (
        f"import os; from workbench.store.run_store import *; r = RunStore({str(store.root)!r}).get({run.run_id!r})\n"
    )
    code += "with r.lease(): r.write_json('plan.json', dict(steps=1, tokens=1, flops={})); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (run.path / "lease").exists() and run.state == "interrupted"
    with run.lease(), pytest.raises(LeaseHeld, match=run.run_id), RunDir(run.path).lease():
        pass
    assert sorted(os.listdir(run.path)) == ["plan.json", "spec.json"]


def test_finish_takes_seconds_and_last_metrics_from_the_log(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC.changed({"budget.steps": 100})))
    finish(run, 100)
    done = run.read_json("done.json")
    assert done["format"] == 1 and done["seconds"] == 50.0 and done["steps"] == 100
    assert done["final"]["loss"] == pytest.approx(sum(1 / n for n in range(96, 101)) / 5)
    assert done["final"]["auc"] is None and "step" not in done["final"]
    assert run.metrics()[-1] == {"step": 100, "seconds": 50.0, "loss": 0.01, "auc": None}
    untrained = store.open(BoundRun(SPEC.changed({"budget.steps": 0})))
    untrained.finish({"steps": 0, "tokens": 0, "flops": {}})
    assert untrained.state == "trained" and untrained.read_json("done.json")["seconds"] == 0


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (None, "lacks the row of step 1"),
        ("", "lacks the row of step 1"),
        (rows(3), "lacks the row of step 4"),
        (rows(5), "has rows after step 4"),
        ("".join(line for line in rows(4).splitlines(keepends=True) if json.loads(line)["step"] != 2), "of step 2"),
    ],
)
def test_no_run_is_done_with_rows_missing(store: RunStore, logged: str | None, told: str) -> None:
    run = store.open(BoundRun(SPEC))
    if logged is not None:
        (run.path / "metrics.jsonl").write_text(logged)
    with pytest.raises(InputError, match=told):
        run.finish({"steps": 4, "tokens": 1, "flops": {}})
    assert not run.trained


@pytest.mark.parametrize("name", ["spec.json", "plan.json"])
def test_a_damaged_file_is_named_with_what_to_do(store: RunStore, name: str) -> None:
    run = store.open(BoundRun(SPEC))
    (run.path / name).write_text("{")
    with pytest.raises(InputError) as caught:
        RunDir(run.path).spec() if name == "spec.json" else run.read_json(name)
    assert one_line(caught).startswith(f"{run.path} is damaged: {name} cannot be read: ")
    assert str(caught.value).endswith(
        "; move that folder away and give the command that trained it again, which makes it anew "
        f"(workbench verify {run.path.parent} names every changed file)"
    )


def test_no_run_is_done_with_another_copy_of_its_objective(store: RunStore) -> None:
    source = hashlib.sha256(b"class Objective: ...").hexdigest()[:16]
    run = store.open(BoundRun(SPEC.replace(objective="mine", source=source)))
    run.write("objective.py", b"class 0bjective: ...")
    with pytest.raises(InputError, match=r"objective\.py has changed since it was written; give the same command"):
        finish(run)
    assert not run.trained and not (run.path / "manifest.json").exists()
    run.write("objective.py", b"class Objective: ...")  # as the command does when it goes on
    assert finish(run).state == "trained"


def test_writes_of_a_lost_owner_are_refused(store: RunStore) -> None:
    run, late = store.open(BoundRun(SPEC)), RunDir(store.root / BoundRun(SPEC).run_id)
    with late.lease() as lease:
        late.write_json("plan.json", {"steps": 1})
        (run.path / "lease").unlink()  # as after a long silence
        with run.lease():
            run.write_json("plan.json", {"steps": 2})
            before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
            for write in (
                lambda: late.write_json("plan.json", {"steps": 3}),
                lambda: late.write_json("scores/x.json", {}),
                lambda: late.fail("failed", "late", trace="x"),
                lambda: late.remove("plan.json"),
                lambda: late.staged("encoder").__enter__(),
                lambda: late.want(["a"]),
                late.check,
            ):
                with pytest.raises(LeaseLost):
                    write()
            assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
            assert lease.lost and run.owner is not None and not run.owner.lost


def test_staged_folders_are_whole_or_absent(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    for owned in (False, True):
        for text in ("one", "two"):
            with run.lease() if owned else run.staged("other"), run.staged("encoder") as draft:
                (draft / "config.json").write_text(text)
                assert not (run.path / "encoder" / "config.json").exists() or text == "two" or owned
            assert (run.path / "encoder" / "config.json").read_text() == text
    with pytest.raises(KeyError), run.staged("encoder") as draft:
        (draft / "config.json").write_text("half")
        raise KeyError
    assert (run.path / "encoder" / "config.json").read_text() == "two"
    assert not [name for name in os.listdir(run.path) if name.startswith(".")]


def test_a_failed_write_names_room_and_leaves_the_old_file(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    run.write_json("plan.json", {"old": 1})
    with files_of_at_most(1000), pytest.raises(OSError) as caught:
        run.write_json("plan.json", {"new": "x" * 3000})
    assert "bytes are needed" in one_line(caught) and str(run.path) in str(caught.value)
    assert run.read_json("plan.json") == {"old": 1}
    assert sorted(os.listdir(run.path)) == ["plan.json", "spec.json"]


def test_links_are_not_followed(store: RunStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    run = store.open(BoundRun(SPEC))
    (run.path / "scores").symlink_to(outside)
    with pytest.raises(InputError, match="symbolic link"):
        run.write_json("scores/x.json", {})
    assert "scores is a link or a file instead of a folder" in (run.damage or "")
    (run.path / "plan.json").symlink_to(outside / "plan.json")
    run.write_json("plan.json", {"mine": 1})  # the link is replaced, not followed
    assert os.listdir(outside) == [] and run.read_json("plan.json") == {"mine": 1}
    shutil.move(str(run.path), str(outside / run.run_id))
    run.path.symlink_to(outside / run.run_id)
    before = sorted(os.listdir(outside / run.run_id))
    for attempt in (
        lambda: store.open(BoundRun(SPEC)),
        lambda: run.write_json("env.json", {}),
        lambda: RunDir(run.path).spec(),
    ):
        with pytest.raises(InputError, match="symbolic link"):
            attempt()
    with pytest.raises(InputError, match="symbolic link"), run.lease():
        pass
    assert sorted(os.listdir(outside / run.run_id)) == before


def test_a_finished_run_lists_what_is_written_and_removed_later(store: RunStore) -> None:
    run = finish(store.open(BoundRun(SPEC)))
    listed = manifest.read(run.path)
    score(run)
    assert manifest.read(run.path) == manifest.entries(run.path) != listed
    run.write_score("order-0.json", {"format": 1}, {".test.txt": b"1\n"})
    both = {"scores/order-0.json", "predictions/order-0.test.txt"}
    assert both < (manifest.read(run.path) or {}).keys()
    for name in both:
        run.remove(name)
    run.remove("scores/package-0.json")
    assert manifest.read(run.path) == listed


def test_files_of_a_score_that_cannot_be_written_are_removed(store: RunStore) -> None:
    run = finish(store.open(BoundRun(SPEC)))
    (run.path / "scores").write_text("in the way")
    with pytest.raises(OSError, match="scores"):
        run.write_score("order-0.json", {"format": 1}, {".test.txt": b"1\n", ".dev.txt": b"2\n"})
    assert os.listdir(run.path / "predictions") == []
    assert manifest.read(run.path) == {k: v for k, v in manifest.entries(run.path).items() if k != "scores"}


def test_a_failed_evaluation_is_told_until_it_is_cleared(store: RunStore) -> None:
    run = store.open(BoundRun(SPEC))
    run.fail_score("CoLA-0.json", "CoLA", 0, "diverged", "the loss is no number", trace="Traceback ...", act="probing")
    assert run.failures() == {"CoLA-0.json": "probing on CoLA (seed 0) diverged: the loss is no number"}
    assert (run.path / run.failure_log("CoLA-0.json")).read_text() == "Traceback ..."
    assert (run.failure("CoLA-0.json") or {})["seed"] == 0 and run.failure("CoLA-1.json") is None
    run.clear_failure("CoLA-0.json")
    assert run.failures() == {} and os.listdir(run.path / "failures") == []


def test_an_encoder_s_folder_belongs_to_a_run_or_to_one_of_its_points(tmp_path: Path) -> None:
    for folder, place in ((tmp_path / "run", ""), (tmp_path / "run/points/00000100", "points/00000100/")):
        run, found = home_of(folder / "encoder")
        assert (run.path, found) == (tmp_path / "run", place)
    elsewhere = tmp_path / "points" / "mine"  # a folder of this name is no point
    assert home_of(elsewhere / "encoder")[0].path == elsewhere
