"""A failure of the copy of a run in a tracker does not affect the run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.trackers import mirror
from workbench.trackers._mirror import PATIENCE, ProcessMirror


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 1 / step, "flops": {"paper": 1.5 * step}} | more


def begin(run: RunDir, **config: Any) -> ProcessMirror:
    found = mirror("wandb", run.path, run.run_id, config)
    assert isinstance(found, ProcessMirror) and found._process is not None
    return found


def timed_close(copy: ProcessMirror) -> float:
    process = copy._process
    start = time.monotonic()
    copy.close()
    spent = time.monotonic() - start
    assert process is not None and process.poll() is not None
    assert process.stdin is not None and process.stdin.closed
    assert not any(thread.is_alive() for thread in copy._threads)
    copy.close()
    return spent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.name == "workbench" and r.levelno == logging.WARNING]
    assert all("\n" not in text and "metrics.jsonl" in text for text in found)
    return found


def wait_for(what: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_no_tracker_and_an_unknown_one(run: RunDir) -> None:
    nothing = mirror(None, run.path, run.run_id)
    nothing.log([row(1)])
    nothing.close()
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        mirror("wanbd", run.path, run.run_id)
    assert os.listdir(run.path) == ["spec.json"]


def test_without_a_login_the_copy_is_kept_with_the_run(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    copy = begin(run, secret_of_config="config-value-17")
    rows = [row(step, auc=None, planted=step / 7) for step in range(1, 301)]
    for number in range(0, 300, 20):
        copy.log(rows[number : number + 20])
    wait_for(lambda: warnings(caplog))
    wait_for(lambda: list(run.path.glob("wandb/offline-run-*/*.wandb")))
    assert timed_close(copy) < PATIENCE + 10
    (text,) = warnings(caplog)
    assert "no login" in text and "python -m workbench.trackers" in text
    (kept,) = run.path.glob("wandb/offline-run-*")
    data = contents(kept)
    assert data.count(b"planted") >= 300 and b"config-value-17" in data and run.run_id in kept.name
    assert b"auc" not in data


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a server that accepts every connection and never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(server.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
    yield
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in held:
        connection.close()


@pytest.mark.parametrize("length", [0.0, 6.0])
def test_a_silent_server(
    run: RunDir, silent_server: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, length: float
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-aws-secret")
    start = time.monotonic()
    copy = begin(run)
    inside = time.monotonic() - start
    for step in range(1, 51):
        start = time.monotonic()
        copy.log([row(step)])
        inside += time.monotonic() - start
        time.sleep(length / 50)
    assert inside + timed_close(copy) < PATIENCE + 10
    assert any("does not answer" in text or "not finished" in text for text in warnings(caplog))
    data = contents(run.path)
    assert b"feedbeef" not in data and b"planted-aws" not in data
    assert not any("feedbeef" in text for text in warnings(caplog))
    if length:
        assert len(warnings(caplog)) == 1 and list(run.path.glob("wandb/offline-run-*/*.wandb"))


def test_nobody_at_the_address(run: RunDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
    copy = begin(run)
    copy.log([row(1)])
    wait_for(lambda: warnings(caplog))
    assert timed_close(copy) < PATIENCE + 10
    assert "127.0.0.1 does not answer" in warnings(caplog)[0]


def test_the_copy_is_killed_midway(
    run: RunDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    copy = begin(run)
    copy.log([row(1)])
    wait_for(lambda: list(run.path.glob("wandb/offline-run-*/*.wandb")))
    assert copy._process is not None
    os.kill(copy._process.pid, signal.SIGKILL)
    wait_for(lambda: warnings(caplog))
    for step in range(2, 1000):
        copy.log([row(step)])
    assert timed_close(copy) < PATIENCE, "waited for one that is gone"
    (text,) = warnings(caplog)
    assert "ended unexpectedly" in text


def test_a_copy_that_stands_still_is_not_waited_for(
    run: RunDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is bounded, `log` never waits, and `close` stops waiting in time."""
    monkeypatch.setattr("workbench.trackers._mirror.WAITING", 100)
    copy = begin(run)
    assert copy._process is not None
    os.kill(copy._process.pid, signal.SIGSTOP)
    start = time.monotonic()
    for step in range(1, 20_001):
        copy.log([row(step, filler="x" * 50)])
    assert time.monotonic() - start < 30
    assert copy._queue.qsize() <= 100
    assert timed_close(copy) < PATIENCE + 10
    texts = " ".join(warnings(caplog))
    assert "had not finished" in texts and "left out" in texts


@pytest.mark.parametrize("stub", ["raise ImportError('no wandb here')", "import os; os._exit(3)", "1/0", ""])
def test_a_missing_or_broken_package(
    run: RunDir, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, stub: str
) -> None:
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "wandb.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    copy = begin(run)
    copy.log([row(1)])
    wait_for(lambda: warnings(caplog))
    assert timed_close(copy) < PATIENCE + 10
    assert warnings(caplog)


def test_a_run_folder_that_cannot_take_it(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    (run.path / "wandb").write_text("in the way")
    copy = begin(run)
    wait_for(lambda: warnings(caplog))
    assert timed_close(copy) < PATIENCE + 10
    (text,) = warnings(caplog)
    assert "cannot begin" in text


def test_a_full_disk_is_reported(tmp_path: Path, run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        small = RunStore(disk / "runs").open(BoundRun(RunSpec()))
        (disk / "filler").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 16384))
        copy = begin(small)
        for step in range(1, 400):
            copy.log([row(step, filler="x" * 500)])
        time.sleep(2)
        assert timed_close(copy) < PATIENCE + 10
        assert warnings(caplog)
        time.sleep(1.5)  # the tracker's own helper goes when it sees that it is alone
    finally:
        for _ in range(20):
            if subprocess.run(["umount", str(disk)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.5)


def test_the_copy_ends_with_the_run(run: RunDir) -> None:
    """A run that is killed leaves no process behind."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom workbench.trackers import mirror\n"
        "copy = mirror('wandb', Path(sys.argv[1]), 'x')\ncopy.log([{'step': 1}])\n"
        "print(copy._process.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for(lambda: list(run.path.glob("wandb/offline-run-*/*.wandb")))
        process.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2], 5)
