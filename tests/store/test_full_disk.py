"""A disk that is full where files are written by libraries of others: the same error as everywhere, with what to do."""

from __future__ import annotations

import contextlib
import errno
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from drills.small import TINY

from workbench.data import tokenizer
from workbench.models.encoder import build_encoder
from workbench.models.export import export
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, parse_overrides
from workbench.spec.stages import BoundRun
from workbench.store.atomic import write_atomic
from workbench.store.cache import staged
from workbench.store.run_store import RunStore

SPEC: RunSpec = resolve("nano", parse_overrides(list(TINY)))


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write more than `size` bytes into any one file, as a disk does that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def told(error: OSError, path: Path) -> None:
    assert error.errno == errno.EFBIG and error.filename == str(path)
    assert "more bytes are needed and a file may have" in str(error) and "(ulimit -f)" in str(error)
    assert "raise that limit and give the same command again" in str(error)


def test_exporting_an_encoder(tmp_path: Path) -> None:
    run = RunStore(tmp_path / "runs").open(BoundRun(SPEC))
    words = tmp_path / "words"
    words.mkdir()
    facts = {"steps": 0, "tokens": 0, "flops": {"paper": 0}}
    encoder = build_encoder(SPEC)
    with files_of_at_most(2000), pytest.raises(OSError) as caught, run.staged("encoder") as folder:
        export(encoder, words, folder, SPEC, facts)
    told(caught.value, run.path / "encoder")
    assert [path.name for path in run.path.iterdir()] == ["spec.json"]


def test_saving_a_vocabulary(tmp_path: Path) -> None:
    made = tokenizer.train(["some words to learn from"] * 50, 100, lowercase=True)
    with files_of_at_most(500), pytest.raises(OSError) as caught, staged(tmp_path / "words") as folder:
        tokenizer.save(made, folder, lowercase=True)
    told(caught.value, tmp_path / "words")
    assert not list(tmp_path.iterdir())


def test_a_file_written_in_a_stage_is_named_by_its_place(tmp_path: Path) -> None:
    run = RunStore(tmp_path / "runs").open(BoundRun(SPEC))
    with run.lease(), files_of_at_most(500), pytest.raises(OSError) as caught:
        run.write("scores/x.json", b"x" * 1012)
    assert caught.value.filename == str(run.path / "scores" / "x.json")
    assert "1012 bytes are needed" in str(caught.value)


def test_a_disk_without_inodes_is_told_from_one_without_bytes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=8", "tmpfs", disk], capture_output=True)
    if mount.returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        with pytest.raises(OSError) as caught:
            for number in range(20):
                write_atomic(disk / f"{number}.json", b"{}")
        assert caught.value.errno == errno.ENOSPC
        assert "one more file is needed and 0 of 8 inodes are free; delete files" in str(caught.value)
    finally:
        subprocess.run(["umount", disk], check=True)
