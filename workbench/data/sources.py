"""Sources of a corpus by name: the built-in corpus, files, folders and globs, or data sets of the Hugging Face hub.

A name is tried as a built-in one, as a file or folder that exists, as a glob (`*`, `?`, `[`), and as a hub name
"owner/name" or "owner/name:config", in this order.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from workbench.data import built_in_text, formats, streams
from workbench.data.streams import URL, Advance, FilePart, RemotePath, ignore, listed, named, unpacked_suffix
from workbench.errors import InputError, one_line
from workbench.spec.parts import TRAINED, DataSpec
from workbench.spec.run_spec import digest
from workbench.store.atomic import cache_root, user_path
from workbench.store.cache import read_entry, write_entry

BUILT_IN = ("docs", "python-code")  # made of what is installed on this machine
HUB_NAME = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<config>[\w.-]+))?$")
TRAIN = ".train"  # suffix of BabyLM's files
COMMIT = re.compile(r"^[0-9a-f]{40}$")
KINDS = ", ".join((*formats.READERS, "JSON Lines in .json, text without a suffix"))
KINDS += f", each plain or with {', '.join(streams.PACKINGS)}"
AT_ONCE = 16  # requests to a server for the beginnings of files
AnyPath = TypeVar("AnyPath", Path, RemotePath)


@dataclass(frozen=True)
class BuiltIn:
    """A built-in corpus by its name in BUILT_IN; of `docs`, the training side."""

    name: str
    fingerprint: str
    size: int


@dataclass(frozen=True)
class File:
    """A local file, under its given name, which tells its kind, even if that is a link.

    `changed` are its times of modification and change in nanoseconds, and its inode. With a `span`, it is a part of
    this file (`FilePart`), and `size` is the part's size in bytes.
    """

    path: Path
    size: int
    changed: tuple[int, int, int]
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Remote:
    """A file on a server, or with a `span` a part of it, as `File`; `version` is an ETag or similar."""

    path: RemotePath
    size: int
    version: str
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Hub:
    """The train split of a hub data set at a commit. Its size is not known before it is read."""

    name: str
    config: str | None
    commit: str
    size: int = 0


Source = BuiltIn | File | Remote | Hub


def size_of(sources: Iterable[Source]) -> int:
    """Return the number of bytes of several sources, without data sets of the hub, whose sizes are not known."""
    return sum(map(attrgetter("size"), sources))


def documents(spec: DataSpec) -> Iterator[str]:
    """Yield the documents of all corpus names of a spec, in their order. Raises InputError if one cannot be read."""
    for source in resolve(spec):
        yield from read(source, spec.column)


def resolve(spec: DataSpec) -> list[Source]:
    """Return the sources of a spec's corpus names; a file named twice counts once. Raises InputError."""
    distinct: dict[tuple[Any, ...], Source] = {}
    for name in spec.corpus:
        for source in _resolve(name, spec.revision, spec.column):
            distinct.setdefault(tuple(identity(source)), source)
    return list(distinct.values())


def read(source: Source, column: str, advance: Advance = ignore) -> Iterator[str]:
    """Yield the documents of one source; `advance` is called with the progress in units of the source's size."""
    if isinstance(source, File | Remote):
        place = source.path if source.span is None else FilePart(source.path, *source.span, source.size)
        yield from formats.read(place, column, advance)
        return
    if isinstance(source, Hub):
        documents = _read_hub(source, column)
    else:
        documents = built_in_text.documents("train") if source.name == "docs" else built_in_text.code_documents()
    for document in documents:
        advance(len(document))
        yield document


def check_unchanged(sources: Iterable[Source]) -> None:
    """Raise InputError if a file was changed since its size and time were looked up."""
    for source in sources:
        # Of a local file, the times are the same on every machine that mounts it, and the inode is not.
        if (isinstance(source, File) and _file(source.path).changed[:2] != source.changed[:2]) or (
            isinstance(source, Remote) and source.version != listed(source.path.url)[0][1]
        ):
            raise InputError(f"corpus file {source.path} was changed while it was read; give the same command again")


