"""The interface between Python and the kernels in C: declarations, the cache key and memory that runs out."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from workbench import cpu
from workbench.cpu import compiled
from workbench.errors import InputError, is_memory
from workbench.store.cache import is_whole
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

    headers = ["-include", str(HERE / "emulated_tiles.h"), "-include", str(HERE / "counted_allocations.h")]
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler("-mamx-tile", "-mamx-bf16", *headers))
        patch.setattr(compiled, "_loaded", kept)
        compiled._library.cache_clear()
        torch.set_num_threads(2)
        try:
            if not (compiled.available(BF16) and compiled.products(BF16)):
                pytest.skip("emulated tile registers need a CPU with AVX-512 and a C compiler")
            yield loaded[-1]
        finally:
            compiled._library.cache_clear()
            torch.set_num_threads(threads)


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=BF16)


_MATRIX, _VECTOR = torch.ones(32, 32), torch.ones(32)
LAYER = [*[_MATRIX, _VECTOR] * 4, _VECTOR, _VECTOR, *[_MATRIX, _VECTOR] * 2, _VECTOR, _VECTOR]
SAVED = [half(each * 2 * 32 * 32) for each in (1, 3, 1, 1, 1, 1, 1, 1, 1)] + [torch.ones(4 * 64)]
CALLS: dict[str, Callable[[], Any]] = {
    "linear_split": lambda: cpu.linear_split(half(32, 32), half(96, 32), torch.ones(96), 1, 1),
    "linear_gelu": lambda: cpu.linear_gelu(half(32, 32), half(64, 32), torch.ones(64)),
    "attention": lambda: cpu.attention(half(3, 2, 32, 32), None, 1, 1.0, NONE),
    "attention_backward": lambda: cpu.attention_backward(
        half(32, 64), half(3, 2, 32, 32), half(2, 32, 32), 1, 1.0, NONE
    ),
    "layers_forward": lambda: compiled.layers(half(2, 32, 32), None, LAYER, 1, 1e-6, 1.0, [NONE] * 3, True),
    "layers_backward": lambda: compiled.layers_backward(
        half(2, 32, 32), half(2, 32, 32), SAVED, LAYER, 1, 1.0, [NONE] * 3
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


def needs(ops: ModuleType, dtype: torch.dtype) -> None:
    if ops is compiled and not compiled.available(dtype):
        pytest.skip("no C compiler on this machine, or not Linux")


SCRIPT = """
import logging, sys, torch
logging.basicConfig(format="%(message)s")
from workbench import cpu
x = torch.randn(4, 6)
ops = cpu.kernels_for(x)
cpu.kernels_for(x.bfloat16())
apart = (ops.gelu(x, torch.zeros(6)) - torch.nn.functional.gelu(x)).abs().max()
print(ops.__name__.rpartition(".")[2], float(apart) < 1e-5)
"""


def ask(cache: Path, **environment: str) -> tuple[str, str]:
    """Return which kernels a new process uses, and what it writes to stderr."""
    full = os.environ | {"WORKBENCH_CACHE": str(cache)} | environment
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=full, check=True)
    return done.stdout.strip(), done.stderr.strip()


def test_without_a_compiler_torch_computes_with_a_warning(tmp_path: Path) -> None:
    said, warned = ask(tmp_path, CC="/nonexistent/cc")
    assert said == "portable True"
    assert warned.startswith("the CPU kernels cannot be compiled, so that a training step takes")
    assert "/nonexistent/cc" in warned
    assert len(warned.splitlines()) == 1  # one warning for both dtypes


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("off", None),
        ("required", "WORKBENCH_CPU_KERNELS=required, but the CPU kernels cannot be compiled: .*/nonexistent/cc"),
        ("on", "WORKBENCH_CPU_KERNELS='on' is not one of auto, off and required"),
    ],
)
def test_an_environment_variable_switches_kernels(
    setting: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {"WORKBENCH_CACHE": str(tmp_path), "CC": "/nonexistent/cc", compiled.SETTING: setting}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=told) if told else contextlib.nullcontext():
        assert compiled._library.__wrapped__(torch.float32) is None
    assert not caplog.messages


@pytest.fixture(scope="module")
def kernels_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs(compiled, torch.float32)
    folder = tmp_path_factory.mktemp("kernels")
    assert ask(folder, CC="env cc") == ("compiled True", "")  # CC may hold a command of several words
    return folder


def test_what_was_compiled_is_used_again(kernels_made: Path) -> None:
    assert ask(kernels_made, CC="/nonexistent/cc", WORKBENCH_CPU_KERNELS="required") == ("compiled True", "")


def test_damaged_machine_code_is_never_run(kernels_made: Path, tmp_path: Path) -> None:
    """Flipped bits would end the process with SIGSEGV, or give wrong numbers."""
    shutil.copytree(kernels_made / "kernels", tmp_path / "kernels")
    made = sorted((tmp_path / "kernels").iterdir())  # one folder for each dtype
    content = bytearray((made[0] / compiled.LIBRARY).read_bytes())
    content[::64] = bytes(byte ^ 1 for byte in content[::64])
    (made[0] / compiled.LIBRARY).write_bytes(content)
    said, warned = ask(tmp_path, CC="env cc")
    assert said == "compiled True" and warned.count("it will be made again") == 1 and len(warned.splitlines()) == 1
    assert sorted((tmp_path / "kernels").iterdir()) == made and all(map(is_whole, made))


def test_a_library_in_use_survives_damage_to_its_file(kernels_made: Path, tmp_path: Path) -> None:
    """Another machine may write to a shared cache; a process that maps a truncated file ends with SIGBUS."""
    shutil.copytree(kernels_made / "kernels", tmp_path / "kernels")
    then = (
        "import pathlib, os; [os.truncate(f, 0) for f in pathlib.Path(sys.argv[1]).rglob('*.so')]\n"
        "print(ops.gelu(x, torch.zeros(6)).shape == x.shape)"
    )
    full = os.environ | {"WORKBENCH_CACHE": str(tmp_path), "CC": "env cc"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + then, str(tmp_path)], capture_output=True, text=True, env=full, check=True
    )
    assert done.stdout.split() == ["compiled", "True", "True"]


@pytest.mark.slow
def test_without_a_writable_cache_each_process_compiles_its_own(kernels_made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ask(tmp_path / "file") == ("compiled True", "")
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("a disk can be mounted by root alone")
    try:
        shutil.copytree(kernels_made / "kernels", tmp_path / "kernels")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        assert ask(tmp_path, CC="/nonexistent/cc") == ("compiled True", ""), "what is there is used"
        assert ask(tmp_path / "another") == ("compiled True", "")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def failing(folder: Path, printed: str) -> str:
    """A compiler that has a version, and cannot write its output."""
    path = folder / "failing-cc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec cc --version\necho "{printed}" >&2\nexit 1\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        ("fatal error: error writing to /tmp/x.s: No space left on device", errno.ENOSPC),
        ("/usr/bin/ld: final link failed: Disk quota exceeded", errno.EDQUOT),
        ("error: unable to open output file 'kernels.o': 'Input/output error'", errno.EIO),
        ("collect2: fatal error: ld terminated with signal 7 [Bus error], core dumped", errno.ENOSPC),
    ],
)
def test_a_compiler_that_cannot_write_is_an_error_of_the_disk(
    tmp_path: Path, printed: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", failing(tmp_path, printed))
    monkeypatch.delenv(compiled.SETTING, raising=False)
    with pytest.raises(OSError) as caught:
        compiled._library.__wrapped__(torch.float32)
    assert caught.value.errno == code and str(tmp_path / "cache/kernels") in str(caught.value.filename)
    assert [*(tmp_path / "cache/kernels").iterdir()] == []


@pytest.mark.parametrize("size", [100, 20_000])
def test_a_full_disk_ends_it_wherever_it_is_full(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files, where the compiler writes its first file, or a later one."""
    needs(compiled, torch.float32)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: .* bytes are needed"):
            compiled._library.__wrapped__(torch.float32)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_compiler_that_fails_is_said_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", failing(tmp_path, "kernels.c:1: error: unknown option"))
    monkeypatch.delenv(compiled.SETTING, raising=False)
    monkeypatch.setattr(compiled, "_faults", [])
    assert compiled.fault() == ""
    assert [compiled._library.__wrapped__(dtype) for dtype in compiled.KINDS] == [None, None]
    assert compiled.fault() == "kernels.c:1: error: unknown option"
    assert len(caplog.messages) == 1 and "scores differ" in caplog.text and compiled.fault() in caplog.text
