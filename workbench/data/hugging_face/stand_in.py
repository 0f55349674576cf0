"""Temporary folders that libraries read instead of folders that others made, and their errors as one sentence."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from workbench.data.hugging_face.entries import LARGEST_VOCABULARY, read_settings
from workbench.data.hugging_face.weights import INDEX
from workbench.errors import InputError, message_of
from workbench.store.atomic import disk_errors

# Keys of tokenizer_config.json that name files or folders, or are never used here.
UNSEEN = ("auto_map", "name_or_path", "chat_template", "processor_class", "fast_tokenizer_files", "gguf_file")


@contextmanager
def view(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Yield a temporary folder with links to checked files, and with settings that name no other file or folder."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as temporary:
        here = Path(temporary)
        with disk_errors(here):
            _fill(here, folder, files, config)
        yield here


def _fill(here: Path, folder: Path, files: Mapping[str, Path], config: Mapping[str, Any] | None) -> None:
    """Write settings and links into the temporary folder `here`."""
    if config is not None:
        (here / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    for name, path in files.items():
        if name == "tokenizer_config.json":
            raw = read_settings(folder, name, path)
            settings = {k: v for k, v in raw.items() if k not in UNSEEN and not k.endswith("_file")}
            (here / name).write_text(json.dumps(settings), encoding="utf-8")
        elif name == INDEX:
            places = read_settings(folder, name, path, LARGEST_VOCABULARY)["weight_map"]
            (here / name).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
        else:
            (here / name).symlink_to(path)


@contextmanager
def refusing(folder: Path | str, what: str, mute: bool = True) -> Iterator[None]:
    """Turn every exception of a library in the block into an InputError: "FOLDER WHAT: first line of its message".

    The library's log and progress bars are off in the block, and with `mute`, standard error as a whole is off too.
    """
    with _silent(), _muted() if mute else nullcontext():
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # transformers raises many types for faults in a file
            raise InputError(f"{folder} {what}: {_first_line(error)}") from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # raised by libraries in Rust
                raise
            raise InputError(f"{folder} {what}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in message_of(error).splitlines() if line.strip()] or [type(error).__name__]
    line = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])  # the reason is in the line below a heading
    if isinstance(error, KeyError):  # whose message is the key alone
        line = f"it names {line}, which is unknown"
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:300]


@contextmanager
def _silent() -> Iterator[None]:
    from transformers.utils import logging

    shown, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(shown)
        if bar:
            logging.enable_progress_bar()


@contextmanager
def _muted() -> Iterator[None]:
    """Discard what the block writes to standard error, such as the panics of libraries in Rust."""
    try:
        standard_error, null = os.dup(2), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # the process has no standard error
        yield
        return
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)
