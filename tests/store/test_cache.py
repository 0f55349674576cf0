"""Nothing in the cache is trusted: every kind of damage to every kind of entry is found when it is opened."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from drills.damage import DAMAGES, exchanged, removed

from workbench.errors import InputError, LeaseHeld
from workbench.store import cache, owner
from workbench.store.cache import alone, differences, faults, is_whole, read_entry, staged, write_entry
from workbench.store.lease import acquire
from workbench.store.run_store import RunStore
from workbench.store.verify import verify

CONTENT = {"manifest.json": b'{"mask": 4, "vocab": 1000}', "tokens.bin": bytes(range(256)) * 40, "words/a.json": b"[1]"}


def make(folder: Path, content: dict[str, bytes] = CONTENT) -> Path:
    with staged(folder) as stage:
        for name, data in content.items():
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_bytes(data)
    return folder


def linked(path: Path, root: Path) -> None:
    path.rename(path.with_name(".elsewhere"))
    path.symlink_to(".elsewhere")


def piped(path: Path, root: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def longer(path: Path, root: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


EVERY = [*DAMAGES, linked, piped, longer]


@pytest.mark.parametrize("name", [*CONTENT, "seal.json"])
@pytest.mark.parametrize("damage", EVERY)
def test_every_damage_to_every_file_of_a_folder_is_found(
    tmp_path: Path, name: str, damage: Callable[[Path, Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    folder = make(tmp_path / "data/made")
    make(tmp_path / "data/other", {file: data + data for file, data in CONTENT.items()})
    assert is_whole(folder) and list(differences(tmp_path)) == []
    damage(folder / name, tmp_path)
    assert not is_whole(folder)
    assert len(caplog.messages) == 1 and str(folder) in caplog.messages[0] and "made again" in caplog.messages[0]
    found = list(map(str, differences(tmp_path)))
    assert found and str(folder) in found[0] and (name in found[0] or damage is exchanged), found
    make(folder)
    assert is_whole(folder) and all((folder / file).read_bytes() == data for file, data in CONTENT.items())


def test_a_file_that_does_not_belong_is_found(tmp_path: Path) -> None:
    """A tokenizer reads files of further names where there are some."""
    folder = make(tmp_path / "made")
    (folder / ".nfs0001").write_text("")  # network disks leave such
    assert is_whole(folder)
    (folder / "words/added_tokens.json").write_text("{}")
    assert list(faults(folder)) == ["words/added_tokens.json does not belong to it"]


def test_folders_that_changed_places_are_found(tmp_path: Path) -> None:
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    first.rename(tmp_path / "third")
    second.rename(first)
    assert next(faults(first)) == "it was made under the name second" and not is_whole(first)


@pytest.mark.parametrize("stand_in", ["file", "pipe", "link"])
def test_what_is_no_folder_is_replaced(tmp_path: Path, stand_in: str) -> None:
    folder, elsewhere = tmp_path / "cache/made", tmp_path / "elsewhere"
    folder.parent.mkdir()
    elsewhere.mkdir()
    {"file": folder.touch, "pipe": lambda: os.mkfifo(folder), "link": lambda: folder.symlink_to(elsewhere)}[stand_in]()
    assert not is_whole(folder)
    assert is_whole(make(folder)) and not folder.is_symlink() and list(elsewhere.iterdir()) == []


def test_large_files_are_read_by_blocks_and_in_full_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BLOCK", 64)
    monkeypatch.setattr(cache, "WHOLE", 1000)
    monkeypatch.setattr(cache, "SAMPLED", 8)
    folder = make(tmp_path / "data/made", {"tokens.bin": bytes(64 * 100)})
    path, found = folder / "tokens.bin", 0
    for hour in range(60):  # other blocks every hour
        monkeypatch.setattr(time, "time", lambda hour=hour: 3600.0 * hour)
        assert is_whole(folder)
        content = bytearray(64 * 100)
        content[64 * 33 + 5] = 1
        path.write_bytes(content)
        first = list(faults(folder))
        assert list(faults(folder)) == first  # the same within an hour
        assert list(faults(folder, full=True)) == [
            "tokens.bin has changed since it was written, according to its SHA-256"
        ]
        found += bool(first)
        path.write_bytes(bytes(64 * 100))
    assert 0 < found < 30  # 8 of 100 each time
    for place in (0, 64 * 100 - 1):  # both ends always
        content = bytearray(64 * 100)
        content[place] = 1
        path.write_bytes(content)
        assert list(faults(folder))


VALUES: list[Any] = [{"labels": ["a", "b"], "rows": [[1, 2.5], None]}, {}, [], "text", 0, False]


@pytest.mark.parametrize("value", VALUES)
def test_an_entry_is_read_as_it_was_written(tmp_path: Path, value: Any) -> None:
    assert read_entry(tmp_path / "probes/made") is None
    write_entry(tmp_path / "probes/made", value)
    assert read_entry(tmp_path / "probes/made") == value and list(differences(tmp_path)) == []


@pytest.mark.parametrize("damage", [each for each in EVERY if each not in (removed, exchanged)])
def test_every_damage_to_an_entry_is_found(
    tmp_path: Path, damage: Callable[[Path, Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "probes/made.json"
    write_entry(path, VALUES[0])
    damage(path, tmp_path)
    assert read_entry(path) is None and str(path) in caplog.text and len(list(differences(tmp_path))) == 1
    write_entry(path, VALUES[0])
    assert read_entry(path) == VALUES[0]


def test_entries_that_changed_places_or_have_no_hash_are_found(tmp_path: Path) -> None:
    write_entry(tmp_path / "hub/a.json", {"commit": "c0ffee"})
    shutil.copy(tmp_path / "hub/a.json", tmp_path / "hub/b.json")
    (tmp_path / "hub/c.json").write_text('{"commit": "c0ffee"}')
    assert [read_entry(tmp_path / f"hub/{name}.json") for name in "abc"] == [{"commit": "c0ffee"}, None, None]
    told = list(map(str, differences(tmp_path)))
    assert len(told) == 2 and all("has changed since it was written" in each for each in told)


def test_entries_without_a_hash_and_damaged_ones_are_differences(tmp_path: Path) -> None:
    (make(tmp_path / "data/unsealed") / "seal.json").unlink()
    for name in ("kernels/0a1b.so", "hub/c.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('{"commit": "c0ffee"}')
    found = verify(RunStore(tmp_path / "runs"), tmp_path)
    assert len(found.cached) == 3 and found.exit_code == 1
    assert all(name in " ".join(found.cached) for name in ("data/unsealed", "0a1b.so", "c.json"))


def test_a_file_in_the_place_of_a_folder_of_the_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path / "data", tmp_path / "data" / "inner", tmp_path / "dangling"):
        makers = (staged(place / "x"), alone(place, lambda: None))
        for maker in makers:
            with pytest.raises(InputError, match="but a file is in the way; move it away"), maker:
                pass
        with pytest.raises(InputError, match=f"^{place} must be a folder of the cache"):
            write_entry(place / "x.json", 1)


def test_a_folder_in_the_place_of_an_entry_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "made.json").mkdir()
    assert read_entry(tmp_path / "made.json") is None
    write_entry(tmp_path / "made.json", 1)
    assert read_entry(tmp_path / "made.json") == 1


def test_what_a_killed_process_left_beside_an_entry_is_removed_after_an_hour(tmp_path: Path) -> None:
    for name, age in ((f".tmp-{'a' * 32}", 2 * 3600), (f".tmp-{'b' * 32}", 60), (f".trash-{'c' * 32}", 2 * 3600)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_entry(tmp_path / "made.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".tmp-{'b' * 32}", "made.json"]


def test_an_entry_whose_name_is_too_long_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / ("9" * 5000)
    assert read_entry(path) is None
    assert caplog.text.count(str(path)) == 1 and "File name too long; it" in caplog.text


# -- who owns a staging folder


def stages(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def aged(path: Path, seconds: float) -> None:
    for each in (path, *path.rglob("*")):
        os.utime(each, (time.time() - seconds, time.time() - seconds))


def test_what_a_killed_process_left_is_removed_at_once(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from workbench.store.cache import staged\n"
        "with staged(Path(sys.argv[1])) as f: (f / 'a').touch(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "made")], check=False)
    assert len(stages(tmp_path)) == 1
    make(tmp_path / "made")
    assert not stages(tmp_path)


@pytest.mark.parametrize(("seconds", "kept"), [(60, True), (1200, False)])
@pytest.mark.parametrize("draft", [False, True])
def test_what_was_killed_before_it_had_a_lease_is_removed_after_minutes(
    tmp_path: Path, seconds: float, kept: bool, draft: bool
) -> None:
    stage = tmp_path / ".made~0123456789abcdef0123456789abcdef"
    stage.mkdir()
    if draft:  # killed between making its lease and putting it in place
        (stage / ".tmp-0123").mkdir()
        (stage / ".tmp-0123/lease").write_text("{}")
    aged(stage, seconds)
    make(tmp_path / "other")
    assert stage.exists() == kept


def test_a_live_process_keeps_its_staging_folder(tmp_path: Path) -> None:
    with staged(tmp_path / "made") as stage:
        aged(stage, 1e6)
        make(tmp_path / "other")
        assert stage.is_dir()


@pytest.mark.parametrize(("seconds", "kept"), [(60, True), (3 * 3600, False)])
def test_an_owner_elsewhere_is_judged_by_its_heartbeat(tmp_path: Path, seconds: float, kept: bool) -> None:
    """Its process number may be one of a dead process here."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    stage = tmp_path / ".made~0123456789abcdef"
    (stage / "content").mkdir(parents=True)
    pid = int(gone.stdout)
    lease = {"owner": "abc", "host": os.uname().nodename, "pid": pid, "machine": "another boot", "beat": 10}
    (stage / "lease").write_text(json.dumps(lease))
    aged(stage, seconds)
    make(tmp_path / "other")
    assert stage.exists() == kept


