"""The interface between Python and the kernels in C: declarations, the cache key and memory that runs out."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import cpu
from workbench.cpu import compiled
from workbench.memory import is_memory
from workbench.tensors import Drop

HERE = Path(__file__).parent
BF16 = torch.bfloat16
NONE = Drop(0, 0.0)


def compiler(*more: str) -> str:
    return shlex.join([*shlex.split(os.environ.get("CC") or "cc"), *more])


@pytest.fixture(scope="module")
def counted(workbench_cache: Path) -> Iterator[ctypes.CDLL]:
    """The kernels for bf16 with emulated tile registers, whose allocations are counted and can be made to fail."""
    loaded: list[ctypes.CDLL] = []
    load = compiled._loaded

    def kept(content: bytes) -> ctypes.CDLL:
        loaded.append(load(content))
        return loaded[-1]

    headers = [
        word for name in ("emulated_tiles.h", "counted_allocations.h") for word in ("-include", str(HERE / name))
    ]
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler("-mamx-tile", "-mamx-bf16", *headers))
        patch.setattr(compiled, "_loaded", kept)
        compiled._library.cache_clear()
        torch.set_num_threads(2)
        try:
            if not (compiled.available(BF16) and compiled.has_tiles(BF16)):
                pytest.skip("emulated tile registers need a CPU with AVX-512 and a C compiler")
            yield loaded[-1]
        finally:
            compiled._library.cache_clear()
            torch.set_num_threads(threads)


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=BF16)


CALLS: dict[str, Callable[[], Any]] = {
    "linear_split": lambda: cpu.linear_split(half(32, 32), half(96, 32), torch.ones(96), 1, 1),
    "linear_gelu": lambda: cpu.linear_gelu(half(32, 32), half(64, 32), torch.ones(64)),
    "attention": lambda: cpu.attention(half(3, 2, 32, 32), None, 1, 1.0, NONE),
    "attention_backward": lambda: cpu.attention_backward(
        half(32, 64), half(3, 2, 32, 32), half(2, 32, 32), 1, 1.0, NONE
    ),
    "outer": lambda: cpu.outer(half(32, 64), half(32, 32)),
    "linear_words": lambda: cpu.linear_words(half(32, 32), half(70, 32)),
    "linear_words_backward": lambda: cpu.linear_words_backward(
        half(32, 96), half(32, 32), half(70, 32), torch.ones(70, 32), False
    ),
    "vocabulary": lambda: compiled.vocabulary(
        half(32, 70), torch.ones(70), torch.zeros(32, dtype=torch.int64), torch.zeros(32), None, torch.ones(32), None,
        1.0, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_memory_that_runs_out_at_any_allocation_is_an_error_of_python(counted: ctypes.CDLL, name: str) -> None:
    left, held = (ctypes.c_int.in_dll(counted, f"allocations_{word}") for word in ("left", "held"))
    try:
        for number in range(100):
            left.value = number
            try:
                CALLS[name]()
            except MemoryError as error:
                assert is_memory(error)
                assert str(error) == f"the CPU kernel {name} could not allocate memory"
            else:
                break
            finally:
                assert held.value == 0  # nothing leaks, whether or not it failed
        assert number >= 2  # two threads, an allocation each, failed one by one
    finally:
        left.value = -1


def test_a_definition_that_differs_from_its_declaration_is_not_compiled(tmp_path: Path) -> None:
    for path in compiled.SOURCES + compiled.HEADERS:
        (tmp_path / path.name).write_text(path.read_text())
    build = [*shlex.split(compiler()), *compiled.FLAGS, "-c", str(tmp_path / "kernels.c"), "-o", str(tmp_path / "k.o")]
    subprocess.run(build, check=True)
    header = tmp_path / "kernels.h"
    header.write_text(
        header.read_text().replace("number *out, size rows, size width", "number *out, float rows, size width")
    )
    failed = subprocess.run(build, capture_output=True, text=True, check=False)
    assert failed.returncode
    assert "conflicting types" in failed.stderr


def test_every_function_of_a_header_is_read(counted: ctypes.CDLL) -> None:
    for header, functions in zip(compiled.HEADERS, (compiled.KERNELS, compiled.TILED), strict=True):
        assert len(functions) == header.read_text().count("int threads);")
        assert all(hasattr(counted, name) for name in functions)
    assert ctypes.sizeof(compiled._Drop) == 16
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    assert compiled.KERNELS["dropped"] == [pointer, pointer, integer, integer, compiled._Drop]


def test_the_name_in_the_cache_depends_on_compiler_version_and_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake-cc"

    def name(version: str, *flags: str) -> str:
        fake.write_text(f"#!/bin/sh\necho {version}\n")
        fake.chmod(0o755)
        return compiled._folder(flags).name

    monkeypatch.setenv("CC", str(fake))
    first = name("12.2")
    assert name("12.2") == first
    assert len({first, name("13.1"), name("12.2", "-DHALF")}) == 3
    monkeypatch.setattr(compiled, "FLAGS", (*compiled.FLAGS, "-O1"))
    assert name("12.2") != first
