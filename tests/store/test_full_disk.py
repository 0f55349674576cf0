"""A disk that is full where files are written by libraries of others: the same error as everywhere, with what to do."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import limits
import pytest
import torch
from drills.small import TINY
from limits import files_of_at_most

from workbench.data import tokenizer
from workbench.execution import babylm_export
from workbench.models.encoder import build_encoder
from workbench.models.export import export
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, overrides_of, split_settings
from workbench.spec.stages import BoundRun
from workbench.store.atomic import copy_files, disk_errors
from workbench.store.cache import staged
from workbench.store.run_store import RunStore

SPEC: RunSpec = resolve("nano", overrides_of(split_settings(list(TINY))))


def told(error: OSError, path: Path) -> None:
    assert error.errno == errno.EFBIG and error.filename == str(path)
    assert re.search(r"more than (\d+) bytes are needed and a file may have \1 \(ulimit -f\)", str(error))
    assert "raise that limit and give the same command again" in str(error)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with limits.small_disk(tmp_path, "size=64k") as disk:
        yield disk


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


def test_saving_the_weights_of_a_masked_language_model(tmp_path: Path) -> None:
    with files_of_at_most(500), pytest.raises(OSError) as caught, disk_errors(tmp_path / "out"):
        babylm_export.save_tensors({"weight": torch.zeros(1000)}, tmp_path / "model.safetensors")
    told(caught.value, tmp_path / "out")


def test_copying_a_folder(tmp_path: Path) -> None:
    (tmp_path / "from" / "inner").mkdir(parents=True)
    (tmp_path / "from" / "inner" / "x").write_bytes(b"x" * 1000)
    with files_of_at_most(500), pytest.raises(OSError) as caught, disk_errors(tmp_path / "to"):
        copy_files(tmp_path / "from", tmp_path / "to")
    told(caught.value, tmp_path / "to")
    copy_files(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to" / "inner" / "x").read_bytes() == b"x" * 1000


def test_what_is_free_is_measured_after_an_unfinished_folder_was_removed(small_disk: Path) -> None:
    """So that the figure is what `df` shows afterwards; more than that is needed."""
    run = RunStore(small_disk / "runs").open(BoundRun(SPEC))
    for folder, unfinished in ((small_disk / "words", staged), (run.path / "encoder", lambda _: run.staged("encoder"))):
        with pytest.raises(OSError) as caught, unfinished(folder) as draft:
            (draft / "weights").write_bytes(b"x" * (1 << 20))
        left = shutil.disk_usage(small_disk).free
        assert left > 40_000 and caught.value.filename == str(folder)
        assert f"more than {left} bytes are needed and {left} are free" in str(caught.value)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_that_cannot_be_written_to_standard_output(unbuffered: str, small_disk: Path) -> None:
    """The system's error names no file, so the bytes are those of the disk on which the output is written."""
    (small_disk / "filler").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    command = [sys.executable, "-m", "workbench", "list", "scales"]
    for output, words in (
        (small_disk / "scales.txt", "more than 0 bytes are needed and 0 are free"),
        (Path("/dev/full"), "the output cannot be written; send it to another disk"),
    ):  # fmt: skip
        with open(output, "wb") as file:
            environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, env=environment)
        assert done.returncode == 74 and done.stderr.count("\n") == 1 and words in done.stderr
    assert str(small_disk / "scales.txt") not in done.stderr


def test_results_before_an_error_of_another_file_are_printed(tmp_path: Path) -> None:
    code = f"""
import errno
from workbench import cli

def app(**_):
    print("a result")
    raise OSError(errno.ENOSPC, "full", {str(tmp_path / "x")!r})

cli.app = app
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONUNBUFFERED": ""}
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (74, "a result\n", 1), done.stderr


def test_a_file_written_in_a_stage_is_named_by_its_place(tmp_path: Path) -> None:
    run = RunStore(tmp_path / "runs").open(BoundRun(SPEC))
    with run.lease(), files_of_at_most(500), pytest.raises(OSError) as caught:
        run.write("scores/x.json", b"x" * 1012)
    assert caught.value.filename == str(run.path / "scores" / "x.json")
    assert "1012 bytes are needed" in str(caught.value)
