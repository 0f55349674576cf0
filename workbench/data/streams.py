"""Files read as bytes or lines, plain or compressed, here or on a server. Errors name the file and, for text, the byte.

Object stores and web servers are read through fsspec: `s3://`, `gs://`, `hf://`, `https://` and others. A block is read
by a request for these bytes alone, which is repeated if it fails. Credentials and endpoints are those of fsspec and of
each store's client, for web servers also ~/.netrc, and never part of a name.
"""

from __future__ import annotations

import bz2
import io
import logging
import lzma
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from workbench.errors import InputError, one_line
from workbench.progress import warn_once
from workbench.store.redact import refuse_secrets

log = logging.getLogger("workbench")

T = TypeVar("T")
URL = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
NETRC = re.compile(r"^https?://", re.IGNORECASE)
REQUEST = 8 << 20  # bytes
TRIES, FINAL = 9, 3  # requests until one fails for good; and until it does if a repetition seldom helps
HOPELESS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, ValueError, NotImplementedError)
S3_HOPELESS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ParamValidationError")
PAUSE, LONGEST = 0.25, 20.0  # seconds before the first repetition, which double up to the longest pause
# What stores call a hash, a version or a time that changes with a file's content, the surest first.
VERSIONS = ("sha256", "blob_id", "ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "Digest", "generation",
            "LastModified", "last_modified", "Last-Modified", "updated", "mtime")  # fmt: skip


@dataclass(frozen=True)
class RemotePath:
    """The URL of a file, and its size in bytes."""

    url: str
    size: int

    def __str__(self) -> str:
        return self.url


def opened(path: Path | RemotePath, size: int | None = None) -> IO[bytes]:
    """Open a file, here or on a server, to read `size` bytes of it. Raises OSError, or InputError for a server's."""
    if isinstance(path, Path):
        return open(path, "rb")
    return io.BufferedReader(_Requests(path), min(REQUEST, size or REQUEST))


class _Requests(io.RawIOBase):
    """A remote file; each read is one request."""

    def __init__(self, path: RemotePath) -> None:
        self.path, self.place = path, 0
        self.system, self.inner = _system(path.url)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.path.size}[whence]
        return self.place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self.place + len(view), self.path.size)
        if end <= self.place:
            return 0
        size = end - self.place

        def request() -> bytes:
            content: bytes = self.system.cat_file(self.inner, start=self.place, end=end)
            if len(content) > size:
                raise InputError(f"corpus file {self.path} is on a server that sends no parts of files; download it")
            if len(content) < size:
                raise OSError(f"{len(content)} of {size} bytes came")
            return content

        view[:size] = repeated(self.path.url, request)
        self.place = end
        return size


def listed(name: str) -> list[tuple[RemotePath, str]]:
    """Return the sorted files of a URL (file, folder or glob), each with its version. Raises InputError."""
    refuse_secrets(name, "corpus")
    try:
        parts = urlsplit(name)
    except ValueError as error:
        raise InputError(f"corpus {name!r} is no URL: {error}") from None
    if parts.scheme in ("file", "local"):
        raise InputError(f"corpus {name!r}: files of this machine are named by path: --corpus {parts.path or '/'}")
    system, path = _system(name)

    def request() -> list[dict[str, Any]]:
        if any(sign in name for sign in "*?[") and not name.lower().startswith("http"):
            return [info for _, info in sorted(system.glob(path, detail=True).items()) if info["type"] == "file"]
        info = system.info(path)
        is_folder = info["type"] == "directory"
        return [each for _, each in sorted(system.find(path, detail=True).items())] if is_folder else [info]

    return [_file(system, info) for info in repeated(name, request)]


