"""Damage by structure: every file of a finished store changed in every way, and what is told of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from written_runs import SPEC, begun, finished

from workbench.cli.read import status
from workbench.errors import InputError
from workbench.options import Output
from workbench.report.load import study_tables
from workbench.report.load.runs_table import find_record
from workbench.spec.scoring import score_file
from workbench.spec.stages import BoundRun
from workbench.store import manifest
from workbench.store.atomic import dumps, sealed
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore
from workbench.store.verify import Verified, verify

HARMLESS = {  # of an unfinished run: (file, damage) -> why nothing that reads the store is misled
    ("metrics.jsonl", "longer"): "what follows the newest checkpoint is dropped and logged again",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished siblings, one that is not, and two records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        store = RunStore(tmp_path_factory.mktemp("whole") / "runs")
        runs = [finished(store, seed) for seed in range(2)]
        begun(store, 2)
        for name in ("ablation-nano-1", "ablation-nano-2"):
            ids = [run.run_id for run in runs]
            record = ExperimentRecord(name=name, experiment="ablation", runs=ids, untrained=[store.runs()[-1].run_id])
            store.extend_experiment(record)
    return store.root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> RunStore:
    return RunStore(shutil.copytree(whole, tmp_path / "runs"))


def run_of(store: RunStore, seed: int) -> RunDir:
    return store.get(BoundRun(SPEC.replace(seed=seed)).run_id)


def damages(content: bytes, sibling: bytes | None, most: int = 12) -> Iterator[tuple[str, bytes | None]]:
    """Names of damages and what they leave of a file, None where it is gone. `most` digits and bits are changed."""
    digits = [i for i, byte in enumerate(content) if byte in b"0123456789"]
    draw = random.Random(len(content))
    for i in draw.sample(digits, min(most, len(digits))):
        yield f"digit {i}", content[:i] + str((int(chr(content[i])) + 1) % 10).encode() + content[i + 1 :]
    for i in draw.sample(range(len(content)), min(most, len(content))):
        yield f"bit in byte {i}", content[:i] + bytes([content[i] ^ 1 << draw.randrange(8)]) + content[i + 1 :]
    yield "cut", content[: len(content) // 2]
    yield "longer", content + b"\n"
    yield "emptied", b""
    yield "removed", None
    if sibling is not None:
        yield "exchanged", sibling


def put(path: Path, content: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def told_of(found: Verified) -> str:
    return "\n".join(f"{of}/{each.file}: {each.what}" for of, each in found.differences)


def test_nothing_differs_in_a_store_that_is_whole(store: RunStore) -> None:
    found = verify(store)
    assert found.exit_code == 0, told_of(found)
    assert found.runs == 3 and found.records == 2 and found.files > 40
    assert [of for of, _ in found.uncovered] == [run_of(store, 2).run_id]
    assert [run.summary(full=True)["state"] for run in store.runs()].count("done") == 2


def test_a_record_stripped_of_its_hash_is_not_taken_for_one_of_an_older_version(store: RunStore) -> None:
    path = store.root / "experiments" / "ablation-nano-1.json"
    raw = json.loads(path.read_text())
    del raw["content_sha256"]
    raw["runs"].pop()
    path.write_text(json.dumps(raw))
    with pytest.raises(InputError, match=r"is damaged: .* hash is missing.*; move it away"):
        store.experiment("ablation-nano-1")


def test_a_record_without_read_permission_is_not_called_damaged(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("workbench.store.run_store.read_object", refuse)
    with pytest.raises(InputError, match=r"json cannot be read: you have no permission; change its permissions$"):
        store.experiment("ablation-nano-1")


def test_a_run_that_a_record_lists_and_that_is_gone_is_named(store: RunStore) -> None:
    """It may not have begun: the command was stopped before, which is no damage."""
    gone = run_of(store, 1)
    shutil.rmtree(gone.path)
    found = verify(store)
    assert found.exit_code == 0 and found.runs == 2
    told = dict(found.uncovered)
    for record in ("ablation-nano-1", "ablation-nano-2"):
        said = told[f"experiments/{record}.json"]
        assert said == f"lists runs that have no folder, not begun or removed: {gone.run_id}"
    assert "have no folder" in found.text()


def test_no_damage_to_a_finished_run_passes(store: RunStore) -> None:
    run, sibling = run_of(store, 0), run_of(store, 1)
    silent, names = [], [*manifest.listing(run.path), manifest.NAME]
    assert len(names) == 22
    for name in names:
        path, other = run.path / name, sibling.path / name
        before = path.read_bytes()
        for damage, content in damages(before, other.read_bytes()):
            if content == before:
                continue
            put(path, content)
            if run.summary(full=True)["state"] != "damaged":
                silent.append((name, damage, "report"))
            if damage in ("cut", "removed", "exchanged") or "0" in damage:
                found = verify(store)
                if found.exit_code != 1 or {of for of, _ in found.differences} != {run.run_id}:
                    silent.append((name, damage, "verify"))
            put(path, before)
    assert not silent
    assert run.summary(full=True)["state"] == "done"


def test_no_damage_to_an_unfinished_run_passes(store: RunStore) -> None:
    """Its log is covered up to the newest checkpoint; its objective.py is a copy of what the spec has a hash of."""
    run, sibling, silent = run_of(store, 2), run_of(store, 0), []
    for name in sorted({*manifest.listing(run.path)} - {"objective.py"}):
        path = run.path / name
        before = path.read_bytes()
        for damage, content in damages(before, (sibling.path / name).read_bytes(), 4):
            put(path, content)
            if verify(store).exit_code != 1 and (name, damage) not in HARMLESS:
                silent.append((name, damage))
            put(path, before)
    assert not silent


@pytest.mark.parametrize("folder", ["encoder", "scores", "checkpoints"])
def test_exchanged_folders_are_refused(store: RunStore, folder: str) -> None:
    one, two = run_of(store, 0), run_of(store, 1)
    for source, target in ((one, "aside"), (two, one.run_id), (None, two.run_id)):
        path = store.root / "aside" if source is None else source.path / folder
        path.rename(store.root / target if target == "aside" else store.root / target / folder)
    assert [run.summary(full=True)["state"] for run in (one, two)] == ["damaged", "damaged"]
    assert {of for of, _ in verify(store).differences} == {one.run_id, two.run_id}
    if folder == "encoder":
        with pytest.raises(InputError, match="has changed"):
            one.check_weights("encoder")


def test_scores_of_another_place_are_refused(store: RunStore) -> None:
    """Copied from another run, swapped between seeds, swapped between tasks, or of another encoder."""
    run, other = run_of(store, 0), run_of(store, 1)
    names = {(task, n): score_file(task, "ab12cd34", n) for task in ("order", "next") for n in range(2)}
    scores = run.path / "scores"
    first = scores / names["order", 0]
    before = first.read_bytes()
    for source in (other.path / "scores" / names["order", 0], scores / names["order", 1], scores / names["next", 0]):
        first.write_bytes(source.read_bytes())
        assert run.damage and first.name in run.damage
        extra = scores / score_file("order", "ab12cd34", 7)
        first.write_bytes(before)
        extra.write_bytes(source.read_bytes())
        assert run.damage and extra.name in run.damage
        extra.unlink()
    told = run.read_json(f"scores/{first.name}")
    run.write_json(f"scores/{first.name}", told | {"encoder": other.weight_digests()["encoder"]})
    assert run.damage == f"scores/{first.name} is the score of another encoder"


def test_a_stray_file_beside_the_points_of_a_run_ends_nothing(store: RunStore) -> None:
    run = run_of(store, 0)
    (run.path / "points").mkdir(exist_ok=True)
    (run.path / "points" / "wanted.json").write_bytes(sealed({"format": 1, "run_id": run.run_id}))
    assert verify(store).runs == 3


def before_its_end(run: RunDir) -> None:
    """Let all files of a run seem older than its end, as if they changed on the disk by themselves."""
    time.sleep(0.02)  # the resolution of times is a few milliseconds
    os.utime(run.path / "done.json")


KINDS = ("encoder/model.safetensors", "encoder/config.json", "checkpoints/step-00000004/model.safetensors",
         "metrics.jsonl", "objective.py")  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_the_state_of_a_run_hashes_what_changed_after_its_end(
    store: RunStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, hashed = run_of(store, 0), []
    path, before, times = run.path / name, (run.path / name).read_bytes(), os.stat(run.path / name)
    real = manifest._sha256
    monkeypatch.setattr(manifest, "_sha256", lambda path: hashed.append(path) or real(path))
    before_its_end(run)
    assert run.damage is None and run.state == "done" and hashed == []
    path.write_bytes(flipped(before))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the change of the inode cannot be undone
    assert (run.state, run.note) == ("damaged", f"{name} has changed since it was written")
    assert hashed == [str(path)] * 2, "of a change this fresh, no hash is kept"
    path.write_bytes(before)
    assert run.state == "done"
    path.write_bytes(flipped(before))
    before_its_end(run)
    assert run.state == "done" and run.examine(full=True).state == "damaged"


def test_a_file_that_changed_some_time_ago_is_hashed_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run, hashed = run_of(store, 0), []
    path = run.path / "encoder" / "model.safetensors"
    real = manifest._sha256
    monkeypatch.setattr(manifest, "_sha256", lambda path: hashed.append(path) or real(path))
    before_its_end(run)
    path.write_bytes(flipped(path.read_bytes()))
    monkeypatch.setattr(manifest, "SETTLED", -1.0)
    assert run.state == run.state == "damaged" and hashed == [str(path)]
    time.sleep(0.02)
    path.write_bytes(flipped(path.read_bytes()))
    assert run.state == "done" and hashed == [str(path)] * 2
    assert run.examine(full=True).state == "done" and len(hashed) > 3, "a full check reads every file"


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_status_names_a_damaged_record(store: RunStore, caplog: pytest.LogCaptureFixture) -> None:
    status(Output(runs=store.root))
    assert not caplog.messages
    record = next((store.root / "experiments").glob("*.json"))
    record.write_text(record.read_text().replace('"runs":["', '"runs":["x'))
    status(Output(runs=store.root))
    assert len(caplog.messages) == 1 and record.name in caplog.messages[0]


def test_a_report_leaves_out_what_only_a_full_check_sees(store: RunStore) -> None:
    run, name = run_of(store, 0), "ablation-nano-1"
    (run.path / "encoder" / "model.safetensors").write_bytes(bytes(400))
    before_its_end(run)
    found = study_tables.read_study(store, name)
    row = found.by_id()[run.run_id]
    assert row["state"] == "damaged" and "model.safetensors has changed" in row["reason"] and row["seed"] == 0
    assert set(found.scores["run_id"]) == {run_of(store, 1).run_id} and found.settings[run.run_id] != {}
    trusting = study_tables.read_study(store, name, verify=False)
    assert run.run_id in set(trusting.scores["run_id"])
    assert trusting.notes == ("Files were not compared with their hashes (--no-verify).",) and not found.notes


def test_an_encoder_or_checkpoints_may_be_deleted_whole(store: RunStore) -> None:
    """No report reads them. What needs them says that they are gone, and so does `verify`."""
    run = run_of(store, 0)
    shutil.rmtree(run.path / "encoder")
    shutil.rmtree(run.path / "checkpoints")
    assert run.summary(full=True)["state"] == "done"
    assert {each.kind for _, each in verify(store).differences} == {"spared"}
    with pytest.raises(InputError, match="is missing"):
        run.check_weights("encoder")


@pytest.mark.parametrize("as_link", [False, True])
def test_what_stands_in_the_place_of_a_folder_is_named(store: RunStore, as_link: bool, tmp_path: Path) -> None:
    """A file in the place of checkpoints does not keep the other runs from being verified."""
    run = next(each for each in store.runs() if not each.trained)
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)
    (run.path / "checkpoints").write_text("x")
    assert [each.what for of, each in verify(store).differences if of == run.run_id] == [
        "checkpoints is a link or a file instead of a folder"
    ]
    shutil.rmtree(store.root / "experiments")
    if as_link:
        (tmp_path / "elsewhere").mkdir()
        (store.root / "experiments").symlink_to(tmp_path / "elsewhere")
    else:
        (store.root / "experiments").write_text("x")
    for reads in (verify, RunStore.experiments):
        with pytest.raises(InputError, match="experiments must be a folder, but it is a link or a file"):
            reads(store)


def test_strange_files_are_named(store: RunStore) -> None:
    run = run_of(store, 0)
    (run.path / "encoder" / "model.safetensors.index.json").write_text("{}")
    (run.path / "notes.txt").write_text("mine")
    assert run.damage is None
    told = {each.file: each.kind for _, each in verify(store).differences}
    assert told == {"encoder/model.safetensors.index.json": "unexpected", "notes.txt": "unexpected"}
    with pytest.raises(InputError, match="was not there when training ended"):
        run.check_weights("encoder")


def test_predictions_that_a_killed_command_did_not_list_are_compared_with_their_score(store: RunStore) -> None:
    run = run_of(store, 0)
    listed = manifest.read(run.path) or {}
    kept = next(iter(run.scores().values()))
    name = score_file("tag:x", kept["digest"], 0)
    run.write_score(name, {**kept, "task": "tag:x", "seed": 0}, {".test.conll": b"a A A\n\n"})
    (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, listed)))
    file = next((run.path / "predictions").iterdir())
    assert not verify(store).differences
    file.write_bytes(b"a A B\n\n")
    assert [each.file for _, each in verify(store).differences] == [f"predictions/{file.name}"]
    (run.path / "scores" / name).unlink()  # as where the command was killed before it
    assert not verify(store).differences


def test_no_damage_to_a_record_passes(store: RunStore) -> None:
    path = store.root / "experiments" / "ablation-nano-1.json"
    before, other = path.read_bytes(), path.with_name("ablation-nano-2.json").read_bytes()
    for damage, content in damages(before, other):
        put(path, content)
        with pytest.raises(InputError):
            store.experiment("ablation-nano-1")
        if content is not None:
            assert verify(store).exit_code == 1, damage
            with pytest.raises(InputError, match="is damaged"):
                find_record(store, "ablation")
        put(path, before)


# -- killed at any moment


class Killed(BaseException):
    pass


def test_a_kill_between_any_two_writes_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rename of a run's end and of its scores is the last thing that happens once."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    rename, left = os.rename, [0]

    def counted(source: str, target: str) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        rename(source, target)

    begun(RunStore(tmp_path / "begun"), 0)
    monkeypatch.setattr(os, "rename", counted)
    seen: set[tuple[str, bool]] = set()
    for count in range(200):
        store = RunStore(shutil.copytree(tmp_path / "begun", tmp_path / str(count)))
        run, left[0] = store.runs()[0], count
        try:
            end_of(run)
        except Killed:
            pass
        else:
            break
        finally:
            left[0] = 10**6
        state = run.summary(full=True)["state"]
        assert state in ("interrupted", "trained", "done"), (count, run.note)
        seen.add((state, (run.path / manifest.NAME).exists()))
        assert verify(store).exit_code == 0, (count, told_of(verify(store)))
        end_of(run)
        assert run.summary(full=True)["state"] == "done" and verify(store).exit_code == 0
        shutil.rmtree(store.root)
    assert 8 < count < 200 and {("interrupted", True), ("trained", True), ("done", True)} <= seen


def end_of(run: RunDir) -> None:
    """What happens after the last step, in the order of `one_run`: the encoder, done.json, a failure, a score."""
    if not run.trained:
        with run.staged("encoder") as folder:
            (folder / "config.json").write_text("{}")
        run.finish({"steps": 4, "tokens": 512, "flops": {}})
    names = [score_file("order", "ab12cd34", n) for n in range(2)]
    for name in names:
        run.want([name])
        run.fail_score(name, "order", 0, "diverged", "the loss is no number")
        told = {"task": "order", "metric": "accuracy", "seed": int(name[-6]), "value": 1.0, "digest": "ab12cd34"}
        run.write_json(f"scores/{name}", {"format": 1, **told, "encoder": run.weight_digests()["encoder"]})
        run.clear_failure(name)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["scores/", "plan.json", "done.json"])
def test_a_file_that_was_changed_and_sealed_again_differs_from_the_manifest(
    store: RunStore, name: str, full: bool
) -> None:
    """Its own hash agrees, and its size is the same; the manifest has the hash of what was written."""
    run = run_of(store, 0)
    path = next(iter(sorted((run.path / name).glob("*.json")))) if name.endswith("/") else run.path / name
    raw = json.loads(path.read_bytes())
    del raw["content_sha256"]
    number = next(key for key, value in raw.items() if isinstance(value, int | float) and value and key != "format")
    raw[number] = type(raw[number])(str(raw[number]).translate(str.maketrans("123456789", "234567891")))
    before = path.stat().st_size
    path.write_bytes(sealed(raw))
    assert path.stat().st_size == before
    summary = run.summary(full)
    assert summary["state"] == "damaged" and path.name in summary["note"]


def large_weights(store: RunStore, size: int) -> Path:
    """Make the weights of a finished run as large as its manifest says."""
    run = finished(store, 0)
    listed = manifest.read(run.path)
    assert listed is not None
    run._list(listed | {"encoder/model.safetensors": {"bytes": size, "sha256": "0" * 64}})
    return run.path / "encoder" / "model.safetensors"


def large_checkpoint(store: RunStore, size: int) -> Path:
    """Make the newest checkpoint of an unfinished run as large as its manifest says."""
    newest = begun(store, 0).path / "checkpoints" / "step-00000004"
    raw = json.loads((newest / "manifest.json").read_text())
    raw["files"]["model.safetensors"]["bytes"] = size
    (newest / "manifest.json").write_text(dumps(raw) + "\n")
    return newest / "model.safetensors"


def large_point(store: RunStore, size: int) -> Path:
    """Make the weights of a point of an unfinished run large; a point states no sizes."""
    run = begun(store, 0)
    place = run.path / "points" / "00000002"
    for part in ("encoder", "heads"):
        (place / part).mkdir(parents=True)
    weights = place / "encoder" / "model.safetensors"
    weights.write_bytes(b"")
    point = {"format": 1, "step": 2, "mark": "50 %", "tokens": 256, "seconds": 1.0, "flops": {}}
    point |= {"encoder": {weights.name: "0" * 64}, "heads": {}}
    (place / "point.json").write_bytes(sealed(point | {"run_id": run.run_id}))
    return weights


def opened(pid: int) -> Iterator[str]:
    """The paths of the files that a process has open; one that it closes meanwhile is left out."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(link)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc, which shows what a process reads")
@pytest.mark.parametrize("large", [large_weights, large_checkpoint, large_point])
def test_ctrl_c_ends_the_reading_of_a_large_file(tmp_path: Path, large: Callable[[RunStore, int], Path]) -> None:
    """Files are read in threads, which no signal reaches: a command would have to wait for hours of them."""
    store, size = RunStore(tmp_path / "runs"), 1 << 40
    weights = large(store, size)
    os.truncate(weights, size)  # without any blocks on the disk
    words = [sys.executable, "-m", "workbench", "verify", str(store.root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            while str(weights.resolve()) not in opened(child.pid):
                assert child.poll() is None
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            out, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, out) == (130, "") and errors.count("\n") == 1 and "interrupted" in errors
