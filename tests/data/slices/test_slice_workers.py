"""Processes that share the slices of a text."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from slice_text import Small, content, make, spec_of

from workbench.data import preprocessing
from workbench.errors import InputError


def test_processes_make_the_same_bytes(book: Path, tmp_path: Path, sliced: Small) -> None:
    sliced(50_000)
    make(spec_of(book), tmp_path / "alone")
    make(spec_of(book), tmp_path / "shared", workers=3)
    assert content(tmp_path / "shared") == content(tmp_path / "alone")


COMMAND = """
import sys
from workbench.data import tokenizer
from workbench.data import preprocessing
tokenizer.SAMPLE, preprocessing.SLICE = 200_000, 20_000
from workbench.cli import main
sys.argv = ["workbench", "data", "prepare", "--corpus", sys.argv[1], "--workers", "2", "--json",
            "--set", "encoder.vocab=800", "--set", "batch.size=4", *sys.argv[2:]]
main()
"""


def start(book: Path, cache: Path, filters: Sequence[str]) -> subprocess.Popen[str]:
    """Prepare by two workers, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(book), *filters], env={**os.environ, "WORKBENCH_CACHE": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def folders(cache: Path) -> list[Path]:
    """Return the slices and signatures that are complete."""
    return [*cache.glob("slices/[!.]*"), *cache.glob("signatures/[!.]*")]


def workers_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("filters", [(), ("--set", "data.near_duplicates=0.8", "--set", "data.min_words=5")])
def test_ten_kills_over_two_workers_change_no_byte(book: Path, tmp_path: Path, filters: Sequence[str]) -> None:
    """By turns a worker, the whole command with its workers, and the command alone, at any time of their work."""
    done = start(book, tmp_path / "calm", filters)
    out, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    cache, draw, kills = tmp_path / "killed", random.Random(5), 0
    pieces = len(folders(tmp_path / "calm"))
    command = start(book, cache, filters)
    while kills < 10:
        count = len(folders(cache))
        wanted = min(count + pieces // 50 + kills % 3, pieces)
        deadline = time.monotonic() + 120
        while command.poll() is None and len(folders(cache)) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(draw.random() * 0.05)
        assert command.poll() is None, "the text is too small for this test"
        children = workers_of(command.pid)
        if kills % 3 == 0 and children:
            os.kill(draw.choice(children), signal.SIGKILL)
        elif kills % 3 == 1:
            os.killpg(command.pid, signal.SIGKILL)
            command.communicate(timeout=60)
            command = start(book, cache, filters)
        else:
            command.kill()
            command.communicate(timeout=60)
            command = start(book, cache, filters)
        kills += 1
    again, errors = command.communicate(timeout=300)
    assert command.returncode == 0, errors
    assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]
    assert content(cache) == content(tmp_path / "calm")


def test_a_worker_that_is_stopped_is_not_waited_for_when_others_have_made_all_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preprocessing, "PATIENCE", 0.3)
    monkeypatch.setattr(preprocessing, "LOOK", 0.05)
    sizes: list[int] = []
    plan = SimpleNamespace(slices=[[SimpleNamespace(size=7)]], path=tmp_path / "plan", folder=lambda _: tmp_path)
    made: list[subprocess.Popen[bytes]] = []

    def stopped(*_: object) -> preprocessing.Child:
        made.append(child := subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        child.send_signal(signal.SIGSTOP)
        return child, io.BytesIO()

    monkeypatch.setattr(preprocessing, "_started", stopped)
    begun = time.monotonic()
    preprocessing._share(plan, 1, sizes.append)  # type: ignore[arg-type]
    assert time.monotonic() - begun < 30 and made[0].returncode == -signal.SIGKILL and sizes == [7]
    assert "a worker does not answer" in caplog.text


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (2, InputError, "a.txt is no text"),
        (74, OSError, "a.txt is no text"),
        (-9, None, "a worker ended early, with signal 9"),
        (1, None, "a worker ended early, with exit code 1"),
    ],
)
def test_how_a_worker_ended_decides_what_becomes_of_the_others(
    code: int, expected: type[Exception] | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Text that cannot be read and a disk that fails end all; one that was killed is replaced by the others."""
    messages = io.BytesIO(b"workbench: a warning before\nworkbench: a.txt is no text\n")
    ended = SimpleNamespace(returncode=code)
    if expected is not None:
        with pytest.raises(expected, match=words):
            preprocessing._judge(ended, messages)  # type: ignore[arg-type]
    else:
        preprocessing._judge(ended, messages)  # type: ignore[arg-type]
        assert [record.getMessage() for record in caplog.records] == ["a warning before", "a.txt is no text", words]
