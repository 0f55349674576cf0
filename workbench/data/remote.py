"""Files on object stores and web servers, through fsspec: `s3://`, `gs://`, `hf://`, `https://` and others.

A block is read by a request for these bytes alone, which is repeated if it fails. Credentials and endpoints are
those of fsspec and of each store's client, for web servers also ~/.netrc, and never part of a name.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from workbench.errors import InputError, one_line
from workbench.store.redact import refuse_secrets

log = logging.getLogger("workbench")

T = TypeVar("T")
NAME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
NETRC = re.compile(r"^https?://", re.IGNORECASE)
BLOCK = 8 << 20  # bytes of one request
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
    return io.BufferedReader(_Requests(path), min(BLOCK, size or BLOCK))


class _Requests(io.RawIOBase):
    """A file of which each read is one request."""

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
        content = repeated(self.path.url, partial(self._range, self.place, end))
        view[: len(content)] = content
        self.place = end
        return len(content)

    def _range(self, start: int, end: int) -> bytes:
        content: bytes = self.system.cat_file(self.inner, start=start, end=end)
        if len(content) > end - start:
            raise InputError(f"corpus file {self.path} is on a server that sends no parts of files; download it first")
        if len(content) < end - start:
            raise OSError(f"{len(content)} of {end - start} bytes came")
        return content


def is_remote(name: str) -> bool:
    """Return whether a corpus name is a URL."""
    return NAME.match(name) is not None


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
    return [_file(system, info) for info in repeated(name, lambda: _infos(system, path, name))]


def _infos(system: Any, path: str, name: str) -> list[dict[str, Any]]:
    """Return what the server states about each file."""
    if any(sign in name for sign in "*?[") and not name.lower().startswith("http"):
        return [info for _, info in sorted(system.glob(path, detail=True).items()) if info["type"] == "file"]
    info = system.info(path)
    if info["type"] == "directory":
        return [each for _, each in sorted(system.find(path, detail=True).items())]
    return [info]


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
