"""Files of tensors as the safetensors library reads them."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from workbench.store.checkpoint import content, library_errors, save_copies

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 3)),
        max_size=6,
    )
)
def test_the_library_reads_what_we_write(tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    tensors = {}
    for name, (dtype, shape, way) in shapes.items():
        tensor = (torch.randn([*shape]) * 9).to(dtype)
        views = (tensor, tensor.transpose(0, -1) if shape else tensor, tensor[1:] if shape else tensor, tensor.flip([]))
        tensors[name] = views[way]
    size, parts = content(tensors)
    path.write_bytes(b"".join(parts))
    assert path.stat().st_size == size
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert torch.equal(loaded[name], tensor)


def test_every_tensor_begins_at_a_multiple_of_the_size_of_its_elements() -> None:
    """A reader maps the file into memory; libraries read numbers there only at such places."""
    tensors = {"a": torch.zeros(3, dtype=torch.int8), "b": torch.zeros(5, dtype=torch.float64), "c": torch.zeros(1)}
    whole = b"".join(content(tensors)[1])
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    for name, tensor in tensors.items():
        start, end = header[name]["data_offsets"]
        assert (8 + length + start) % tensor.element_size() == 0 and end - start == tensor.nbytes


def test_tied_weights_are_copied_for_the_library(tmp_path: Path) -> None:
    table = torch.randn(4, 3, requires_grad=True)
    save_copies({"table": table, "tied": table, "turned": table.t()}, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_tensor("tied"), table) and torch.equal(file.get_tensor("turned"), table.t())


def test_an_error_of_the_disk_is_taken_out_of_the_library_s(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, library_errors(tmp_path / "x"):
        raise SafetensorError(f"I/O error: No space left on device (os error {errno.ENOSPC})")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    with pytest.raises(SafetensorError, match="something else"), library_errors(tmp_path / "x"):
        raise SafetensorError("something else")
