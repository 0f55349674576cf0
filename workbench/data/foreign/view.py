"""What a library gets to see of another's folder, and its complaints as one sentence."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from workbench.data.foreign.entries import LARGEST_VOCABULARY, read_settings
from workbench.data.foreign.weights import INDEX
from workbench.errors import InputError, message_of

# Of tokenizer_config.json: what names files or folders, or is never used here.
UNSEEN = ("auto_map", "name_or_path", "chat_template", "processor_class", "fast_tokenizer_files", "gguf_file")


@contextmanager
def view(folder: Path, files: Mapping[str, Path], config: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A temporary folder with links to checked files, and with settings in which nothing leads elsewhere."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as made:
        here = Path(made)
        if config is not None:
            (here / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
        for name, path in files.items():
            if name == "tokenizer_config.json":
                raw = read_settings(folder, name, path)
                kept = {k: v for k, v in raw.items() if k not in UNSEEN and not k.endswith("_file")}
                (here / name).write_text(json.dumps(kept), encoding="utf-8")
            elif name == INDEX:
                places = read_settings(folder, name, path, LARGEST_VOCABULARY)["weight_map"]
                (here / name).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
            else:
                (here / name).symlink_to(path)
        yield here


@contextmanager
def refusing(folder: Path | str, what: str, mute: bool = True) -> Iterator[None]:
    """Turn whatever a library raises inside into an InputError: "FOLDER WHAT: the first line of what it said".

    The library's log and progress bars are silent meanwhile, and with `mute` so is standard error as a whole.
    """
    with _silent(), _muted() if mute else nullcontext():
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # transformers raises many kinds for what stands in a file
            raise InputError(f"{folder} {what}: {_first_line(error)}") from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a library in Rust
                raise
            raise InputError(f"{folder} {what}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in message_of(error).splitlines() if line.strip()] or [type(error).__name__]
    line = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])  # the reason stands below a heading
    if isinstance(error, KeyError):  # whose message is the key alone
        line = f"it names {line}, which is not known"
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
    """Drop what is written to standard error inside, as a library in Rust does with its panics before it raises."""
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # there is no standard error
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
