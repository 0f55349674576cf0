"""The built-in corpus of source code: the Python files of the packages on this machine; nothing is downloaded.

The packages and folders are those of the corpus `docs`, and files whose modules are on its test side are left out,
since their docstrings are what probes and minimal pairs are made of. A document is a whole file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.data.built_in import docs
from workbench.errors import InputError
from workbench.spec.run_spec import digest


@dataclass(frozen=True)
class SourceFile:
    """A Python file, with its size in bytes, its times of modification and change in nanoseconds, and its inode."""

    path: str
    size: int
    changed: tuple[int, int, int]


def files() -> tuple[SourceFile, ...]:
    """Return the files in the order of packages and modules. Raises InputError if no package is installed here."""
    sources = []
    for path, _, module in docs.source_files(docs.installed("python-code")):
        if not docs.is_test(module):
            status = os.stat(path)
            changed = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
            sources.append(SourceFile(path, status.st_size, changed))
    if not sources:
        raise InputError("the built-in corpus 'python-code' has no file on this machine; name another with --corpus")
    return tuple(sources)


def fingerprint(of: tuple[SourceFile, ...]) -> str:
    """Return a hash of the names, sizes and times of files, by which text that was prepared before is found."""
    return digest([[file.path, file.size, file.changed] for file in of], 16)


def documents() -> Iterator[str]:
    """Yield the text of each file that has some; equal files count once, and files that are not UTF-8 are left out."""
    seen: set[str] = set()
    for file in files():
        try:
            content = Path(file.path).read_bytes()
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if text.strip() and "\0" not in text and (key := hashlib.sha256(content).hexdigest()) not in seen:
            seen.add(key)
            yield text
