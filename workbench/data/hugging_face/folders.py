"""Folders that others made: their regular files, their settings, and a `view` of checked files for a library."""

from __future__ import annotations

import itertools
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import InputError, message_of
from workbench.process import interruptible
from workbench.store.atomic import disk_errors, loads, read_bytes

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED_FILE = "pytorch_model.bin"  # read only where a user allows it
VOCABULARIES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = (*VOCABULARIES, "merges.txt", *SETTINGS)
MOST_ENTRIES = 10_000
LARGEST_SETTINGS = 4 << 20  # bytes of config.json and similar files, which usually have kilobytes
LARGEST_VOCABULARY = 64 << 20  # bytes of tokenizer.json; the largest in use have about 35 million


def regular_files(folder: Path) -> dict[str, Path]:
    """Return the regular files of a folder by name, with links resolved; subfolders are left out.

    Raises InputError for other kinds of files, and for a link out of the folder, but to `blobs` of the hub's cache.
    """
    root = Path(os.path.realpath(folder))
    try:
        with os.scandir(root) as entries:
            files = (entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
            names = list(itertools.islice(files, MOST_ENTRIES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if len(names) > MOST_ENTRIES:
        raise InputError(f"{folder} holds more than {MOST_ENTRIES:,} files; name the folder of one encoder")
    targets = {name: _checked(folder, root, name) for name in names}
    return {name: target for name, target in targets.items() if target is not None}


def _checked(folder: Path, root: Path, name: str) -> Path | None:
    """Return the regular file of an entry, or None for a link to a folder. Raises InputError for anything else."""
    shown = ascii(name)[1:-1][:80]
    target = Path(os.path.realpath(root / name))
    try:
        mode = os.stat(target).st_mode
    except OSError:
        raise InputError(f"{folder}: {shown} is a link to a missing file; remove it or put the file there") from None
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        raise InputError(f"{folder}: {shown} is not a regular file but a pipe, a socket or a device; remove it")
    # The links of a snapshot in the hub's cache point into `blobs`.
    blobs = root.parents[1] / "blobs" if root.parent.name == "snapshots" else root
    if not target.is_relative_to(root) and not target.is_relative_to(blobs):
        raise InputError(f"{folder}: {shown} is a link that leads out of the folder; put the file itself there")
    return target


def read_settings(folder: Path, name: str, path: Path, largest: int = LARGEST_SETTINGS) -> dict[str, Any]:
    """Return the JSON object in a file of the folder. Raises InputError if there is none, or if it requests code."""
    try:
        value = loads(read_bytes(path, largest))
    except (ValueError, OSError) as error:
        raise InputError(f"{folder}: {name} cannot be read: {ascii(str(error))[1:-1][:120]}") from None
    if not isinstance(value, dict):
        raise InputError(f"{folder}: {name} holds {type(value).__name__}, not a JSON object")
    if any(isinstance(each, float) and not math.isfinite(each) for each in value.values()):
        raise InputError(f"{folder}: {name} holds a number too large for any setting")
    if value.get("auto_map"):
        raise InputError(
            f"{folder}: {name} requests code of its own (auto_map), which is never run; choose a folder without it"
        )
    return value


# Keys of tokenizer_config.json that name files or folders, or are never used here.
UNSEEN = ("auto_map", "name_or_path", "chat_template", "processor_class", "fast_tokenizer_files", "gguf_file")


@contextmanager
def view(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Yield a temporary folder with links to checked files, and with settings that name no other file or folder."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as temporary:
        here = Path(temporary)
        with disk_errors(here):
            written: dict[str, Any] = {} if config is None else {"config.json": dict(config)}
            for name, path in files.items():
                if name == "tokenizer_config.json":
                    raw = read_settings(folder, name, path)
                    written[name] = {k: v for k, v in raw.items() if k not in UNSEEN and not k.endswith("_file")}
                elif name == INDEX:
                    places = read_settings(folder, name, path, LARGEST_VOCABULARY)["weight_map"]
                    written[name] = {"metadata": {}, "weight_map": places}
                else:
                    (here / name).symlink_to(path)
            for name, settings in written.items():
                (here / name).write_text(json.dumps(settings), encoding="utf-8")
        yield here


@contextmanager
def refusing(folder: Path | str, what: str, mute: bool = True) -> Iterator[None]:
    """Turn every exception of a library in the block into an InputError: "FOLDER WHAT: first line of its message".

    The library's log and progress bars are off in the block, and with `mute`, standard error as a whole is off too.
    """
    with _silent(), _muted() if mute else nullcontext():
        try:
            yield
        except BaseException as error:  # transformers raises many types for faults in a file, libraries in Rust another
            is_fault = isinstance(error, Exception) or type(error).__name__ == "PanicException"
            if isinstance(error, InputError) or not is_fault:
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


T = TypeVar("T")
LEAST = 30.0  # seconds of processor time that any call may take
PACE = 20_000  # characters for each further second; usual tokenizers encode millions


def in_time(work: Callable[[], T], characters: int, name: object, mute: bool = True) -> T:
    """Return the result of `work`, which encodes so many characters with the tokenizer `name`; signals interrupt it.

    Raises InputError if it fails or takes a hundred times the processor time of usual tokenizers. See `refusing`.
    """
    limit = LEAST + characters / PACE
    with refusing(str(name), "holds a tokenizer that cannot encode these texts", mute):
        try:
            return interruptible(work, limit)
        except TimeoutError:
            raise InputError(
                f"{name}: its tokenizer took more than {limit:.0f} s of processor time for {characters:,} characters, "
                f"for which usual ones take less than a hundredth of that; choose another tokenizer"
            ) from None
