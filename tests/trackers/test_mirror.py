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
from limits import small_disk

from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir, RunStore
from workbench.trackers import PATIENCE, Mirror


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 1 / step, "flops": {"paper": 1.5 * step}} | more


def begin(run: RunDir, tracker: str = "wandb") -> Mirror:
    found = Mirror(tracker, run)
    assert found._process is not None
    return found


def log(run: RunDir, copy: Mirror, *rows: dict[str, Any]) -> None:
    """Append rows to the run's log and say so, as the training loop does."""
    Metrics(run.path / "metrics.jsonl").append(rows)
    copy.news()


def timed_close(copy: Mirror) -> float:
    process = copy._process
    start = time.monotonic()
    copy.close()
    spent = time.monotonic() - start
    assert process is not None and process.poll() is not None
    assert process.stdin is not None and process.stdin.closed
    assert not copy._listener.is_alive()
    copy.close()
    return spent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.name == "workbench" and r.levelno == logging.WARNING]
    assert all("\n" not in text and "metrics.jsonl" in text for text in found)
    return found


def wait_for(what: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def kept(run: RunDir) -> list[Path]:
    return list(run.path.glob("wandb/offline-run-*/*.wandb"))


def test_without_a_login_the_copy_is_kept_with_the_run(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    copy = begin(run)
    rows = [row(step, auc=None, planted=step / 7) for step in range(1, 301)]
    for number in range(0, 300, 20):
        log(run, copy, *rows[number : number + 20])
    wait_for(lambda: warnings(caplog))
    wait_for(lambda: kept(run))
    assert timed_close(copy) < PATIENCE + 10
    text = warnings(caplog)[0]
    assert "no login" in text and f"workbench track {run.run_id} --runs {run.path.parent} --to wandb" in text
    (folder,) = run.path.glob("wandb/offline-run-*")
    data = contents(folder)
    assert data.count(b"planted") >= 300 and b"corruption.rate" in data and run.run_id in folder.name
    assert b"auc" not in data


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
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
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("WANDB_BASE_URL", address)
    monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    yield address
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in held:
        connection.close()


@pytest.mark.parametrize(("tracker", "length"), [("wandb", 0.0), ("wandb", 6.0), ("mlflow", 1.0)])
def test_a_silent_server(
    run: RunDir, silent_server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tracker: str,
    length: float,
) -> None:  # fmt: skip
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-aws-secret")
    start = time.monotonic()
    copy = begin(run, tracker)
    inside = time.monotonic() - start
    for step in range(1, 51):
        start = time.monotonic()
        log(run, copy, row(step))
        inside += time.monotonic() - start
        time.sleep(length / 50)
    if length == 6.0:
        wait_for(lambda: kept(run))
    assert inside + timed_close(copy) < PATIENCE + 10
    assert any("does not answer" in text or "not finished" in text for text in warnings(caplog))
    data = contents(run.path)
    assert b"feedbeef" not in data and b"planted-aws" not in data
    assert not any("feedbeef" in text for text in warnings(caplog))


def test_the_copy_is_killed_midway(
    run: RunDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    copy = begin(run)
    log(run, copy, row(1))
    wait_for(lambda: kept(run))
    assert copy._process is not None
    os.kill(copy._process.pid, signal.SIGKILL)
    wait_for(lambda: warnings(caplog))
    for _ in range(2, 1000):
        copy.news()
    assert timed_close(copy) < PATIENCE, "waited for one that is gone"
    (text,) = warnings(caplog)
    assert "ended unexpectedly" in text


def test_a_copy_that_stands_still_is_not_waited_for(
    run: RunDir, caplog: pytest.LogCaptureFixture, recorder: Path
) -> None:
    """`news` never waits, and `close` stops waiting in time; a copy that goes on has all rows."""
    copy = begin(run, str(recorder))
    assert copy._process is not None
    os.kill(copy._process.pid, signal.SIGSTOP)
    Metrics(run.path / "metrics.jsonl").append([row(step) for step in range(1, 3001)])
    start = time.monotonic()
    for _ in range(200_000):  # more than a pipe takes
        copy.news()
    assert time.monotonic() - start < 10
    os.kill(copy._process.pid, signal.SIGCONT)
    wait_for(lambda: contents(run.path / "mirrors").count(b'"loss"') == 3000)
    os.kill(copy._process.pid, signal.SIGSTOP)
    assert timed_close(copy) < PATIENCE + 10
    (text,) = warnings(caplog)
    assert "had not finished" in text


@pytest.mark.parametrize("stub", ["1/0", "import os; os._exit(3)"])
def test_a_missing_or_broken_package(
    run: RunDir, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, stub: str
) -> None:
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "wandb.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    copy = begin(run)
    log(run, copy, row(1))
    wait_for(lambda: warnings(caplog))
    assert timed_close(copy) < PATIENCE + 10
    assert warnings(caplog)


def test_a_run_folder_that_cannot_take_it(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    (run.path / "tensorboard").write_text("in the way")
    copy = begin(run, "tensorboard")
    log(run, copy, row(1))
    wait_for(lambda: warnings(caplog))
    assert timed_close(copy) < PATIENCE + 10
    (text,) = warnings(caplog)
    assert "stopped early (FileExistsError" in text


@pytest.mark.parametrize(
    "tracker",
    ["wandb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tensorboard", "trackio", "mlflow"))],
)
def test_a_full_disk_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tracker: str, run: RunDir
) -> None:
    with small_disk(tmp_path, "size=1m") as disk:
        monkeypatch.setenv("TRACKIO_DIR", str(disk / "trackio"))
        small = RunStore(disk / "runs").open(BoundRun(RunSpec()))
        copy = begin(small, tracker)
        log(small, copy, *(row(step, filler=step / 7) for step in range(1, 1000)))
        (disk / "filler").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 16384))
        time.sleep(4)
        assert timed_close(copy) < PATIENCE + 10
        assert warnings(caplog)
        time.sleep(1.5)  # the tracker's own helper goes when it sees that it is alone


def test_the_copy_ends_with_the_run(run: RunDir) -> None:
    """A run that is killed leaves no process behind."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom workbench.store.run_store import RunDir\n"
        "from workbench.trackers import Mirror\n"
        "copy = Mirror('wandb', RunDir(Path(sys.argv[1])))\ncopy.news()\n"
        "print(copy._process.pid, flush=True)\ntime.sleep(60)"
    )
    Metrics(run.path / "metrics.jsonl").append([row(1)])
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for(lambda: kept(run))
        process.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2], 10)
