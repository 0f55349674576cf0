"""What a second terminal sees of a sweep at work, and what the first one shows."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from .conftest import SETS, Command, environment


def test_a_live_table_and_status_from_elsewhere_and_a_clean_stop(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["sweep", "--over", "tying=none,tokens", "--match", "steps", "--corpus", text, "--tasks", "none", *SETS]
    words += ["--budget", "steps=1000000", "--workers", 2, "--threads", 1]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *map(str, words)], cwd=tmp_path, stderr=theirs,
        env=environment(cache) | {"TERM": "xterm", "COLUMNS": "160"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, rows = b"", []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        os.set_blocking(ours, False)
        try:
            shown += os.read(ours, 1 << 16)
        except BlockingIOError:
            time.sleep(0.2)
        if shown.count(b"training") > 8:
            rows = json.loads(workbench("status", "--json", cwd=tmp_path).stdout)
            break
    plain = workbench("status", cwd=tmp_path).stdout
    os.killpg(process.pid, signal.SIGINT)
    os.set_blocking(ours, True)
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # the other end is closed
        pass
    assert process.wait(timeout=60) == 130

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
