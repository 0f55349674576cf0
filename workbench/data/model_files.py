"""Folders that others made: regular files, settings, weights, and a `view` of checked files for a library."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import InputError, message_of
from workbench.process import interruptible
from workbench.spec.run_spec import slug
from workbench.store.atomic import cache_root, disk_errors, loads, open_regular, read_bytes, sha256
from workbench.store.cache import is_whole, staged

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED_FILE = "pytorch_model.bin"  # read only where a user allows it
VOCABULARIES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = (*VOCABULARIES, "merges.txt", *SETTINGS)
LARGEST_SETTINGS = 4 << 20  # bytes of config.json and similar files, which usually have kilobytes
LARGEST_VOCABULARY = 64 << 20  # bytes of tokenizer.json; the largest in use have about 35 million


def regular_files(folder: Path) -> dict[str, Path]:
    """Return the regular files of a folder by name, with links resolved; subfolders are left out.

    Raises InputError for other kinds of files, and for a link out of the folder, but to `blobs` of the hub's cache.
    """
    root = Path(os.path.realpath(folder))
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return {}
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
    from transformers.utils import logging

    shown, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with _muted() if mute else nullcontext():
            yield
    except BaseException as error:  # transformers raises many types for faults in a file, libraries in Rust another
        is_fault = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, InputError) or not is_fault:
            raise
        raise InputError(f"{folder} {what}: {_first_line(error)}") from None
    finally:
        logging.set_verbosity(shown)
        if bar:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in message_of(error).splitlines() if line.strip()] or [type(error).__name__]
    line = lines[0] if not lines[0].endswith(":") else " ".join(lines[:2])  # the reason is in the line below a heading
    if isinstance(error, KeyError):  # whose message is the key alone
        line = f"it names {line}, which is unknown"
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:300]


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


# ----------------------------------------
# Weights that others made: safetensors files checked by their headers alone, and pickled files made into safetensors.
#
# Where a user allows it, `pytorch_model.bin` is read by torch's unpickler that runs no code, and copied as safetensors
# into the cache.

PICKLED = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")
FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE_NUMBERS = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
Header = dict[str, tuple[str, int]]  # the type and the number of elements of each tensor of a file


def check_weights(folder: Path, files: Mapping[str, Path]) -> tuple[dict[str, Path], dict[str, int], frozenset[str]]:
    """Return the files of the weights by name, the size of each float tensor, and the names of integer tensors.

    Raises InputError if there are no weights, or a file cannot be read.
    """
    if SINGLE in files:
        return {SINGLE: files[SINGLE]}, *_by_type(_header(folder, SINGLE, files[SINGLE]))
    if INDEX in files:
        return _check_shards(folder, files)
    pickled = sorted(name for name in files if PICKLED.fullmatch(name))
    if pickled:
        allowed = ", or let evaluate read them without running code, with --allow-bin"
        raise InputError(
            f"{folder}: {ascii(pickled[0])[1:-1][:80]} holds weights in a format that is not read, since opening "
            f"it can run code; convert them to safetensors{allowed if PICKLED_FILE in pickled else ''}"
        )
    raise InputError(f"{folder} holds no weights: there is no {SINGLE}")


def _check_shards(folder: Path, files: Mapping[str, Path]) -> tuple[dict[str, Path], dict[str, int], frozenset[str]]:
    places = read_settings(folder, INDEX, files[INDEX], LARGEST_VOCABULARY).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(f"{folder}: {INDEX} has no weight_map from tensors to files")
    named = sorted({place if isinstance(place, str) else ascii(place) for place in places.values()})
    for place in named:
        if not SHARD.fullmatch(place):
            raise InputError(
                f"{folder}: {INDEX} names {ascii(place)[1:-1][:80]}, and only safetensors files of the folder itself "
                f"are read"
            )
        if place not in files:
            raise InputError(f"{folder}: {INDEX} names {place}, which is not in the folder")
    header: Header = {}
    for place in named:
        header |= _header(folder, place, files[place])
    return {INDEX: files[INDEX], **{place: files[place] for place in named}}, *_by_type(header)


def _by_type(header: Header) -> tuple[dict[str, int], frozenset[str]]:
    """Return the number of elements of each float tensor, and the names of the other tensors."""
    elements = {name: count for name, (kind, count) in header.items() if kind in FLOATS}
    return elements, frozenset(header.keys() - elements.keys())


def _header(folder: Path, name: str, path: Path) -> Header:
    """Return the tensors of a file, whose header the library compares with its data. Raises InputError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            slices = {tensor: file.get_slice(tensor) for tensor in file.keys()}  # noqa: SIM118 - it is no mapping
            header = {tensor: (part.get_dtype(), math.prod(part.get_shape())) for tensor, part in slices.items()}
        for tensor, (kind, _) in header.items():
            if kind not in (*FLOATS, *WHOLE_NUMBERS):
                raise ValueError(f"{tensor[:80]} has the type {kind}, which is not supported")
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(f"{folder}: {name} cannot be read as safetensors: {ascii(str(error))[1:-1][:160]}") from None
    return header