def _file(system: Any, info: dict[str, Any]) -> tuple[RemotePath, str]:
    url, given = str(system.unstrip_protocol(info["name"])), {**info, **(info.get("lfs") or {})}
    version = next((f"{key}={given[key]}" for key in VERSIONS if given.get(key)), None)
    if given.get("size") is None or version is None:
        lacking = "size" if given.get("size") is None else "hash, version or time"
        raise InputError(f"corpus file {url}: its server does not state its {lacking}, so that a change could not be "
                         f"noticed; download it first")  # fmt: skip
    return RemotePath(url, int(given["size"])), version


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it. Raises InputError if its package is not installed."""
    import fsspec

    options: dict[str, Any] = {"use_listings_cache": False}
    if NETRC.match(url) and not fsspec.config.conf.get("http"):  # else the user has set headers or a client
        options["client_kwargs"] = {"trust_env": True}  # reads ~/.netrc, and the proxies of environment variables
    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise InputError(
            f"corpus {url!r}: {one_line(error)}; s3:// and https:// need pip install 'encoder-workbench[remote]'"
        ) from None
    except Exception as error:  # some systems connect, or read an archive, when they are made
        raise InputError(f"corpus {url!r} cannot be read: {one_line(error)}") from None
    return system, str(path)


def repeated(url: str, request: Callable[[], T]) -> T:
    """Return the result of a request, which is repeated if it fails. Raises InputError if it keeps failing."""
    for attempt in range(1, TRIES + 1):
        try:
            return request()
        except InputError:
            raise
        except Exception as error:  # each store's client has types of its own
            if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
                error = error.__cause__  # fsspec calls a web server that does not answer a file that is not there
            final = isinstance(error, HOPELESS) or type(error).__name__ in S3_HOPELESS
            if attempt >= (FINAL if final else TRIES):
                problem = "there is no such file" if isinstance(error, FileNotFoundError) else one_line(error)
                raise InputError(f"corpus {url!r} cannot be read, after {attempt} tries: {problem}") from None
            if attempt == FINAL:
                log.warning("corpus %r: a request failed (%s); it is repeated for up to a minute", url, one_line(error))
            time.sleep(min(LONGEST, PAUSE * 2 ** (attempt - 1)))
    raise AssertionError("the last try returns or raises")


Advance = Callable[[int], None]  # called with the bytes of the file, before decompression, read since the last call
LINE = 1 << 25  # bytes in the longest line of JSON or row of CSV
PACKINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
BLOCK = 1 << 18  # bytes read at once
HEAD = 1 << 16  # bytes of content that show what kind of text a file holds, and how its lines end
SHARD = re.compile(r"-\d+-of-\d+$")  # after a suffix, as in `text.jsonl-00000-of-00512`
SUFFIX = re.compile(r"\.[a-z]\w*")  # tells the kind of a file, as the ends of `wiki.00` and `a.00000-of-00512` do not
LONE_CR = re.compile(rb"\r(?!\n)")
STEP = 1 << 10  # compressed bytes that are decompressed at once, to at most 32 MB: zstd may store 128 kB in four bytes
RATIO, FREE = 500, 32 << 20  # limit of decompression: 500 times the file's size, which no text exceeds, or 32 MiB


@dataclass(frozen=True)
class FilePart:
    """The `size` bytes, or row groups of a Parquet file, from `start` to before `end`; -1 is the end of the file."""

    path: Path | RemotePath
    start: int
    end: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} from byte {self.start}" if self.start else str(self.path)


Place = Path | RemotePath | FilePart


def whole(place: Place) -> Path | RemotePath:
    """Return the file that a part belongs to, or the file itself."""
    return place.path if isinstance(place, FilePart) else place


def named(place: Place) -> PurePath:
    """Return the path of a file, of a part's file, or within its server's address, by whose name it is read."""
    path = whole(place)
    return path if isinstance(path, Path) else PurePosixPath(urlsplit(path.url).path)


def packing_of(place: Place) -> str | None:
    """Return the compression that the name of a file says, such as "gzip", or None."""
    return PACKINGS.get(named(place).suffix.lower())


def unpacked_suffix(path: Place) -> str:
    """Return a file's suffix in lower case without compression and shard: ".jsonl" for `a.JSONL-0-of-9.gz`, or ""."""
    suffixes = [*map(str.lower, named(path).suffixes[-2:])]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    suffix = SHARD.sub("", suffixes[-1]) if suffixes else ""
    return suffix if SUFFIX.fullmatch(suffix) else ""


def packed_or_not(*paths: Path) -> Path | None:
    """Return the first file that is there, itself or compressed, or None; a warning names the others that are there."""
    candidates = (path.with_name(path.name + ending) for path in paths for ending in ("", *PACKINGS))
    there = [each for each in candidates if each.is_file()]
    for other in there[1:]:
        warn_once(f"{other} is not read, but {there[0].name}")
    return there[0] if there else None


def ignore(_: int) -> None:
    """Ignore progress; this is the default."""


def chunks(path: Place, advance: Advance = ignore) -> Iterator[bytes]:
    """Yield a file's decompressed content in blocks. Raises InputError if it is damaged, truncated, or a bomb."""
    packing = packing_of(path)
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
                f"{path} decompresses to more than {RATIO:,} times its size, {unpacked >> 20} MiB from {packed:,} "
                f"bytes, which no text does; decompress it first if it must be read"
            )
        for start in range(0, len(content), BLOCK):
            yield content[start : start + BLOCK]


