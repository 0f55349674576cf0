"""Commands whose standard streams are closed, full, without a reader or of a narrow encoding."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from drills.small import SETS, environment, write_text

from workbench.cli import StandardStream
from workbench.progress import console, visible

WORKBENCH = f"{shlex.quote(sys.executable)} -m workbench"
NO_SPACE = "workbench: No space left on device: the output cannot be written; send it to another disk\n"


def shell(line: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", line], capture_output=True, cwd=cwd, env=environment(cwd / "cache") | variables)


@pytest.mark.parametrize(
    ("words", "streams", "code", "errors"),
    [
        ("list corpora", ">&-", 0, ""),
        ("list corpora --json", "<&- >&- 2>&-", 0, ""),
        ("list corpora", "2>&-", 0, ""),
        ("--help", ">&-", 0, ""),
        ("list nothing", "2>&-", 2, ""),
        ("list nothing", "2>/dev/full", 2, ""),
        ("list corpora --json", ">/dev/full", 74, NO_SPACE),
        ("list corpora", "</dev/null >/dev/full", 74, NO_SPACE),
        ("--help", ">/dev/full", 74, NO_SPACE),
        ("--version", ">/dev/full 2>/dev/full", 74, ""),
        ("list corpora", "1</dev/null", 0, ""),
    ],
)
def test_a_stream_that_takes_nothing(words: str, streams: str, code: int, errors: str, tmp_path: Path) -> None:
    done = shell(f"{WORKBENCH} {words} {streams}", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (code, errors)


@pytest.mark.parametrize("words", ["list corpora", "list corpora --json", "--help", "list nothing 2>&1"])
def test_a_reader_that_is_gone_changes_no_exit_code(words: str, tmp_path: Path) -> None:
    done = shell(f"{{ sleep 0.1; {WORKBENCH} {words}; echo $? >&3; }} 3>code | true; cat code", tmp_path)
    assert done.stdout == (b"2\n" if "nothing" in words else b"0\n") and done.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252:strict", "utf-8"])
def test_characters_that_an_encoding_lacks_are_written_as_escapes(encoding: str, tmp_path: Path) -> None:
    name = "caf\u00e9\u2019s"
    done = shell(f"{WORKBENCH} list '{name}' 2>&1", tmp_path, PYTHONIOENCODING=encoding)
    kind = encoding.partition(":")[0]
    assert done.returncode == 2 and name.encode(kind, "backslashreplace") in done.stdout


def test_a_run_without_standard_streams_is_complete_and_its_files_hold_no_output(tmp_path: Path) -> None:
    text = write_text(tmp_path / "small.txt")
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", str(text), "--tasks", "none", *SETS]
    line = f"{WORKBENCH} {shlex.join(words)} --budget steps=3 --out report"
    done = shell(f"{{ {line} <&- 2>&1 >&-; echo $? >&3; }} 3>code | true; cat code", tmp_path)
    assert done.stdout == b"0\n"
    (folder,) = (path.parent for path in tmp_path.glob("runs/*/done.json"))
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3] and (tmp_path / "report" / "index.html").exists()


HOSTILE = "a\x1b[2Jb\x07\x08\rc\x7f\x9b31m\u202ed\u2028"
SHOWN = "a\\x1b[2Jb\\x07\\x08\\rc\\x7f\\x9b31m\\u202ed\\u2028"


def test_text_cannot_steer_the_terminal() -> None:
    assert visible(HOSTILE) == SHOWN and visible("one\n\ttwo é’中") == "one\n\ttwo é’中"
    assert visible("one\n\ttwo", lines=False) == "one\\n\\ttwo"


def test_a_progress_bar_keeps_its_own_control_characters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress, TextColumn

    read, write = os.pipe()
    stream = StandardStream(write, None)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(TextColumn("{task.description}", markup=False), console=console()) as bar:
        bar.add_task("a\x1b[2J[/b]\x9bc")
    stream.flush()
    os.close(write)
    with open(read, "rb") as file:
        shown = file.read().decode()
    assert "\x1b[?25l" in shown, "the cursor is hidden by the bar itself"
    assert "a\\x1b[2J[" in shown and "\x1b[2J" not in shown and "\x9b" not in shown


def test_a_pipe_that_does_not_block_gets_everything() -> None:
    """Another process can set a pipe that both use to return instead of waiting; nothing may be lost then."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    stream = StandardStream(write, None)
    taken = io.BytesIO()

    def take() -> None:
        time.sleep(0.2)
        with open(read, "rb") as file:
            taken.write(file.read())

    reader = threading.Thread(target=take)
    reader.start()
    stream.write("0123456789" * 50_000)
    stream.flush()
    os.close(write)
    reader.join()
    assert len(taken.getvalue()) == 500_000