KEPT = ("config.json", *TOKENIZER_FILES)
MOST_NAMES = 4  # under which the same memory may be stored, as tied embeddings are
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # of layer norms, in checkpoints from TensorFlow


def with_safetensors(folder: Path) -> Path:
    """Return the folder, or a cached copy with safetensors if it has only pytorch_model.bin. Raises InputError."""
    files = regular_files(folder)
    if PICKLED_FILE not in files or SINGLE in files or INDEX in files:
        return folder
    kept = {name: path for name, path in files.items() if name in KEPT}
    hashes = [sha256(path) for _, path in sorted({**kept, PICKLED_FILE: files[PICKLED_FILE]}.items())]
    key = hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]
    copy = cache_root() / "converted" / f"{slug(folder.name)}-{key}"
    if not is_whole(copy):
        from safetensors.torch import save_file

        weights = _tensors(folder, files[PICKLED_FILE])
        with staged(copy) as temporary:
            with refusing(folder, f"has a {PICKLED_FILE} that cannot be written as safetensors"):
                apart = {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}
                save_file(apart, temporary / SINGLE)
            for name, path in kept.items():
                shutil.copyfile(path, temporary / name)
    return copy


def _tensors(folder: Path, path: Path) -> dict[str, Any]:
    import torch

    with refusing(folder, f"has a {PICKLED_FILE} that cannot be read without running code"):
        _check_records(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict) or not loaded:
        raise InputError(f"{folder}: {PICKLED_FILE} holds {type(loaded).__name__}, not tensors by name")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise InputError(f"{folder}: {PICKLED_FILE} holds {ascii(name)[:60]}, which is not a tensor with a name")
    _check_sizes(folder, loaded, path.stat().st_size)
    for old, new in OLD_NAMES.items():
        loaded = {f"{name.removesuffix(old)}{new}" if name.endswith(old) else name: loaded[name] for name in loaded}
    return loaded


def _check_records(path: Path) -> None:
    """Raise ValueError if reading a state dict would fill memory before there are tensors.

    torch packs no records of its zip files, and no state dict has a `bytearray`, which may unpack to any size.
    """
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as records:
                if sum(each.file_size for each in records.infolist()) > len(content):
                    raise ValueError("its records have more bytes than the file")
        if content.find(b"\nbytearray\n") >= 0:
            raise ValueError("it makes a bytearray")


def _check_sizes(folder: Path, tensors: dict[str, Any], size: int) -> None:
    """Raise InputError if tensors exceed their memory (expanded ones repeat a few bytes) or what the file explains."""
    for name, tensor in tensors.items():
        needed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if needed > stored:
            raise InputError(
                f"{folder}: {PICKLED_FILE} holds {ascii(name)[:60]} of {needed:,} bytes, of which {stored:,} are "
                f"stored; save it again from a contiguous copy"
            )
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if needed > MOST_NAMES * size:
        raise InputError(
            f"{folder}: {PICKLED_FILE} has {size:,} bytes, and its tensors {needed:,}, more than {MOST_NAMES} times as "
            f"many; save each tensor with a memory of its own"
        )
