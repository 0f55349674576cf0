"""Notes, removal, pruning, copying and moving of runs: what they do, and that a kill at any moment loses nothing."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_runs import two_stage
from written_runs import SPEC, begun, finished

from workbench.errors import InputError, LeaseHeld
from workbench.report.load import runs_table, study_tables
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store import atomic, cache, checkpoint, manage, manifest, moving
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore
from workbench.store.verify import verify

RECORD = "ablation-nano-1"
SETTLED = {"done", "trained", "interrupted"}


@pytest.fixture(scope="module")
def whole(four_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one study, the first one with a note and a tag."""
    store = RunStore(shutil.copytree(four_runs, tmp_path_factory.mktemp("whole") / "runs"))
    runs = [run_of(store, seed).run_id for seed in range(4)]
    store.extend_experiment(ExperimentRecord(RECORD, experiment="ablation", runs=runs))
    manage.annotate(run_of(store, 0), lambda notes: notes.noted("first").tagged(["best"]))
    return store.root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> RunStore:
    return RunStore(shutil.copytree(whole, tmp_path / "runs"))


def run_of(store: RunStore, seed: int) -> RunDir:
    return RunDir(store.root / BoundRun(ResolvedSpec(SPEC.replace(seed=seed))).run_id)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without what a lease or a temporary name is."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lease" and ".tmp-" not in str(path) and ".trash-" not in str(path)
    }


def is_sound(store: RunStore) -> None:
    """Each run has a state that is true of it, and no file differs from its hash."""
    found = verify(store)
    assert found.exit_code == 0, found.text()
    assert {run.summary(full=True)["state"] for run in store.runs()} <= SETTLED


# ---- killed at any moment ----

CALLS = ("rename", "link", "unlink", "mkdir", "rmdir", "open")  # every call that changes a folder


def ends_before(count: int, work: Callable[[], object]) -> bool:
    """Carry out `work` in a process that is killed just before its change `count` of the disk; whether it got there."""
    child = os.fork()
    if not child:
        left = [count]

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object, **named: object) -> object:
                writes = real is not kept["open"] or (len(args) > 1 and int(str(args[1])) & os.O_CREAT)
                if writes:
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                return real(*args, **named)

            return call

        kept = {name: getattr(os, name) for name in CALLS}
        try:
            os.fsync = lambda fd: None
            for name in CALLS:
                setattr(os, name, counted(kept[name]))
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def drill(
    whole: Path, folder: Path, work: Callable[[RunStore], object], check: Callable[[RunStore], None], least: int,
    every: int = 1,
) -> None:  # fmt: skip
    """Kill `work` before each of its changes; `check` the store afterwards, and again after `work` was repeated.

    With `every`, one of so many changes is tried, others each time.
    """
    for count in range(random.Random(time.time_ns()).randrange(every), 600, every):
        store = RunStore(shutil.copytree(whole, folder / "runs"))
        killed = ends_before(count, lambda store=store: work(store))
        is_sound(store)
        check(store)
        if not killed:
            break
        work(store)
        is_sound(store)
        check(store)
        for path in folder.iterdir():
            shutil.rmtree(path)
    assert least < count < 600 - every


@pytest.fixture
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.usefixtures("no_flush")
def test_a_kill_while_a_run_is_removed_or_restored_loses_nothing(whole: Path, tmp_path: Path) -> None:
    before = content(run_of(RunStore(whole), 0).path)

    def work(store: RunStore) -> None:
        if run_of(store, 0).path.exists():
            manage.remove(store, run_of(store, 0))
        manage.restore(store, manage.removed(store)[-1])

    def check(store: RunStore) -> None:
        run = run_of(store, 0)
        places = [place for place in (run.path, store.root / "trash" / run.run_id) if place.exists()]
        assert [content(place) for place in places] == [before]
        assert bool(store.removal(run.run_id)) == (places[0] != run.path)
        assert len(store.runs()) == 3 + (places[0] == run.path)

    drill(whole, tmp_path, work, check, 8, every=2)