def identity(source: Source) -> list[Any]:
    """Return what must be equal if prepared data is to be used again without reading the source."""
    if isinstance(source, File):
        return ["file", os.path.realpath(source.path), source.size, *source.changed]
    if isinstance(source, Remote):
        return ["remote", source.path.url, source.size, source.version]
    if isinstance(source, Hub):
        return ["hub", source.name, source.config, source.commit]
    return [source.name, source.fingerprint]


def name_of(source: Source) -> str:
    """Return a source's name for display, without a compression's suffix; bytes that are not UTF-8 are U+FFFD."""
    if isinstance(source, File | Remote):
        name = named(source.path).stem if streams.packing_of(source.path) else named(source.path).name
        return name.encode(errors="surrogateescape").decode(errors="replace")
    return f"{source.name}:{source.config}" if isinstance(source, Hub) and source.config else source.name


def _resolve(name: str, revision: str | None, column: str) -> list[Source]:
    if name == "docs":
        built_in = built_in_text.info()
        return [BuiltIn(name, built_in.fingerprint, built_in.bytes["train"])]
    if name == "python-code":
        code = [(path, os.stat(path)) for path in built_in_text.code_files()]
        facts = [[path, each.st_size, [each.st_mtime_ns, each.st_ctime_ns, each.st_ino]] for path, each in code]
        return [BuiltIn(name, digest(facts, 16), sum(each.st_size for _, each in code))]
    if URL.match(name):
        return list(_remote(name, column))
    path = user_path(name, "--corpus")
    try:
        folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise InputError(f"corpus {name!r} cannot be accessed: {error.strerror}") from None
    if folder:
        return _folder(path, column)
    if exists:
        if not formats.kind_of(path):
            raise InputError(f"corpus {name!r} is a type of file that cannot be read; these types can: {KINDS}")
        return [_file(path)]
    if any(sign in name for sign in "*?["):
        matches = sorted(map(Path, set(_matches(str(path)))))
        within = {folder for match in matches if not os.path.isdir(match) for folder in match.parents}
        shown = {str(match): match for match in matches if match not in within}
        if not (files := _readable(f"corpus {name!r}", shown, column)):
            raise InputError(
                f"corpus {name!r} matches no file that can be read ({KINDS}); relative paths start at {Path.cwd()}"
            )
        return [_file(file) for file in files]
    if hub := HUB_NAME.match(name):
        if unpacked_suffix(path) in (*formats.READERS, formats.JSON):
            raise InputError(f"corpus {name!r}: there is no such file; relative paths start at {Path.cwd()}")
        return [Hub(hub["name"], hub["config"], _commit(hub["name"], revision))]
    raise InputError(
        f"corpus {name!r} is neither {' nor '.join(map(repr, BUILT_IN))} nor a file, folder or glob (relative paths "
        f"start at {Path.cwd()}) nor a hub name such as owner/name"
    )


def _matches(pattern: str) -> Iterator[str]:
    """Yield the paths that a glob matches. Below `**` each folder is entered once, however many links lead to it.

    Raises InputError for folders without permission, which `glob` would leave out.
    """
    parts = pattern.split(os.sep)
    if "**" not in parts:
        for place in (place for place, part in enumerate(parts) if glob.has_magic(part)):
            for folder in glob.iglob(os.sep.join(parts[:place]) or os.sep[: place > 0] or os.curdir):
                if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
                    _fail(PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder))
        yield from glob.iglob(pattern)
        return
    place = parts.index("**")
    before, after = os.sep.join(parts[:place]) or os.sep[: place > 0], parts[place + 1 :]
    while after[:1] == ["**"]:
        del after[0]
    for base in sorted(glob.iglob(before)) if before else [os.curdir]:
        for folder, _ in _folders(base):
            yield from _matches(os.sep.join([glob.escape(folder.rstrip(os.sep)), *(after or ["*"])]))


