"""Atomic writing of files and folders, strict reading of JSON, and names that cannot point outside their folder.

A file or folder is written under a temporary name, flushed to disk, and then renamed, so that readers find it complete
or not at all. All of the package writes in this way, except for leases (`workbench.store.lease`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import resource
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from workbench.errors import InputError, encodable
from workbench.process import heed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
STAGE, TRASH = ".tmp-", ".trash-"
_TEMPORARY = re.compile(rf"({re.escape(STAGE)}|{re.escape(TRASH)})[0-9a-f]{{32}}")
ABANDONED = 3600.0  # seconds after which a temporary file that is not written any more counts as left behind
LONGEST_LINE = 1 << 20  # bytes of a row of a log; real ones are a thousand times smaller
EDGE = 1 << 13  # bytes that are read at first to find a line end
LARGEST = 64 << 20  # bytes of a JSON file; real ones are a thousand times smaller
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of disks that fail, are damaged, taken away or not reached, by name: some systems lack some of them.
_FAILING = ("EIO", "EUCLEAN", "EBADMSG", "ENODEV", "ESTALE", "EREMOTEIO", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT")
FAILING: tuple[int, ...] = tuple(getattr(errno, name) for name in _FAILING if hasattr(errno, name))
DISK = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, *FAILING)  # errors of the disk, which end a whole command
SEAL = "content_sha256"  # the last key of a sealed object
_SEAL = re.compile(rb',"content_sha256":"([0-9a-f]{64})"\}\n')
_SEAL_BYTES = len(f',"{SEAL}":"') + 64 + len('"}\n')
DEEPEST = 256  # levels of nested folders; Python creates them recursively
BLOCK = 1 << 20  # bytes that are read between two checks for a signal
FEW = 1000  # free inodes; with fewer, a full disk is reported as a lack of inodes (see `no_room`)
ADVICE = " and give the same command again"


def checked_name(name: str, what: str) -> str:
    """Return `name` if it can only be a file in one folder. Raises InputError, in which `what` says what is named."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"{ascii(name)[:80]} cannot be {what}: use letters, digits, '.', '_' and '-', at most 200 of them"
        )
    return name


def cache_path() -> Path:
    """Return $WORKBENCH_CACHE, or else ~/.cache/workbench. The folder may not exist, or not be writable."""
    return user_path(os.environ.get("WORKBENCH_CACHE") or "~/.cache/workbench", "WORKBENCH_CACHE").absolute()


def cache_root() -> Path:
    """Return the folder of `cache_path`. Raises InputError if no files can be written there."""
    root = cache_path()
    if not can_hold_files(root) or not encodable(str(root)):  # libraries in Rust take paths in UTF-8 only
        fault = "takes no files" if os.path.isdir(root) else "cannot be created"
        raise InputError(f"the cache folder {str(root)[:200]!r} {fault}; set WORKBENCH_CACHE to another one")
    return root


