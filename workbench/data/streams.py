"""Bytes and lines of a file, whatever it is packed with; faults name the file and, for text, the byte.

Raises InputError for what a person can put right: not packed as its name says, cut short, not UTF-8, no permission.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import InputError

Advance = Callable[[int], None]  # told how many bytes of the file, as it lies there, were read since the last call
PACKINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
BLOCK = 1 << 18


def ignore(_: int) -> None:
    """Nobody watches."""


def chunks(path: Path, advance: Advance = ignore) -> Iterator[bytes]:
    """The unpacked content in pieces. Files of several members (as `cat a.gz b.gz` makes them) are one content."""
    packing = PACKINGS.get(path.suffix.lower())
    unpacker: Any = None
    members = 0
    for block in _blocks(path, advance):
        if packing is None:
            yield block
            continue
        while block:
            if unpacker is None:
                block = block.lstrip(b"\0") if members else block  # padding is allowed between and after members
                if not block:
                    break
                unpacker, members = _unpacker(packing), members + 1
            try:
                content = unpacker.decompress(block)
            except _faults(packing) as error:
                raise InputError(f"{path} is damaged or not {packing}: {error}; unpack or fetch it again") from None
            if content:
                yield content
            block = unpacker.unused_data if unpacker.eof else b""
            unpacker = None if unpacker.eof else unpacker
    if packing and (unpacker is not None or not members):
        raise InputError(f"{path} is cut short: its {packing} data ends before its end mark; fetch it again")


def _blocks(path: Path, advance: Advance) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                advance(len(block))
                yield block
    except PermissionError:
        raise InputError(f"{path} cannot be read: no permission") from None
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path} is no longer there, or no longer a file") from None


def _unpacker(packing: str) -> Any:
    if packing == "gzip":
        return zlib.decompressobj(wbits=31)
    if packing == "xz":
        return lzma.LZMADecompressor()
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


def _faults(packing: str) -> tuple[type[Exception], ...]:
    if packing != "zstd":
        return (zlib.error, lzma.LZMAError)
    import zstandard

    return (zstandard.ZstdError,)


def lines(path: Path, advance: Advance = ignore, longest: int | None = None) -> Iterator[str]:
    """Lines of UTF-8 text without their ends; a byte-order mark at the start is dropped.

    A line of more than `longest` bytes is cut into several, at a blank where it has one.
    """
    offset = 0  # of the byte after the last line, in the unpacked content
    for raw in _raw_lines(path, advance, longest):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = offset + error.start
            packed = " of the unpacked text" if path.suffix.lower() in PACKINGS else ""
            raise InputError(
                f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {place}{packed}; convert it to UTF-8"
            ) from None
        text = text.removeprefix("\ufeff") if offset == 0 else text
        offset += len(raw)
        yield text.removesuffix("\n").removesuffix("\r")


def _raw_lines(path: Path, advance: Advance, longest: int | None) -> Iterator[bytes]:
    waiting: list[bytes] = []  # pieces of a line whose end was not seen
    size = 0
    for chunk in chunks(path, advance):
        first, end, rest = chunk.partition(b"\n")
        if end:
            yield b"".join([*waiting, first, end])
            *complete, last = rest.split(b"\n")
            for line in complete:
                yield line + b"\n"
            waiting, size = [last], len(last)
        else:
            waiting.append(chunk)
            size += len(chunk)
        if longest and size > longest:
            whole = b"".join(waiting)
            cut = whole.rfind(b" ") + 1 or _character_end(whole)
            yield whole[:cut]
            waiting, size = [whole[cut:]], len(whole) - cut
    if last := b"".join(waiting):
        yield last


def _character_end(content: bytes) -> int:
    """Where the last whole UTF-8 character ends."""
    end = len(content)
    while end > len(content) - 4 and content[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end > 1 and content[end - 1] >= 0xC0 else end
