"""What workers are given: the whole of it, on cards and cores that the environment grants."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import cli
from workbench.errors import InputError
from workbench.execution import workers
from workbench.execution.workers import Assignment
from workbench.spec.host import Host, Launch

HOST = Host(
    device="cuda:1", precision="bf16", plain=True, compile=True, threads=3, micro_batch=7, log_every=11,
    save_seconds=2.5, save_every=13, track="wandb", devices=2, shard=True,
    command=("workbench", "run", "my ablation.py"), launch=Launch(time="04:00:00", gpus=2),
)  # fmt: skip
WHOLE = Assignment(
    Path("some/runs"), "ablation-nano-1", {"seed": 0}, ("a", "b"), ("./idea.py",), HOST, "2026-01-01T00:00:00Z", 17
)


def test_every_field_reaches_a_worker(tmp_path: Path) -> None:
    assert all(getattr(HOST, field.name) != field.default for field in dataclasses.fields(Host))
    WHOLE.write(tmp_path / "assignment.json")
    assert Assignment.read(tmp_path / "assignment.json") == WHOLE


def test_a_hundred_thousand_runs_reach_a_worker(tmp_path: Path) -> None:
    many = dataclasses.replace(WHOLE, runs=tuple(f"rtd-nano-s{seed}-0123456789ab" for seed in range(100_000)))
    many.write(tmp_path / "assignment.json")
    assert Assignment.read(tmp_path / "assignment.json").runs == many.runs


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"store": "x"', '{"host": {"device": 3}}'])
def test_a_file_that_is_no_assignment_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(InputError, match=r"odd\.json cannot be read as the assignment of a worker") as error:
        Assignment.read(tmp_path / "odd.json")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"missing\.json"):
        Assignment.read(tmp_path / "missing.json")


def test_a_pipe_is_no_assignment_and_nobody_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="is not a regular file"):
            Assignment.read(place)


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1"]), ("4,5", ["4", "5"]), ("GPU-a,GPU-b,GPU-c", ["GPU-a", "GPU-b"])]
)
def test_workers_use_the_cards_that_the_command_may_use(
    visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, env, **_: started.append(env))
    workers._start(tmp_path / "assignment.json", Host(), 3)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in started] == [*expected, expected[0]]
    started.clear()
    workers._start(tmp_path / "assignment.json", Host(device="cpu"), 1)
    assert started == [dict(os.environ)]


def test_a_worker_without_an_assignment_ends_in_a_sentence(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "workbench", "worker", str(tmp_path / "missing.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("workbench: ") and "missing.json cannot be read" in done.stderr


def test_a_worker_that_ran_out_of_disk_has_said_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message names the disk and the bytes; those of the folder of the command would be of another disk."""
    monkeypatch.setattr(workers, "_start", lambda *_: [])
    monkeypatch.setattr(workers, "_wait", lambda *_: [0, 74])
    with pytest.raises(OSError) as caught:
        workers.share(WHOLE, 2)
    assert caught.value.errno == errno.EIO and "its message above says" in str(caught.value)
    assert cli._system_error(caught.value) == 74


def test_a_changed_assignment_is_refused(tmp_path: Path) -> None:
    """A digit that is changed in a queued job's file would have another run carried out, or other settings."""
    place = tmp_path / "assignment.json"
    WHOLE.write(place)
    written = place.read_bytes()
    place.write_bytes(written.replace(b"ablation-nano-1", b"ablation-nano-2"))
    with pytest.raises(InputError, match=r"assignment.json has changed since it was written"):
        Assignment.read(place)
    place.write_bytes(re.sub(rb',"[^"]*":"[0-9a-f]{64}"', b"", written))
    with pytest.raises(InputError, match="it has no hash"):
        Assignment.read(place)


STOPS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], text=True)


def soon(work: Callable[[], object], *children: subprocess.Popen[str]) -> list[object]:
    """Return what `work` returns or raises within 30 s; otherwise kill the processes, so that it ends."""
    ends: list[object] = []

    def carry_out() -> None:
        try:
            ends.append(work())
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=carry_out)
    thread.start()
    thread.join(30)
    late = thread.is_alive()
    for each in children:
        each.kill()
        each.wait()
    thread.join()
    assert not late, "it still waited after 30 s"
    return ends


def test_a_stopped_worker_is_continued_when_another_has_found_all_runs_settled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers.live, "REFRESH", 0.05)
    pair = [child(STOPS_ITSELF), child("")]
    assert soon(lambda: workers._wait([], pair), *pair) == [[0, 0]]
    assert "all runs are settled; continuing 1 worker, stopped by a signal" in caplog.text


def test_a_stopped_worker_is_left_alone_while_runs_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone may want it to wait; a worker that failed has not found all runs settled."""
    monkeypatch.setattr(workers.live, "REFRESH", 0.05)
    pair = [child(STOPS_ITSELF), child("raise SystemExit(1)")]
    os.waitid(os.P_PID, pair[0].pid, os.WSTOPPED | os.WNOWAIT)
    pair[1].wait()
    waiting = threading.Thread(target=lambda: workers._wait([], pair))
    waiting.start()
    waiting.join(1.5)
    still = waiting.is_alive() and workers._stopped(pair[0])
    pair[0].send_signal(signal.SIGCONT)
    waiting.join(30)
    assert still and not waiting.is_alive()


def test_a_stopped_worker_ends_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.live, "REFRESH", 0.05)
    stopped = child(STOPS_ITSELF + "; import time; time.sleep(60)")

    def interrupted(runs: object, streams: object) -> Any:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers.live, "watching", interrupted)
    (end,) = soon(lambda: workers._wait([], [stopped]), stopped)
    assert isinstance(end, KeyboardInterrupt) and stopped.returncode == -signal.SIGTERM
