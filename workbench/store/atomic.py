"""Files and folders that are whole or absent: atomic JSON, careful reading, and names that stay inside their folder.

Whatever is made beside its place, flushed to disk and renamed goes through here. Leases have a protocol of their own
(`workbench.store.lease`), of links and renames.
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
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import InputError, encodable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
STAGE, TRASH = ".tmp-", ".trash-"
LARGEST = 64 << 20  # bytes of a JSON file; ours are a thousand times smaller
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)  # a fault of the disk, which ends a whole command
SEAL = "content_sha256"  # the last key of a sealed object
_SEAL = re.compile(rb',"content_sha256":"([0-9a-f]{64})"\}\n')
_SEAL_BYTES = len(f',"{SEAL}":"') + 64 + len('"}\n')
DEEPEST = 256  # folders in one another; the library makes them recursively
ADVICE = " and give the same command again"


def checked_name(name: str, what: str) -> str:
    """`name` if it can only be a file beside its siblings. Raises InputError."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = ascii(name)[:80]
        raise InputError(f"{shown} cannot be {what}: use letters, digits, '.', '_' and '-', at most 200 of them")
    return name


def cache_root() -> Path:
    """Return $WORKBENCH_CACHE, or ~/.cache/workbench. Raises InputError where no such folder can be made."""
    chosen = os.environ.get("WORKBENCH_CACHE")
    root = user_path(chosen or "~/.cache/workbench", "WORKBENCH_CACHE").absolute()
    if not can_hold_files(root) or not encodable(str(root)):  # libraries in Rust take paths in UTF-8 only
        raise InputError(f"the cache folder {str(root)[:200]!r} cannot be made; set WORKBENCH_CACHE to one that can")
    return root


def user_path(text: str | os.PathLike[str], option: str) -> Path:
    """Return the path that a person typed, with `~` and `~name` replaced by home folders.

    Raises InputError naming `option` where there is no such user.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{option} {text}: no home folder for {Path(text).parts[0]}; write the path out") from None


def can_hold_files(folder: Path) -> bool:
    """Return whether files can be written in `folder`, or in the nearest folder above it that exists."""
    place = next((parent for parent in (folder, *folder.absolute().parents) if _lies(parent)), Path("/"))
    return (
        len(folder.parts) < DEEPEST
        and place.is_dir()
        and os.access(place, os.W_OK | os.X_OK)
        and not place.is_relative_to("/proc")
    )


def _lies(path: Path) -> bool:
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: NaN and infinity are None, numpy and torch scalars are numbers."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def dumps(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def loads(text: bytes | str) -> Any:
    """Strict JSON: no NaN, no infinity. Raises ValueError, also for text nested too deep to be ours."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def open_regular(path: Path) -> io.BufferedReader:
    """A file opened to be read. A link, pipe or device is a ValueError: it is not one of ours."""
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
    """Of a regular file, in hexadecimal. Raises ValueError when it is none, or OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """All of a regular file. Raises ValueError when it is none, or too large to be one of ours."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise ValueError(f"has {size} bytes, more than the {largest} that it can have")
        return file.read()


def sealed(value: Mapping[str, Any]) -> bytes:
    """Return an object as one line of JSON whose last key is the SHA-256 of all bytes before that key."""
    body = dumps(value).encode()[:-1]
    return body + f',"{SEAL}":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


def read_object(path: Path, *, format: int | None = None) -> dict[str, Any]:
    """The JSON object in `path`, of this `format` if given. Raises ValueError saying what is wrong, or OSError.

    A sealed object is compared with its hash, which is not part of what is returned.
    """
    return read_sealed(path, format=format)[0]


def read_sealed(path: Path, *, format: int | None = None) -> tuple[dict[str, Any], bool]:
    """Return the same with whether the object was sealed."""
    try:
        content = read_bytes(path)
        value = loads(content)
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {str(error)[:120]}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds {type(value).__name__}, not an object")
    if format is not None and value.get("format") != format:
        found = ascii(value.get("format"))[:40]
        raise ValueError(f"{path.name} is of format {found}, and this version of workbench reads format {format}")
    has_seal = SEAL in value
    if has_seal:
        body, mark = content[:-_SEAL_BYTES], _SEAL.fullmatch(content[-_SEAL_BYTES:])
        if mark is None or mark[1].decode() != hashlib.sha256(body).hexdigest():
            raise ValueError(f"{path.name} is not what was written there (its hash differs)")
        del value[SEAL]
    return value, has_seal


