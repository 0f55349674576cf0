"""The process that copies a run to a tracker: what it sends, and where it finds a login."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from workbench.store.metrics_file import Metrics
from workbench.store.run_store import RunDir
from workbench.trackers import __main__ as side


def test_a_finished_run_is_sent_again(run: RunDir) -> None:
    Metrics(run.path / "metrics.jsonl").append([{"step": step, "loss": 1.0, "planted": 1} for step in range(1, 101)])
    done = subprocess.run(
        [sys.executable, "-m", "workbench.trackers", str(run.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "no login" in done.stderr
    (kept,) = run.path.glob("wandb/offline-run-*")
    files = [path for path in kept.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.read_bytes().count(b"planted") for path in files) >= 100
    done = subprocess.run(
        [sys.executable, "-m", "workbench.trackers", str(run.path / "wandb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "given", "named"),
    [
        ([], "", "standard input does not describe a run"),
        ([], "rubbish\n", "standard input does not describe a run"),
        ([], '{"folder": "/tmp"}\n', "standard input does not describe a run"),
        (["nowhere"], "", "nowhere is not the folder of a run"),
    ],
)
def test_a_process_that_is_started_by_hand(words: list[str], given: str, named: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workbench.trackers", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and named in done.stderr, done.stderr


def test_logins_are_found_where_wandb_leaves_them(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, why = side._mode()
    assert side._address() == "https://api.wandb.ai" and mode == "offline" and "no login" in why
    folder = Path.home() / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    (Path.home() / ".netrc").write_text("machine 127.0.0.1:9\n  login user\n  password feedbeef\n")
    (Path.home() / ".netrc").chmod(0o600)
    assert side._address() == "http://127.0.0.1:9" and side._login(side._address())
    mode, why = side._mode()
    assert mode == "offline" and "does not answer" in why
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert side._mode() == ("offline", "")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"rubbish\r\n\r\n", b""])
def test_only_an_answer_makes_it_go_online(run: RunDir, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
    mode, why = side._mode()
    thread.join()
    server.close()
    assert (mode, bool(why)) == (("online", False) if b"404" in answer else ("offline", True))