@pytest.mark.usefixtures("no_flush")
def test_a_kill_while_the_trash_is_emptied_deletes_nothing_else(whole: Path, tmp_path: Path) -> None:
    filled = shutil.copytree(whole, tmp_path / "filled")
    for seed in (0, 1):
        manage.remove(RunStore(filled), run_of(RunStore(filled), seed))
    first, second = (run_of(RunStore(filled), seed).run_id for seed in (0, 1))
    before = content(filled / "trash" / second)

    def work(store: RunStore) -> None:
        manage.empty(store, [each for each in manage.removed(store) if each.run_id == first])

    def check(store: RunStore) -> None:
        assert content(store.root / "trash" / second) == before
        whole_first = [each for each in manage.removed(store) if each.run_id == first]
        assert not whole_first or content(whole_first[0].path) == content(filled / "trash" / first)
        assert store.removal(first).startswith("removed on ")

    (tmp_path / "drill").mkdir()
    drill(filled, tmp_path / "drill", work, check, 8, every=3)


@pytest.mark.usefixtures("no_flush")
@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_kill_while_a_run_is_pruned_leaves_a_finished_run(whole: Path, tmp_path: Path, checkpoints: bool) -> None:
    before = content(run_of(RunStore(whole), 0).path)
    gone = {name for name in before if name.startswith("checkpoints/") and (checkpoints or "optimizer" in name)}
    assert len(gone) == (8 if checkpoints else 2)

    def check(store: RunStore) -> None:
        run = run_of(store, 0)
        now = content(run.path)
        assert run.summary(full=True)["state"] == "done"
        assert {name for name in before if now.get(name) != before[name]} <= gone
        assert set(now) - set(before) <= {"pruned.json"}

    drill(whole, tmp_path, lambda store: manage.prune(run_of(store, 0), checkpoints), check, 5, every=2)


@pytest.mark.usefixtures("no_flush")
def test_a_kill_while_notes_are_written_leaves_the_former_or_the_new_ones(whole: Path, tmp_path: Path) -> None:
    def check(store: RunStore) -> None:
        notes = manage.notes_of(run_of(store, 0))
        assert not notes.damage and notes.text == "first" and notes.tags in [("best",), ("best", "slow")]

    def work(store: RunStore) -> None:
        manage.annotate(run_of(store, 0), lambda notes: notes.tagged(["slow"]))

    drill(whole, tmp_path, work, check, 3)


def moved(store: RunStore) -> list[moving.Step]:
    """Move the study to the store beside this one."""
    target = RunStore(store.root.with_name("other"))
    records = [each for each in store.experiments() if each.name == RECORD]
    return moving.move(store, target, records, moving.steps(target, moving.runs_of(store, records)))


@pytest.mark.usefixtures("no_flush")
def test_a_kill_while_a_study_is_moved_leaves_each_run_whole_in_a_store(whole: Path, tmp_path: Path) -> None:
    """Of two runs, so that the drill stays short: one finished, one not."""
    two = RunStore(shutil.copytree(whole, tmp_path / "two"))
    for seed in (1, 2):
        shutil.rmtree(run_of(two, seed).path)
    expected = {run.run_id: content(run.path) for run in two.runs()}

    def check(store: RunStore) -> None:
        target = RunStore(store.root.with_name("other"))
        is_sound(target)
        for run_id, files in expected.items():
            places = [each.root / run_id for each in (store, target) if (each.root / run_id).exists()]
            assert places and all(content(place) == files for place in places)
        records = [record.name for each in (store, target) for record in each.experiments()]
        assert set(records) == {RECORD}

    (tmp_path / "drill").mkdir()
    drill(two.root, tmp_path / "drill", moved, check, 60, every=8)
    last = RunStore(tmp_path / "drill" / "runs")
    assert not last.runs() and not last.experiments() and len(RunStore(tmp_path / "drill" / "other").runs()) == 2
    assert all("moved to" in last.removal(run_id) for run_id in expected)


# ---- notes and tags ----