def user_path(text: str | os.PathLike[str], option: str) -> Path:
    """Return the path that a user typed, with home folders for `~` and `~name`. Raises InputError naming `option`."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{option} {text}: {Path(text).parts[0]} has no home folder; give the full path") from None


def can_hold_files(folder: Path) -> bool:
    """Return whether files can be written in `folder`, or in the nearest folder above it that exists."""
    for place in (folder, *folder.absolute().parents):
        if os.path.lexists(place):
            break
    writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK) and not place.is_relative_to("/proc")
    return len(folder.parts) < DEEPEST and writable


def plain(value: Any) -> Any:
    """Return `value` as plain data for JSON; NaN and infinity become None, numpy and torch scalars become numbers."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return dict(zip(map(str, value), map(plain, value.values()), strict=True))
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def dumps(value: Any) -> str:
    """Return `value` as one line of JSON, without a line break."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def loads(text: bytes | str) -> Any:
    """Return the value of strict JSON. Raises ValueError for invalid text, NaN, infinity, and very deep nesting."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises ValueError for a link, pipe or device, or OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("is a symbolic link") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("is not a regular file")
    return open(fd, "rb")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file in hexadecimal. Raises ValueError for a link, pipe or device, or OSError."""
    with open_regular(path) as file:
        return sha256_of(file)


def sha256_of(file: io.BufferedIOBase | io.RawIOBase) -> str:
    """Return the SHA-256 of an open file from its position on, in hexadecimal. Raises OSError."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_unless_stopped(file: io.BufferedIOBase | io.RawIOBase) -> str:
    """Return the same as `sha256_of`, in a thread that is to end when the command gets a signal to stop.

    Python handles signals in the main thread alone, so other threads have to ask for them. Raises the signal's
    exception or OSError.
    """
    sha, block = hashlib.sha256(), bytearray(BLOCK)
    while size := file.readinto(block):
        heed()
        sha.update(memoryview(block)[:size])
    return sha.hexdigest()


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file. Raises ValueError for any other and for a too large one, or OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise ValueError(f"has {size} bytes, more than the {largest} allowed")
        return file.read()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a log from its place on, without their ends and without an incomplete last line.

    A line of more than LONGEST_LINE bytes, such as the zeros of a sparse file, is yielded as that many bytes of it, so
    that no file fills memory.
    """
    while line := file.readline(LONGEST_LINE):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST_LINE)):
            pass
        if rest:
            yield line.removesuffix(b"\n")


def line_start(file: int, end: int) -> int:
    """Return the place after the last line end before `end` in an open file, which is read backwards; 0 for none."""
    size = EDGE
    while end:
        start, size = max(0, end - size), min(2 * size, LONGEST_LINE)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def sealed(value: Mapping[str, Any]) -> bytes:
    """Return an object as one line of JSON whose last key is the SHA-256 of all bytes before that key."""
    body = dumps(value).encode()[:-1]
    return body + f',"{SEAL}":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


def read_object(
    path: Path, *, format: int | None = None, largest: int = LARGEST, needs_seal: bool = False
) -> dict[str, Any]:
    """Return the JSON object in a file, without its hash, which is checked if there is one or if it `needs_seal`.

    `format` is checked if it is given. Raises ValueError with what is wrong, or OSError.
    """
    return read_hashed(path, format, largest, needs_seal)[0]


def read_hashed(
    path: Path, format: int | None = None, largest: int = LARGEST, needs_seal: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a sealed object, and the size and SHA-256 of its file, hashed once for both. Raises as `read_object`."""
    try:
        content = read_bytes(path, largest)
        value = loads(content)
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {str(error)[:120]}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} contains a {type(value).__name__} instead of an object")
    if format is not None and value.get("format") != format:
        other = ascii(value.get("format"))[:40]
        raise ValueError(f"{path.name} is of format {other}, but this version of workbench reads format {format}")
    if needs_seal and SEAL not in value:
        raise ValueError(f"{path.name} has changed since it was written (its hash is missing)")
    body, end = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    sha = hashlib.sha256(body)
    if SEAL in value:
        mark = _SEAL.fullmatch(end)
        if mark is None or mark[1].decode() != sha.hexdigest():
            raise ValueError(f"{path.name} has changed since it was written (its hash differs)")
        del value[SEAL]
    sha.update(end)
    return value, {"bytes": len(content), "sha256": sha.hexdigest()}


def no_room(path: Path, needed: int | None = None, error: OSError | None = None) -> OSError:
    """Return the error for a full disk, with the path, the needed bytes (None: unknown), the free bytes and errno."""
    place = next((parent for parent in (path, *path.parents) if parent.is_dir()), Path("/"))
    code = error.errno if error is not None and error.errno else errno.ENOSPC
    limit, available = resource.getrlimit(resource.RLIMIT_FSIZE)[0], shutil.disk_usage(place).free
    least = f"more than {limit if code == errno.EFBIG else available}"
    need = f"{least if needed is None else needed} bytes are needed"
    disk = os.statvfs(place)
    # Inodes rather than bytes are lacking: few are free (the failed command has freed some), and a smaller share.
    few = disk.f_favail < FEW and disk.f_favail * disk.f_blocks < disk.f_bavail * disk.f_files
    if code == errno.EFBIG:
        reason = f"{need} and a file may have {limit} (ulimit -f); raise that limit"
    elif code == errno.EDQUOT:
        more = f"{needed} bytes" if needed is not None else "more bytes"
        reason = f"{more} are needed than your quota leaves, although {available} are free; see quota -s, delete files"
    elif disk.f_files and not disk.f_favail:  # some file systems do not count inodes
        reason = f"one more file is needed and 0 of {disk.f_files} inodes are free; delete files"
    elif few and (needed or 0) <= available:
        inodes = disk.f_favail
        reason = f"more than {inodes} inodes are needed and {inodes} of {disk.f_files} are free; delete files"
    else:
        reason = f"{need} and {available} are free; free some disk space"
    return OSError(code, f"{os.strerror(code)}: {reason}{ADVICE}", str(path))