def _remote(name: str, column: str) -> list[Remote]:
    """Return the readable files of a URL, which may name a folder or a glob. Raises InputError if there is none."""
    if offline() and name.lower().startswith("hf:"):
        raise InputError(f"corpus {name!r} is on the hub, and HF_HUB_OFFLINE is set; unset it, or name local files")
    versions = dict(listed(name))
    folder = name.rstrip("/") + "/"
    files = _readable(
        f"corpus {name!r}", {path.url.removeprefix(folder): path for path in versions}, column,
        hidden=not all(path.url.startswith(folder) for path in versions),
    )  # fmt: skip
    if not files:
        raise InputError(f"corpus {name!r} names no file that can be read: {KINDS}")
    return [Remote(path, path.size, versions[path]) for path in files]


def _folder(path: Path, column: str) -> list[Source]:
    """Return the readable files in a folder and its subfolders, sorted by path; a warning names the others."""
    if (path / "blobs").is_dir() and (path / "snapshots").is_dir():
        found = ", ".join(str(each) for each in sorted((path / "snapshots").iterdir()))
        raise InputError(f"corpus folder {path} is in the layout of the hub's cache; name one snapshot in it: {found}")
    below = sorted(Path(folder, name) for folder, names in _folders(str(path)) for name in names)
    shown = {str(file.relative_to(path)): file for file in below}
    if not (readable := _readable(f"corpus folder {path}", shown, column, hidden=False)):
        raise InputError(f"corpus folder {path} holds no file that can be read: {KINDS}")
    _check_babylm(path, readable)
    return [_file(leaf) for leaf in readable]


def _fail(error: OSError) -> None:
    raise InputError(f"corpus folder {error.filename} cannot be read: {error.strerror}")