def head(path: Place) -> bytes:
    """Return the first HEAD bytes of a file's decompressed content; a part stands for its file. Raises InputError."""
    file, content = whole(path), b""
    with closing(chunks(file if packing_of(file) else FilePart(file, 0, HEAD, HEAD))) as blocks:  # type: ignore[type-var]
        while len(content) < HEAD and (block := next(blocks, b"")):
            content += block
    return content[:HEAD]


def only_cr(content: bytes) -> bool:
    """Return whether the lines of a content end in carriage returns alone, as old Macintosh computers wrote them."""
    return b"\r" in content and b"\n" not in content


def _unpacked(path: Place, packing: str, advance: Advance) -> Iterator[bytes]:
    """Yield the content of a compressed file, whose several members may have padding between and after them."""
    unpacker: Any = None
    faults: tuple[type[Exception], ...] = ()
    members = 0
    for part in (block[at : at + STEP] for block in _blocks(path, advance) for at in range(0, len(block), STEP)):
        while part:
            if unpacker is None:
                part = part.lstrip(b"\0") if members else part
                if not part:
                    break
                (unpacker, faults), members = _unpacker(packing), members + 1
            try:
                content = unpacker.decompress(part)
            except faults as error:
                raise InputError(f"{path} is damaged or not {packing}: {error}; download it again") from None
            if content:
                yield content
            part = unpacker.unused_data if unpacker.eof else b""
            unpacker = None if unpacker.eof else unpacker
    if unpacker is not None or not members:
        raise InputError(f"{path} is truncated: its {packing} data ends before the end marker; download it again")


def _blocks(path: Place, advance: Advance) -> Iterator[bytes]:
    part = path if isinstance(path, FilePart) else FilePart(path, 0, -1, 0)
    # Opening a pipe would wait for a process that writes to it.
    if isinstance(part.path, Path) and part.path.exists() and not part.path.is_file():
        raise InputError(f"{path} is not a regular file but a folder, pipe, socket or device; name another")
    try:
        with opened(part.path, part.size or None) as file:
            place = file.seek(part.start)
            while block := file.read(BLOCK if part.end < 0 else min(BLOCK, part.end - place)):
                place += len(block)
                advance(len(block))
                yield block
    except PermissionError:
        raise InputError(f"{path} cannot be read: no permission") from None
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path} no longer exists, or is no longer a file") from None


def _unpacker(packing: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a decompressor of one member, and the errors that it raises for damaged data."""
    if packing == "gzip":
        return zlib.decompressobj(wbits=31), (zlib.error,)
    if packing == "xz":
        return lzma.LZMADecompressor(), (lzma.LZMAError,)
    if packing == "bzip2":
        return bz2.BZ2Decompressor(), (OSError,)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(), (zstandard.ZstdError,)


def lines(path: Place, advance: Advance = ignore, longest: int = LINE, cut: bool = False) -> Iterator[str]:
    """Yield the lines of UTF-8 text without their line ends and without a byte-order mark at the start.

    A line of more than `longest` bytes raises InputError, or if `cut` is true, is divided, after a blank if it has one.
    """
    offset = path.start if isinstance(path, FilePart) else 0  # in the decompressed content, of the next line
    for raw in _raw_lines(path, advance, longest, cut, offset):
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


def _place(path: Place, offset: int) -> str:
    return f"{offset}{' of the decompressed text' if packing_of(path) else ''}"


def _raw_lines(path: Place, advance: Advance, longest: int, cut: bool, offset: int) -> Iterator[bytes]:
    waiting: list[bytes] = []  # pieces of a line whose end is not read yet
    size = number = 0
    for chunk in _texts(path, advance, offset):
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
            starts = (at for at in range(len(whole) - 1, len(whole) - 5, -1) if whole[at] & 0xC0 != 0x80)
            place = whole.rfind(b" ") + 1 or next(starts, len(whole))  # else before the last character of UTF-8
            yield whole[:place]
            waiting, size = [whole[place:]], len(whole) - place
    if last := b"".join(waiting):
        yield last


def _texts(path: Place, advance: Advance, offset: int) -> Iterator[bytes]:
    """Yield the blocks of a text file, with line feeds for lone carriage returns. Raises InputError for a NUL byte."""
    held, cr = b"", only_cr(head(path))
    for chunk in chunks(path, advance):
        if (place := chunk.find(b"\0")) >= 0:
            raise InputError(
                f"{path} is binary or UTF-16, not UTF-8 text: NUL at offset {_place(path, offset + place)}; "
                f"name a text file, or convert this one to UTF-8"
            )
        offset += len(chunk)
        if cr:
            chunk = held + chunk
            held = b"\r" if chunk.endswith(b"\r") else b""  # a line feed may follow in the next block
            chunk = LONE_CR.sub(b"\n", chunk.removesuffix(held))
        yield chunk
    if held:
        yield b"\n"