CHILD = """
import os, sys, time
from pathlib import Path
from workbench.store import atomic, cache, owner
from workbench.store.lease import acquire
folder, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with cache.staged(folder / name) as stage:
    (stage / "file").write_text(name)
    (folder / f"ready-{name}").write_text(f"{os.getpid()} {os.uname().nodename} {owner.machine()}")
    lease = acquire(folder / "run") if mode == "lease" else None
    while not (folder / "go").exists():
        time.sleep(0.02)
        assert (stage / "file").exists(), "another process took the staging folder away"
    for each in range(5):  # each sweeps
        with cache.staged(folder / f"{name}-{each}") as other:
            (other / "file").touch()
    (folder / f"swept-{name}").touch()
    while len(list(folder.glob("swept-*"))) < 2:
        time.sleep(0.02)
    if lease:
        lease.check()
        lease.release()
"""


def namespace(*more: str) -> list[str]:
    """The words before a command that give it a process namespace of its own."""
    words = ["unshare", "--pid", "--fork", *more]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces cannot be made here; that takes unshare and the right to use it")
    return words


@contextlib.contextmanager
def in_a_namespace(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The child in a process namespace of its own, where its number is 1, under the same host name."""
    command = [*namespace("--mount-proc", "--kill-child"), sys.executable, "-c", CHILD, *words]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def wait_for(path: Path, seconds: float = 120) -> str:
    end = time.monotonic() + seconds
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.02)
    return path.read_text()


def test_namespaces_that_share_a_cache_and_a_host_name_leave_each_other_alone(tmp_path: Path) -> None:
    """Two containers: equal host names, equal process numbers, and neither sees the other's processes."""
    (tmp_path / "run").mkdir()
    with in_a_namespace(str(tmp_path), "a", "lease") as one, in_a_namespace(str(tmp_path), "b", "none") as two:
        told = [wait_for(tmp_path / f"ready-{name}").split() for name in "ab"]
        assert told[0][:2] == told[1][:2] == ["1", os.uname().nodename] and told[0][2] != told[1][2]
        make(tmp_path / "here")  # sweeps, from this namespace
        assert len([path for path in stages(tmp_path) if path.name.startswith((".a~", ".b~"))]) == 2
        with pytest.raises(LeaseHeld):
            acquire(tmp_path / "run", patience=0)
        (tmp_path / "go").write_text("go")
        ended = [(child.wait(60), child.stderr.read() if child.stderr else "") for child in (one, two)]
    assert [code for code, _ in ended] == [0, 0], ended
    assert is_whole(tmp_path / "a") and is_whole(tmp_path / "b") and not stages(tmp_path)


def test_a_namespace_without_a_proc_of_its_own_judges_nobody(tmp_path: Path) -> None:
    """There /proc shows other processes under our numbers: a live owner would be taken for dead."""
    words = [*namespace(), sys.executable, "-c", "from workbench.store import owner; print(owner.machine())"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "\n"
    assert owner.machine() != ""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    inside, most, waited = [0], [0], threading.Event()

    def work(_: int) -> None:
        with alone(tmp_path / "lock", waited.set):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            waited.wait(30)  # the first holds it until another has found it held
            inside[0] -= 1

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    assert most == [1] and waited.is_set()


def test_every_file_of_a_folder_is_flushed_before_it_is_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the rename must not leave a folder of empty files."""
    events: list[str] = []
    sync, rename = os.fsync, os.rename

    def note_sync(fd: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        sync(fd)

    def note_rename(a: Path, b: Path) -> None:
        if Path(b).name == "folder":
            events.append("rename")
        rename(a, b)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    with staged(tmp_path / "kind" / "folder") as stage:
        (stage / "below").mkdir()
        (stage / "below" / "tokens.bin").write_bytes(b"1234")
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {"tokens.bin", "below", cache.SEAL, "content"} <= set(before)
    assert after == ["kind"]
    assert is_whole(tmp_path / "kind" / "folder")