@contextlib.contextmanager
def disk_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Add path, needed and free bytes to an error about a full disk that is raised inside the block.

    A block that removes what it wrote, when it fails, thus names the bytes that are free afterwards. An error that
    names no file, or a temporary one, names `path` instead.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL and not str(error.strerror).endswith(ADVICE):
            raise no_room(path, needed, error) from None
        if error.filename is None or any(map(_TEMPORARY.fullmatch, Path(str(error.filename)).parts)):
            error.filename, error.filename2 = str(path), None
        raise


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all bytes to a file descriptor, in several system calls if needed. Raises OSError."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def write_new(path: Path, data: bytes, target: Path | None = None) -> None:
    """Write a new file and flush it to disk. Raises OSError naming `target` or `path`, and leaves no file then."""
    with disk_errors(target or path, len(data)):
        write_parts(path, [data])


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a new file from parts and flush it to disk. Raises OSError as the system does, and leaves no file then."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for part in parts:
            write_all(fd, part)
        os.fsync(fd)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error says more
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def copy_files(source: Path, target: Path) -> None:
    """Copy all files below a folder. Raises the first OSError, with its number, which `shutil.copytree` hides."""
    for file in source.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def own_folder(folder: Path) -> None:
    """Raise InputError if `folder` is a link or a file, so that nothing is written through a link."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise InputError(f"{folder} must be a folder, but it is a link or a file; move it away")


def made_folder(folder: Path) -> Path:
    """Return a folder, which is made and flushed to disk if it is not there. Raises as `own_folder`, or OSError."""
    own_folder(folder)
    if not folder.is_dir():
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
    return folder


def sync_folder(folder: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that new files and renames survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder`, and `folder` itself, to disk."""
    for path, _, names in os.walk(folder, topdown=False):
        for name in (*names, ""):
            sync_folder(Path(path, name))


def write_atomic(path: Path, data: bytes, stage: Path | None = None, check: Callable[[], None] | None = None) -> None:
    """Replace a file in one step, written in `stage` (default: beside it); `check` is called before the rename."""
    draft = draft_in(stage or path.parent)
    write_new(draft, data, path)
    try:
        place(draft, path, check)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_together(files: Mapping[Path, bytes]) -> None:
    """Replace several files after all of them were written under temporary names, so that a full disk changes none.

    They are renamed one right after the other, and flushed afterwards. The last one, such as the page that shows the
    others, is removed first and renamed last: after a kill between two renames it is missing, and never stands beside
    files of another content. Raises OSError.
    """
    drafts = {path: draft_in(path.parent) for path in files}
    last = next(reversed(drafts))
    try:
        for path, draft in drafts.items():
            write_new(draft, files[path], path)
        with disk_errors(last):
            last.unlink(missing_ok=True)
        for path, draft in drafts.items():
            with disk_errors(path):
                os.rename(draft, path)
    except BaseException:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
        raise
    for folder in {path.parent for path in files}:
        with disk_errors(folder):
            sync_folder(folder)


def draft_in(folder: Path) -> Path:
    """Return a new temporary name in `folder`; `sweep` removes files and folders with such names."""
    return folder / f"{STAGE}{uuid.uuid4().hex}"


def place(draft: Path, path: Path, check: Callable[[], None] | None = None, trash: Path | None = None) -> None:
    """Rename a draft, which must be flushed to disk, to `path`, such that the rename survives a power failure.

    `check` is called before anything is renamed or removed. A file is replaced in one step; an existing folder at
    `path` is first moved to the folder `trash` (default: the folder of `path`) and deleted.
    """
    if check is not None:
        check()
    with disk_errors(path):
        if draft.is_dir() and path.exists():
            discard(path, trash)
        os.rename(draft, path)
        sync_folder(path.parent)


def place_first(draft: Path, path: Path) -> bool:
    """Rename the flushed draft of a folder to `path`; return False if a file or a folder with files is there."""
    try:
        os.rename(draft, path)
    except OSError:
        if not os.path.lexists(path):
            raise
        return False
    sync_folder(path.parent)
    return True


def discard(path: Path, into: Path | None = None) -> None:
    """Rename a file or folder, so that no reader finds a part of it, and delete it.

    Raises OSError if it cannot be renamed; `sweep` deletes later what cannot be deleted now.
    """
    trash = (into or path.parent) / f"{TRASH}{uuid.uuid4().hex}"
    os.rename(path, trash)
    if trash.is_dir() and not trash.is_symlink():
        shutil.rmtree(trash, ignore_errors=True)
    else:
        trash.unlink(missing_ok=True)


def sweep_old(folder: Path) -> None:
    """Remove temporary files of ours, unwritten for an hour, from a folder that other processes may use too."""
    for path in folder.iterdir():
        if not _TEMPORARY.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError):
            below = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
            if time.time() - max(os.lstat(each).st_mtime for each in (path, *below)) > ABANDONED:
                discard(path)


def sweep(folder: Path, keep: str = "") -> None:
    """Remove the temporary files that killed processes left in `folder`, except for the entry `keep`."""
    for name in os.listdir(folder):
        if name.startswith((STAGE, TRASH)) and name != keep:
            with contextlib.suppress(FileNotFoundError):
                discard(folder / name)
