"""Weights in `pytorch_model.bin`, read only where a user allows it, by torch's unpickler that runs no code of the file.

They are copied once into a folder of the cache as safetensors, and that folder is checked and read as any other.
"""

from __future__ import annotations

import hashlib
import mmap
import shutil
import zipfile
from pathlib import Path
from typing import Any

from workbench.data.hugging_face.entries import regular_files
from workbench.data.hugging_face.stand_in import refusing
from workbench.data.hugging_face.tokenizer_folder import TOKENIZER_FILES
from workbench.data.hugging_face.weights import INDEX, PICKLED_FILE, SINGLE
from workbench.errors import InputError
from workbench.spec.run_spec import slug
from workbench.store.atomic import cache_root, open_regular, sha256
from workbench.store.cache import is_whole, staged

KEPT = ("config.json", *TOKENIZER_FILES)
MOST_NAMES = 4  # under which the same memory may be stored, as tied embeddings are
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # of layer norms, in checkpoints from TensorFlow


def with_safetensors(folder: Path) -> Path:
    """Return the folder itself, or a copy in the cache with pytorch_model.bin as safetensors if it has no others.

    Raises InputError if the file holds anything but tensors by name.
    """
    files = regular_files(folder)
    if PICKLED_FILE not in files or SINGLE in files or INDEX in files:
        return folder
    kept = {name: path for name, path in files.items() if name in KEPT}
    hashes = [sha256(path) for _, path in sorted({**kept, PICKLED_FILE: files[PICKLED_FILE]}.items())]
    key = hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]
    copy = cache_root() / "converted" / f"{slug(folder.name)}-{key}"
    if not is_whole(copy):
        weights = _tensors(folder, files[PICKLED_FILE])
        with staged(copy) as temporary:
            _write(temporary, weights, folder, kept)
    return copy


def _tensors(folder: Path, path: Path) -> dict[str, Any]:
    """Return the tensors of a pickled state dict. Raises InputError."""
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
    return {_new_name(name): tensor for name, tensor in loaded.items()}


def _check_records(path: Path) -> None:
    """Raise ValueError if reading a state dict would fill memory before there are tensors.

    torch writes the records of its zip files as they are. So records with more bytes than the file has unpack to any
    size, and so does a `bytearray`, which torch's unpickler makes and no state dict has.
    """
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as records:
                if sum(each.file_size for each in records.infolist()) > len(content):
                    raise ValueError("its records have more bytes than the file")
        if content.find(b"\nbytearray\n") >= 0:
            raise ValueError("it makes a bytearray")


def _check_sizes(folder: Path, tensors: dict[str, Any], size: int) -> None:
    """Raise InputError if tensors are larger than their memory, or all together than the file can explain.

    An expanded tensor repeats its memory, of a few bytes, in any size. Tied weights are stored once and have few names.
    """
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


def _new_name(name: str) -> str:
    """Return the name that a tensor has today: layer norms once had gamma and beta."""
    return next((name.removesuffix(old) + new for old, new in OLD_NAMES.items() if name.endswith(old)), name)


def _write(copy: Path, weights: dict[str, Any], folder: Path, kept: dict[str, Path]) -> None:
    """Write tensors as safetensors, each with its own memory, beside copies of the other files."""
    from safetensors.torch import save_file

    with refusing(folder, f"has a {PICKLED_FILE} that cannot be written as safetensors"):
        save_file({name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}, copy / SINGLE)
    for name, path in kept.items():
        shutil.copyfile(path, copy / name)
