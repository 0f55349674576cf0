"""Where W&B's copy goes: a login and a server that answers, and one folder to sync whatever was killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reading import Kept, read_wandb, stored_rows, wandb_server
from test_mirror import wait_for

from workbench.store import manage
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir
from workbench.trackers import Mirror, copies
from workbench.trackers import wandb as tracker


def test_logins_are_found_where_wandb_leaves_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, why = tracker._mode()
    assert tracker._address() == "https://api.wandb.ai" and mode == "offline" and "no login" in why
    folder = home / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    (home / ".netrc").write_text("machine 127.0.0.1:9\n  login user\n  password feedbeef\n")
    (home / ".netrc").chmod(0o600)
    assert tracker._address() == "http://127.0.0.1:9" and tracker._login(tracker._address())
    mode, why = tracker._mode()
    assert mode == "offline" and "does not answer" in why
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert tracker._mode() == ("offline", "")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"rubbish\r\n\r\n", b""])
def test_only_an_answer_makes_it_go_online(home: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
    mode, why = tracker._mode()
    thread.join()
    server.close()
    assert (mode, bool(why)) == (("online", False) if b"404" in answer else ("offline", True))


def test_at_every_moment_there_is_one_folder_to_sync(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after kills of the copy itself: while a new copy has not caught up, the former one is in its place."""
    monkeypatch.setenv("WANDB_MODE", "offline")

    def aside() -> list[Path]:
        return list(run.path.glob("wandb/.new-*/wandb/*/*.wandb"))

    log = Metrics(run.path / "metrics.jsonl")
    log.append([{"step": step, "loss": 1 / step} for step in range(1, 2001)])
    assert [message.get("rows") for message in copies("wandb", [run])] == [2000]
    (folder,) = run.path.glob("wandb/*run-*")
    (folder / f"run-{run.run_id}.wandb.synced").touch()  # as `wandb sync` leaves it
    log.append([{"step": step, "loss": 1 / step} for step in range(2001, 4001)])
    copy = Mirror("wandb", run)
    copy.news()
    wait_for(aside)
    os.killpg(copy._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    assert aside(), "the copy has not caught up yet"
    assert list(run.path.glob("wandb/*run-*")) == [folder] and len(read_wandb(run).rows) == 2000
    os.killpg(copy._process.pid, signal.SIGCONT)  # type: ignore[union-attr]
    while aside():
        assert list(run.path.glob("wandb/*run-*")) == [folder]
        time.sleep(0.05)
    assert not (folder / f"run-{run.run_id}.wandb.synced").exists(), "wandb sync would leave the new copy out"
    copy.close()
    assert list(run.path.glob("wandb/*run-*")) == [folder]
    assert read_wandb(run).rows == stored_rows(run)

    copy = Mirror("wandb", run)
    copy.news()
    wait_for(aside)
    os.killpg(copy._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
    copy.close()
    assert list(run.path.glob("wandb/*run-*")) == [folder] and read_wandb(run).rows == stored_rows(run)
    assert list(run.path.glob("wandb/.new-*"))
    assert [message.get("rows") for message in copies("wandb", [run])] == [4000]
    assert not list(run.path.glob("wandb/.new-*")) and read_wandb(run).rows == stored_rows(run)
    assert [path.parent for path in run.path.rglob("*.wandb")] == [folder]


def sent(kept: Kept, run: RunDir) -> dict[int, dict[str, float]]:
    """Return the rows that a server has of a run, by step."""
    lines = kept.history[run.run_id]
    return {line["step"]: {key: each for key, each in line.items() if key[0] != "_"} for line in lines}


def test_synced_copies_are_the_whole_run_in_any_order(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a copy was killed twice, and its run was resumed each time; folders are synced when they are there."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    manage.annotate(run, lambda notes: notes.tagged(("good",)).noted("a note"))
    log = Metrics(run.path / "metrics.jsonl")
    with wandb_server() as kept:
        for first, last in ((1, 300), (201, 500), (401, 700)):
            log.rewind(first - 1)
            log.append([{"step": step, "loss": 1 / step, "seconds": step + first} for step in range(first, last + 1)])
            if last < 700:
                copy = Mirror("wandb", run)
                copy.news()
                wait_for(lambda: list(run.path.glob("wandb/offline-run-*/*.wandb")))
                os.killpg(copy._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
                copy.close()
            else:
                assert all("problem" not in message for message in copies("wandb", [run]))
            found = sorted(run.path.glob("wandb/*run-*"))
            command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, found)]
            settings = {"WANDB_BASE_URL": kept.address, "WANDB_API_KEY": "feedbeef" * 5, "WANDB_MODE": "online"}
            done = subprocess.run(
                command, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0 and len(found) == 1, done.stderr
    assert sent(kept, run) == stored_rows(run) and len(kept.history[run.run_id]) == 700
    assert kept.facts[run.run_id]["tags"] == ["good"] and kept.facts[run.run_id]["notes"].endswith("a note")


@pytest.mark.slow
def test_online_a_killed_and_resumed_run_is_one_run(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Metrics(run.path / "metrics.jsonl")
    with wandb_server() as kept:
        monkeypatch.setenv("WANDB_BASE_URL", kept.address)
        monkeypatch.setenv("WANDB_API_KEY", "feedbeef" * 5)
        for first, last in ((1, 300), (201, 500)):
            log.rewind(first - 1)
            log.append([{"step": step, "loss": 1 / step, "seconds": step + first} for step in range(first, last + 1)])
            copy = Mirror("wandb", run)
            copy.news()
            if last < 500:
                wait_for(lambda: len(kept.history.get(run.run_id, ())) >= 299)
                os.killpg(copy._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
                copy.close()
            else:
                wait_for(lambda: len(kept.history[run.run_id]) >= 499)
                copy.close()
        assert all("problem" not in message for message in copies("wandb", [run]))
    assert sent(kept, run) == stored_rows(run) and len(kept.history[run.run_id]) == 500
    assert kept.summary[run.run_id]["state"] == "interrupted"
    assert len(list(run.path.glob("wandb/*run-*"))) == 1
