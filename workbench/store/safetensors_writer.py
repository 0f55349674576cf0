"""Writers of safetensors files: one tensor at a time, and by the safetensors library.

The library's writer refuses tensors that share storage, and hides errors of the disk in its own exception. So it is
used only for folders that transformers reads; all reading is done by the library. Format: header length (8 bytes,
little-endian), header (JSON), data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES = {
    "float64": "F64", "int64": "I64", "uint64": "U64", "float32": "F32", "int32": "I32", "uint32": "U32",
    "float16": "F16", "bfloat16": "BF16", "int16": "I16", "uint16": "U16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


PLACES = "DCP_SHARDING_INFO"  # the key under which torch's distributed checkpoints say where the tensors of a part lie


def content(
    tensors: Mapping[str, Tensor], offsets: Mapping[str, Sequence[int]] | None = None
) -> tuple[int, Iterator[bytes | memoryview]]:
    """Return the size in bytes and the parts of a file with these tensors, of any device, strides and storage.

    With `offsets`, each tensor is a part of one, and begins there at this index of each dimension. The file has these
    as torch's distributed checkpoints have them in safetensors.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # keeps every tensor aligned
    header: dict[str, Any] = {}
    if offsets is not None:
        places = {name: {"saved_offsets": list(offsets[name])} for name in order}
        header["__metadata__"] = {"format": "pt", PLACES: json.dumps(places)}
    end = 0
    for name in order:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        kind = _DTYPES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def parts() -> Iterator[bytes | memoryview]:
        yield len(text).to_bytes(8, "little") + text
        for name in order:
            yield raw(tensors[name])

    return 8 + len(text) + end, parts()


def save_copies(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a copy of each tensor with the library, which marks the file as transformers expects it."""
    from safetensors.torch import save_file

    apart = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(apart, path, metadata={"format": "pt"})


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Raise the OSError that is hidden in an exception of the safetensors library's writer; `path` is what it names."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def raw(tensor: Tensor) -> memoryview:
    """Return the elements of a dense tensor of any shape, in order, as bytes; they are copied only if necessary."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")