def no_room(path: Path, needed: int | None = None, error: OSError | None = None) -> OSError:
    """The error that names path, needed and free bytes. Its errno is that of `error`, or ENOSPC."""
    place = next((parent for parent in (path, *path.parents) if parent.is_dir()), Path("/"))
    need = f"{needed} bytes are needed" if needed is not None else "more bytes are needed"
    code = error.errno if error is not None and error.errno else errno.ENOSPC
    disk = os.statvfs(place)
    if code == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        reason = f"{need} and a file may have {limit} (ulimit -f); raise that limit"
    elif disk.f_files and not disk.f_favail:  # some file systems count no inodes at all
        reason = f"one file more is needed and 0 of {disk.f_files} inodes are free; delete files"
    else:
        reason = f"{need} and {free(place)} are free; make room"
    return OSError(code, f"{os.strerror(code)}: {reason}{ADVICE}", str(path))


def free(folder: Path) -> int:
    """Bytes that may still be written to the disk of `folder`."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


@contextlib.contextmanager
def disk_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """A full disk inside the block is reported with path, needed and free bytes."""
    try:
        yield
    except OSError as error:
        told = str(error.strerror).endswith(ADVICE)
        raise (no_room(path, needed, error) if error.errno in FULL and not told else error) from None


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Every byte, whatever the system takes at a time. Raises OSError."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def write_new(path: Path, data: bytes, target: Path | None = None) -> None:
    """A new file, on disk when this returns. Raises OSError and leaves nothing when it cannot be written whole.

    `target` is the path to name in that error, where the file is a draft of it.
    """
    with disk_errors(target or path, len(data)):
        write_parts(path, [data])


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """The same with content that comes in parts. A full disk is reported as the system does."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for part in parts:
            write_all(fd, part)
        os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def own_folder(folder: Path) -> None:
    """Raises InputError where a link or a file stands in the place of a folder of ours: nothing is written through it.

    A folder that is not there is fine.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise InputError(f"{folder} is not a folder of its own but a link or a file; move it away")


def sync_folder(folder: Path) -> None:
    """Make renames and creations in `folder` last through a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Every file and folder below, and `folder` itself."""
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            fd = os.open(os.path.join(path, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(Path(path))


def write_atomic(path: Path, data: bytes, stage: Path | None = None, check: Callable[[], None] | None = None) -> None:
    """Replace `path` in one step: readers see the old file or the new one, also after a power cut.

    The new file is made in `stage` (default: beside `path`), and `check` is called last before it takes its place.
    """
    draft = draft_in(stage or path.parent)
    write_new(draft, data, path)
    try:
        place(draft, path, check)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def draft_in(folder: Path) -> Path:
    """Return a new name in `folder` for what is being made; `sweep` removes what bears such a name."""
    return folder / f"{STAGE}{uuid.uuid4().hex}"


def place(draft: Path, path: Path, check: Callable[[], None] | None = None, trash: Path | None = None) -> None:
    """Rename a draft, which must be on disk, to `path`; it lasts through a power cut when this returns.

    `check` is called last before anything is put in place or taken away. A file is replaced in one step; what stands in
    the place of a folder is first moved to the folder `trash` (default: beside `path`) and deleted.
    """
    if check is not None:
        check()
    if draft.is_dir() and path.exists():
        discard(path, trash)
    os.rename(draft, path)
    sync_folder(path.parent)


def place_first(draft: Path, path: Path) -> bool:
    """Rename a draft of a folder, which must be on disk, to `path`, unless something but an empty folder is there.

    Return whether it was done: the first of several makers wins.
    """
    try:
        os.rename(draft, path)
    except OSError:
        if not os.path.lexists(path):
            raise
        return False
    sync_folder(path.parent)
    return True


def discard(path: Path, into: Path | None = None) -> None:
    """Delete a file or folder, taken out of sight by one rename first, so that no half of it is ever seen.

    Raises OSError when it cannot be taken away; what is then left out of sight is swept up later.
    """
    trash = (into or path.parent) / f"{TRASH}{uuid.uuid4().hex}"
    os.rename(path, trash)
    if trash.is_dir() and not trash.is_symlink():
        shutil.rmtree(trash, ignore_errors=True)
    else:
        trash.unlink(missing_ok=True)


def sweep(folder: Path, keep: str = "") -> None:
    """Remove what killed writers left in `folder`; the entry called `keep` stays."""
    for name in os.listdir(folder):
        if name.startswith((STAGE, TRASH)) and name != keep:
            with contextlib.suppress(FileNotFoundError):
                discard(folder / name)
