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
LINE = 1 << 25  # bytes: the longest line of JSON, and row of CSV
PACKINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
BLOCK = 1 << 18
STEP = 1 << 10  # packed bytes that are unpacked at once: to 32 MB at most, as zstd has 128 kB in four bytes
RATIO, FREE = 500, 32 << 20  # a file may unpack to 500 times its size, which no text does, or to 32 MiB


def unpacked_suffix(path: Path) -> str:
    """Return the file's suffix in small letters, looking through a packing: ".jsonl" of `a.JSONL.gz`, or ""."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def ignore(_: int) -> None:
    """Nobody watches."""


def chunks(path: Path, advance: Advance = ignore) -> Iterator[bytes]:
    """The unpacked content in pieces. Files of several members (as `cat a.gz b.gz` makes them) are one content."""
    packing = PACKINGS.get(path.suffix.lower())
    if packing is None:
        yield from _blocks(path, advance)
        return
    packed = unpacked = 0

    def counted(size: int) -> None:
        nonlocal packed
        packed += size
        advance(size)

    for content in _unpacked(path, packing, counted):
        unpacked += len(content)
        if unpacked > max(FREE, RATIO * packed):
            raise InputError(
                f"{path} unpacks to more than {RATIO:,} times its size, {unpacked >> 20} MiB from {packed:,} bytes, as "
                f"no text does; unpack it first if it is meant to be read"
            )
        for start in range(0, len(content), BLOCK):
            yield content[start : start + BLOCK]


def _unpacked(path: Path, packing: str, advance: Advance) -> Iterator[bytes]:
    unpacker: Any = None
    members = 0
    parts = (block[at : at + STEP] for block in _blocks(path, advance) for at in range(0, len(block), STEP))
    for part in parts:
        while part:
            if unpacker is None:
                part = part.lstrip(b"\0") if members else part  # padding is allowed between and after members
                if not part:
                    break
                unpacker, members = _unpacker(packing), members + 1
            try:
                content = unpacker.decompress(part)
            except _faults(packing) as error:
                raise InputError(f"{path} is damaged or not {packing}: {error}; unpack or fetch it again") from None
            if content:
                yield content
            part = unpacker.unused_data if unpacker.eof else b""
            unpacker = None if unpacker.eof else unpacker
    if unpacker is not None or not members:
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


def lines(path: Path, advance: Advance = ignore, longest: int = LINE, cut: bool = False) -> Iterator[str]:
    """Lines of UTF-8 text without their ends; a byte-order mark at the start is dropped.

    A line of more than `longest` bytes is refused, or if `cut` made into several, at a blank where it has one.
    """
    offset = 0  # of the byte after the last line, in the unpacked content
    for raw in _raw_lines(path, advance, longest, cut):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {_place(path, offset + error.start)}; "
                f"convert it to UTF-8"
            ) from None
        text = text.removeprefix("\ufeff") if offset == 0 else text
        offset += len(raw)
        yield text.removesuffix("\n").removesuffix("\r")


def _place(path: Path, offset: int) -> str:
    return f"{offset}{' of the unpacked text' if path.suffix.lower() in PACKINGS else ''}"


def _raw_lines(path: Path, advance: Advance, longest: int, cut: bool) -> Iterator[bytes]:
    waiting: list[bytes] = []  # pieces of a line whose end was not seen
    size = offset = number = 0
    for chunk in _texts(path, advance):
        first, end, rest = chunk.partition(b"\n")
        if end:
            yield b"".join([*waiting, first, end])
            *complete, last = rest.split(b"\n")
            for line in complete:
                yield line + b"\n"
            waiting, size = [last], len(last)
            number += 1 + len(complete)
        else:
            waiting.append(chunk)
            size += len(chunk)
        offset += len(chunk)
        if size > longest and not cut:
            raise InputError(
                f"{path} line {number + 1}, from offset {_place(path, offset - size)}, has more than {longest:,} "
                f"bytes; give each document a line of its own"
            )
        if size > longest:
            whole = b"".join(waiting)
            place = whole.rfind(b" ") + 1 or _character_end(whole)
            yield whole[:place]
            waiting, size = [whole[place:]], len(whole) - place
    if last := b"".join(waiting):
        yield last


def _texts(path: Path, advance: Advance) -> Iterator[bytes]:
    """The pieces of a file of text. A NUL, as in binary data and in UTF-16, is an InputError."""
    offset = 0
    for chunk in chunks(path, advance):
        if (place := chunk.find(b"\0")) >= 0:
            raise InputError(
                f"{path} is binary or UTF-16, not UTF-8 text: NUL at offset {_place(path, offset + place)}; "
                f"name a file of text, or convert it"
            )
        offset += len(chunk)
        yield chunk


def _character_end(content: bytes) -> int:
    """Where the last whole UTF-8 character ends."""
    end = len(content)
    while end > len(content) - 4 and content[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end > 1 and content[end - 1] >= 0xC0 else end