def test_notes_are_no_part_of_a_run(store: RunStore) -> None:
    """Neither of its identity nor of its manifest, and a run may be annotated while it is trained."""
    run = run_of(store, 1)
    before = content(run.path)
    with run.lease(), pytest.raises(LeaseHeld), RunDir(run.path).lease(patience=0):
        pass
    with run.lease():
        manage.annotate(RunDir(run.path), lambda notes: notes.noted("  seen while it ran\n").tagged(["a", "b", "a"]))
    manage.annotate(run, lambda notes: notes.tagged(remove=["a"]))
    assert manage.notes_of(run).text == "seen while it ran" and manage.notes_of(run).tags == ("b",)
    after = content(run.path)
    assert {name for name in after if after[name] != before.get(name)} == {"notes/notes.json"}
    is_sound(store)


def test_notes_of_commands_at_the_same_time_are_all_kept(store: RunStore) -> None:
    run, context = run_of(store, 1), multiprocessing.get_context("fork")
    children = [
        context.Process(target=manage.annotate, args=(run, lambda notes, n=n: notes.noted(f"note {n}")))
        for n in range(6)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert sorted(note["text"] for note in manage.notes_of(run).notes) == [f"note {n}" for n in range(6)]


def test_changed_notes_are_named_and_not_overwritten(store: RunStore) -> None:
    run = run_of(store, 0)
    path = run.path / "notes" / "notes.json"
    path.write_bytes(changed := path.read_bytes().replace(b"first", b"f1rst"))
    assert run.state == "done" and [each.file for _, each in verify(store).differences] == ["notes/notes.json"]
    with pytest.raises(InputError, match=r"notes.json has changed since it was written.*; move that file away"):
        manage.annotate(run, lambda notes: notes.noted("x"))
    assert path.read_bytes() == changed


def test_lists_and_conditions_have_tags(store: RunStore) -> None:
    manage.annotate(run_of(store, 1), lambda notes: notes.tagged(["best-of-all", "slow"]))
    manage.annotate(run_of(store, 2), lambda notes: notes.tagged(["slow", "best"]))
    rows = runs_table.rows(store)
    for condition, seeds in {"tags=best": [0, 2], "tags=slow": [1, 2], "tags!=best": [1, 3], "tags=": [3]}.items():
        assert [row["seed"] for row in runs_table.filtered(rows, [condition], "seed")] == seeds, condition
    shown = runs_table.with_columns(rows, runs_table.filtered(rows, [], "seed"), None)
    assert [(row["tags"], row["notes"]) for row in shown] == [
        ("best", "first"), ("best-of-all, slow", ""), ("slow, best", ""), ("", "")
    ]  # fmt: skip
    assert "tags" not in runs_table.with_columns(rows, runs_table.filtered(rows, ["tags="], None), None)[0]


# ---- removal ----


def test_a_removed_run_is_said_to_be_removed_until_it_is_back(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of(store, 1)
    before = content(run.path)
    manage.remove(store, run)
    assert verify(store).exit_code == 0 and f"{run.run_id} (removed on 20" in verify(store).text()
    row = study_tables.read_and_warn(store, RECORD).by_id()[run.run_id]
    assert row["state"] == "missing" and row["reason"].startswith("removed on 20")
    assert f"{run.run_id} is missing and is left out: it was removed on 20" in caplog.text
    shutil.copytree(store.root / "trash" / run.run_id, run.path)  # as if it were trained again
    assert not store.removal(run.run_id)
    manage.annotate(run, lambda notes: notes.noted("the second"))
    manage.remove(store, run)
    assert [each.run_id for each in manage.removed(store)] == [run.run_id] * 2
    first, second = manage.removed(store)
    assert manage.notes_of(manage.restore(store, second)).text == "the second"
    with pytest.raises(InputError, match=r"exists, so .* stays in the trash; remove that run first"):
        manage.restore(store, first)
    assert (
        content(first.path) == before and study_tables.read_study(store, RECORD).by_id()[run.run_id]["state"] == "done"
    )


def test_a_run_that_is_used_or_needed_is_refused(store: RunStore) -> None:
    bound = BoundRun(ResolvedSpec(two_stage()))
    of_parent = bound.parent()
    assert of_parent is not None
    child, parent = store.open(bound), store.open(of_parent)
    used = run_of(store, 0)
    with used.lease():
        refused = manage.refusals(store, [used, parent, run_of(store, 1)])
        with pytest.raises(LeaseHeld):
            manage.remove(store, RunDir(used.path))
    assert set(refused) == {used.run_id, parent.run_id} and used.path.is_dir() and not manage.removed(store)
    assert "in use by process" in refused[used.run_id] and child.run_id in refused[parent.run_id]
    assert manage.refusals(store, [parent, child]) == {}
    with child.lease():
        refused = manage.refusals(store, [parent, child])
    assert set(refused) == {parent.run_id, child.run_id}, "a run that stays keeps its parent"
    assert [run.run_id for run in manage.parents_first([child, parent])] == [parent.run_id, child.run_id]


def test_each_run_that_cannot_be_removed_is_named_and_the_others_are(store: RunStore) -> None:
    gone, run = run_of(store, 0), run_of(store, 1)
    shutil.rmtree(gone.path)
    failed = manage.each_run(lambda each: manage.remove(store, each), [gone, run])
    assert list(failed) == [gone.run_id] and "is not there any more" in failed[gone.run_id]
    assert not run.path.exists()


# ---- pruning and sizes ----


def test_a_pruned_run_is_whole_but_for_what_was_pruned(store: RunStore) -> None:
    run = run_of(store, 0)
    freed = sum(path.stat().st_size for path in run.path.rglob("optimizer.safetensors"))
    assert manage.prune(run, False) == freed == manage.sizes(run_of(store, 1).path)["optimizer"] > 0
    assert verify(store).exit_code == 0 and manage.sizes(run.path)["optimizer"] == 0
    newest = checkpoint.newest(run.path / "checkpoints")
    assert newest is not None and not newest.warnings and list(newest.tensors("model")) == ["w"]
    with pytest.raises(InputError, match="has no tensors called 'optimizer': they were pruned"):
        newest.tensors("optimizer")
    (newest.path / "model.safetensors").unlink()
    assert run.summary(full=True)["state"] == "damaged", "only what was pruned may be missing"
    with pytest.raises(InputError, match="is not finished"):
        manage.prune(run_of(store, 3), True)
    assert set(manage.keeps_checkpoints(store, store.runs())) == {run.run_id, run_of(store, 3).run_id}


def test_a_list_of_pruned_files_that_was_changed_hides_nothing(store: RunStore) -> None:
    run = run_of(store, 0)
    manage.prune(run, False)
    path = run.path / manifest.PRUNED
    path.write_bytes(path.read_bytes().replace(b"optimizer", b"model", 1))
    assert run.summary(full=True)["state"] == "damaged" and verify(store).exit_code == 1


def test_sizes_are_those_of_the_files(store: RunStore) -> None:
    for run in store.runs():
        sizes = manage.sizes(run.path)
        told = subprocess.run(["du", "-sb", "--apparent-size", run.path], capture_output=True, text=True, check=True)
        folders = sum(path.stat().st_size for path in (run.path, *run.path.rglob("*")) if path.is_dir())
        assert sizes.pop("bytes") == int(told.stdout.split()[0]) - folders == sum(sizes.values())


def test_only_what_nobody_uses_is_removed_from_a_cache(tmp_path: Path) -> None:
    day = time.time() - 86400
    for name, age in {"old": 40, "read": 40, "new": 1}.items():
        with cache.staged(tmp_path / "data" / name) as folder:
            (folder / "shard.bin").write_bytes(b"12345")
        for path in (tmp_path / "data" / name, *(tmp_path / "data" / name).iterdir()):
            os.utime(path, (day if name == "read" else time.time() - age * 86400, time.time() - age * 86400))
    (left := tmp_path / "probes" / f"{atomic.STAGE}{'a' * 32}").parent.mkdir()
    left.write_text("x")
    os.utime(left, (day, day))
    found = {each.entry.name: each for each in cache.unused(tmp_path, 30)}
    assert set(found) == {"old", left.name} and found["old"].bytes > 5 and "left by" in found[left.name].why
    assert {each.entry.name for each in cache.unused(tmp_path, 0)} == {"old", "read", "new", left.name}


# ---- between stores ----


def copied(store: RunStore, target: RunStore) -> list[moving.Step]:
    records = store.experiments()
    return moving.copy(target, records, moving.steps(target, moving.runs_of(store, records)))


def test_a_copied_study_is_the_same(store: RunStore, tmp_path: Path) -> None:
    target = RunStore(tmp_path / "other")
    assert copied(store, target) == [] == copied(store, target)
    assert [content(run.path) for run in target.runs()] == [content(run.path) for run in store.runs()]
    assert target.experiments() == store.experiments() and not (target.root / ".incoming").exists()
    is_sound(target)
    done = run_of(target, 0).path
    assert (done / "done.json").stat().st_ctime_ns >= (done / "encoder/model.safetensors").stat().st_ctime_ns


def test_folders_without_files_are_copied_and_links_are_refused(store: RunStore, tmp_path: Path) -> None:
    (run_of(store, 0).path / "heads").mkdir()
    (run_of(store, 0).path / "my own words.txt").write_text("kept")
    (run_of(store, 1).path / "elsewhere").symlink_to(tmp_path)
    assert [(step.run.run_id, "is a symbolic link" in step.why) for step in moved(store)] == [
        (run_of(store, 1).run_id, True)
    ]
    target = RunStore(tmp_path / "other")
    assert (run_of(target, 0).path / "heads").is_dir() and run_of(target, 0).has_weights()
    assert (run_of(target, 0).path / "my own words.txt").read_text() == "kept" and len(store.runs()) == 4


def test_the_same_run_in_two_stores_is_one(store: RunStore, tmp_path: Path) -> None:
    """Scores and notes are joined, the run that has got further stays, and other weights are not mixed."""
    target = RunStore(shutil.copytree(store.root, tmp_path / "other"))
    scores = run_of(store, 0).scores()
    run_of(target, 0).remove(f"scores/{(lost := next(iter(scores)))}")
    manage.annotate(run_of(target, 0), lambda notes: notes.noted("elsewhere").tagged(["theirs"]))
    shutil.rmtree(run_of(target, 1).path)
    begun(target, 1)
    shutil.rmtree(run_of(store, 2).path)
    begun(store, 2)
    shutil.rmtree(run_of(target, 3).path)
    finished(target, 3)
    theirs = {seed: content(run_of(target, seed).path) for seed in (2, 3)}
    acts = {step.run.run_id: step.act for step in moving.steps(target, store.runs())}
    assert [acts[run_of(store, seed).run_id] for seed in range(4)] == ["join", "replace", "keep", "keep"]
    assert copied(store, target) == []
    assert run_of(target, 0).scores() == scores and lost in run_of(target, 0).scores()
    notes = manage.notes_of(run_of(target, 0))
    assert {note["text"] for note in notes.notes} == {"first", "elsewhere"} and set(notes.tags) == {"best", "theirs"}
    assert content(run_of(target, 1).path) == content(run_of(store, 1).path)
    assert [each.run_id for each in manage.removed(target)] == [run_of(target, 1).run_id], "what was replaced"
    assert {seed: content(run_of(target, seed).path) for seed in (2, 3)} == theirs
    is_sound(target)


def test_a_move_keeps_what_the_target_lacks(store: RunStore, tmp_path: Path) -> None:
    """A run of another study stays, and a run with other weights goes to the trash instead of being deleted."""
    target = RunStore(tmp_path / "other")
    store.extend_experiment(ExperimentRecord("tuning-nano-2", experiment="tuning", runs=[run_of(store, 1).run_id]))
    other = finished(target, 0)
    with other.staged("encoder") as folder:
        (folder / "model.safetensors").write_bytes(b"other weights")
    (other.path / "done.json").unlink()
    shutil.rmtree(other.path / "scores")
    (other.path / "wanted.json").unlink()
    (other.path / manifest.NAME).unlink()
    other.finish({"steps": 4, "tokens": 512, "flops": {}})
    mine = content(run_of(store, 0).path)
    assert moved(store) == []
    assert [run.run_id for run in store.runs()] == [run_of(store, 1).run_id]
    assert [each.name for each in store.experiments()] == ["tuning-nano-2"]
    assert content(store.root / "trash" / other.run_id) == mine and len(target.runs()) == 4
    is_sound(store)
    is_sound(target)


@pytest.mark.parametrize("name", ["encoder/model.safetensors", "metrics.jsonl", "scores"])
def test_nothing_is_moved_if_a_file_has_changed(store: RunStore, tmp_path: Path, name: str) -> None:
    path = run_of(store, 0).path / name
    path = next(path.iterdir()) if path.is_dir() else path
    before = path.read_bytes()
    path.write_bytes(before[:-9] + bytes([before[-9] ^ 1]) + before[-8:])
    time.sleep(0.02)
    os.utime(run_of(store, 0).path / "done.json")  # so that only its hash shows it
    assert [step.run.run_id for step in moved(store)] == [run_of(store, 0).run_id]
    target = RunStore(tmp_path / "other")
    assert len(store.runs()) == 4 and len(store.experiments()) == 1
    assert [run.run_id for run in target.runs()] == sorted(run_of(store, seed).run_id for seed in (1, 2, 3))
    path.write_bytes(before)
    assert moved(store) == [] and len(target.runs()) == 4 and not store.runs()


def test_a_copy_goes_on_with_what_is_missing(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a disk was full, the files that had been copied are not copied again."""
    target, real, left = RunStore(tmp_path / "other"), moving.write_parts, [9]

    def full(path: Path, parts: Iterator[bytes]) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        left[0] -= 1
        real(path, parts)

    monkeypatch.setattr(moving, "write_parts", full)
    with pytest.raises(OSError, match="free some disk space and give the same command again"):
        copied(store, target)
    assert not target.runs() and len(store.runs()) == 4
    had = {path: path.stat().st_ino for path in (target.root / ".incoming").rglob("*") if path.is_file()}
    assert len(had) == 9
    left[0] = 10**6
    assert copied(store, target) == []
    now = {path.stat().st_ino for run in target.runs() for path in run.path.rglob("*") if path.is_file()}
    assert set(had.values()) <= now
    is_sound(target)


def test_a_run_that_is_in_use_is_not_copied(store: RunStore, tmp_path: Path) -> None:
    with run_of(store, 0).lease():
        assert [step.run.run_id for step in moved(store)] == [run_of(store, 0).run_id]
    assert len(RunStore(tmp_path / "other").runs()) == 3 and len(store.runs()) == 4
    for target in (store.root, store.root / "inner", store.root.parent):
        with pytest.raises(InputError, match="lies in the store"):
            moving.check_apart(store.root, target)


@pytest.fixture
def read_only(store: RunStore) -> Iterator[RunStore]:
    """The store on a disk that cannot be written."""
    mounts = [["--bind", store.root, store.root], ["-o", "remount,ro,bind", store.root]]
    if any(subprocess.run(["mount", *words], capture_output=True).returncode for words in mounts):
        pytest.skip("a disk can be made read-only by root alone")
    yield store
    subprocess.run(["umount", store.root], check=True)


def test_a_read_only_store_is_copied_and_not_changed(read_only: RunStore, tmp_path: Path) -> None:
    target, run = RunStore(tmp_path / "other"), run_of(read_only, 0)
    assert copied(read_only, target) == [] and len(target.runs()) == 4
    acts: list[Callable[[], object]] = [
        lambda: manage.remove(read_only, run), lambda: manage.prune(run, True),
        lambda: manage.annotate(run, lambda notes: notes.noted("x")),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(OSError, match="Read-only file system"):
            act()
    is_sound(read_only)


def test_records_are_joined(store: RunStore, tmp_path: Path) -> None:
    target = RunStore(tmp_path / "other")
    target.extend_experiment(ExperimentRecord(RECORD, experiment="ablation", runs=["rtd-nano-s9-000000000000"]))
    copied(store, target)
    assert target.experiment(RECORD).runs == ["rtd-nano-s9-000000000000", *store.experiment(RECORD).runs]
