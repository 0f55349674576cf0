"""What a second terminal sees of a sweep at work, and what the first one shows."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .conftest import SETS, Command, environment

LIMIT = 300.0  # seconds until both runs train, on a machine with ten times as many processes as cores


def test_a_live_table_and_status_from_elsewhere_and_a_clean_stop(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["sweep", "--over", "tying=none,tokens", "--match", "steps", "--corpus", text, "--tasks", "none", *SETS]
    words += ["--budget", "steps=1000000", "--workers", 2, "--threads", 1]
    words += ["--notify", "command=cat > told; echo $WORKBENCH_STATE >> told"]
    shown = bytearray()

    def both_train() -> list[dict[str, Any]]:
        rows = json.loads(workbench("status", "--json", cwd=tmp_path).stdout) if b"2 running" in shown else []
        return rows if len(rows) == 2 and all(row["step"] for row in rows) else []

    with on_a_terminal(words, tmp_path, environment(cache), shown) as process:
        rows = wait_for(both_train, process)
        plain = workbench("status", cwd=tmp_path).stdout
        wait_for(lambda: shown.count(b"1,000,000") >= 2, process)  # both runs' steps in the table
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=LIMIT) == 130

    assert [row["state"] for row in rows] == ["running", "running"]
    assert len({row["worker"] for row in rows}) == 2
    for row in rows:
        assert 0 < row["step"] < row["steps"] == 1_000_000 and row["loss"] > 0
        assert row["tokens_per_second"] > 0 and row["seconds_left"] > 0
        assert row["run_id"].encode() in shown
    assert plain.count("of 1,000,000, loss") == 2 and "left, by process" in plain
    assert b"0 of 2 runs are done, 2 running" in shown and b"tokens/s" in shown
    assert b"the same command goes on" in shown and b"Traceback" not in shown
    assert not list(tmp_path.glob("runs/*/lease"))
    told = (tmp_path / "told").read_text()
    assert "is interrupted on" in told and "0 of 2 runs are done." in told and told.endswith("interrupted\n")


@contextlib.contextmanager
def on_a_terminal(
    words: list[Any], cwd: Path, env: dict[str, str], shown: bytearray
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose stderr is a terminal; what it writes there goes into `shown`. No process outlives it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *map(str, words)], cwd=cwd, stderr=theirs,
        env=env | {"TERM": "xterm", "COLUMNS": "160"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1 << 16):
                shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        os.close(ours)


def wait_for(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """Return the first answer of `found` that is true, while the command goes on."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        assert process.poll() is None, "the command ended early"
        time.sleep(0.2)
    raise AssertionError(f"not there after {LIMIT:.0f} s")