def _folders(start: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder at and below `start`, and the names in it of files and of subfolders that are not entered.

    Those are hidden ones, and links to a folder above. Each folder is entered once, at its own place if that is below
    `start`, else at the place of a link to it.
    """
    above, entered = frozenset(map(_place, Path(start).resolve().parents)), set[tuple[int, int]]()
    starts = deque([start])  # `start` itself, then the links to other folders
    while starts:
        for folder, names, leaves in os.walk(starts.popleft(), onerror=_fail):
            if (place := _place(folder)) in entered:
                names.clear()
                continue
            entered.add(place)
            links = [name for name in names if name[0] != "." and os.path.islink(Path(folder, name))]
            upwards = [name for name in links if _place(Path(folder, name)) in above]
            yield folder, [*leaves, *upwards, *(name for name in names if name[0] == ".")]
            names[:] = sorted(name for name in names if name[0] != ".")
            starts += [os.path.join(folder, name) for name in sorted(links) if name not in upwards]


def _place(folder: str | Path) -> tuple[int, int]:
    """Return the device and inode of a folder, which all paths to it have in common."""
    info = os.stat(folder)
    return info.st_dev, info.st_ino


def _readable(named: str, files: Mapping[str, AnyPath], column: str, hidden: bool = True) -> list[AnyPath]:
    """Return the files that can be read, given by display name; a warning names the others."""

    def kind(name: str) -> str:
        file, is_hidden = files[name], any(part.startswith(".") for part in name.split("/"))
        if (is_hidden and not hidden) or (isinstance(file, Path) and os.path.isdir(file)):
            return ""
        return formats.kind_of(file, column)

    with ThreadPoolExecutor(AT_ONCE) as threads:  # of a file on a server, the beginning may be needed
        kinds = dict(zip(files, threads.map(kind, files), strict=True))
    if unread := [name for name in files if not kinds[name]]:
        formats.warn_of_unread(named, unread, len(files), f": hidden, no text, or none of {KINDS}")
    return [file for name, file in files.items() if kinds[name]]


def is_babylm(data: DataSpec) -> bool:
    """Return whether a corpus name stands for local files in BabyLM's layout, which are called SOURCE.train."""
    for name in data.corpus:
        if name in BUILT_IN or URL.match(name) or (HUB_NAME.match(name) and not os.path.exists(name)):
            continue
        for source in _resolve(name, None, data.column):
            if isinstance(source, File) and unpacked_suffix(source.path) == TRAIN:
                return True
    return False


def _check_babylm(folder: Path, files: list[Path]) -> None:
    """Raise InputError if a folder holds BabyLM's SOURCE.train beside other text, or a source twice (10M and 100M)."""
    train = [path for path in files if unpacked_suffix(path) == TRAIN]
    if not train:
        return
    if other := next((path for path in sorted(files) if path not in train), None):
        raise InputError(
            f"corpus folder {folder} holds BabyLM's {train[0].name} and other text, {other.name}; move one of them, or "
            f"name the files, as in --corpus '{folder}/*{TRAIN}'"
        )
    names: dict[str, Path] = {}
    for path in sorted(train):
        source = path.name.partition(TRAIN)[0]
        if source in names:
            raise InputError(
                f"corpus folder {folder} holds {source}{TRAIN} twice, as {names[source]} and as {path}; "
                f"name one of their folders, or move one of the files"
            )
        names[source] = path


def _file(path: Path) -> File:
    try:
        status = path.resolve().stat()
    except RuntimeError:  # raised by pathlib for links that form a circle
        raise InputError(f"corpus file {path} cannot be read: its symbolic links form a circle") from None
    except OSError as error:
        raise InputError(f"corpus file {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"corpus file {path} is not a regular file but a pipe, socket or device; name a text file")
    changed = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    return File(Path(os.path.realpath(path.parent), path.name), status.st_size, changed)


def local(data: DataSpec) -> bool:
    """Return whether the corpus and the tokenizer are both on this machine, and neither is on the hub."""
    for name in data.corpus:
        if (HUB_NAME.match(name) or URL.match(name)) and not os.path.exists(os.path.expanduser(name)):
            return False
    return data.tokenizer in TRAINED or os.path.exists(os.path.expanduser(data.tokenizer))


def offline() -> bool:
    """Return whether environment variables forbid access to the hub, by the rules of the hub's own client."""
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def _commit(name: str, revision: str | None) -> str:
    """Return the commit of a revision; without network, the commit that was recorded at the last look-up here."""
    if revision and COMMIT.match(revision):
        return revision
    record = cache_root() / "hub" / f"{digest([name, revision])}.json"
    if offline():
        recorded = read_entry(record)
    else:
        from huggingface_hub import HfApi

        try:
            commit = str(HfApi().dataset_info(name, revision=revision, timeout=10).sha)
        except Exception as error:  # of many types, some from the HTTP library of the hub's client
            recorded = read_entry(record) if getattr(error, "response", None) is None else None
            if recorded is None:
                raise _hub_error(name, error) from None
        else:
            write_entry(record, {"commit": commit})
            return commit
    if recorded is not None:
        return str(recorded["commit"])
    raise InputError(
        f"corpus {name!r} is not a local file or folder, and HF_HUB_OFFLINE is set, so the hub is not accessed; "
        f"unset it, or name local files"
    )


def _read_hub(source: Hub, column: str) -> Iterator[str]:
    """Yield the documents of a hub data set, streamed, or if offline, from the hub's cache on this machine."""
    import datasets

    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(
            source.name, source.config, split="train", revision=source.commit, streaming=not offline()
        )
        if rows.column_names is not None and column not in rows.column_names:
            raise formats.missing(column, rows.column_names, f"data set {source.name!r}")
        for row in rows:
            if column not in row:
                raise formats.missing(column, row, f"data set {source.name!r}")
            text = row[column].replace("\0", "") if isinstance(row[column], str) else row[column]
            for part in formats.cut(formats.field(text, column, f"data set {source.name!r}")):
                if part and not part.isspace():
                    yield part
    except InputError:
        raise
    except Exception as error:  # the hub's client raises many types, as in `_commit`
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _hub_error(source.name, error) from None


def _hub_error(name: str, error: Exception) -> InputError:
    why = one_line(error)
    return InputError(f"corpus {name!r} is not a local file or folder, and the hub does not provide it: {why}")
