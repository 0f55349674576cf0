"""Plug-ins of one kind: the files of a built-in folder, an entry-point group of installed packages, and files by path.

Objectives, encoders and kinds of tasks are found in this way, each by its name or by a path to a Python file. The hash
of a file is part of the identity of what it computes.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.errors import InputError, blaming, suggest
from workbench.spec.parts import Part
from workbench.spec.run_spec import parse_part
from workbench.store.atomic import user_path

LARGEST = 16 << 20  # bytes of the file of a plug-in
_files: dict[str, Path] = {}  # files that were given by path in this process, by hash, and by name and hash


@dataclass(frozen=True)
class Entry:
    """One known plug-in: its name, the first line of its docstring, and "built in" or the package that it is from."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True)
class Plugs:
    """All plug-ins of a kind.

    `kind` is the noun of messages, `option` is the option of the command line that names one, `package` and `folder`
    hold the built-in ones, `group` is the entry-point group, and `parts` are the names that each module must have.
    """

    kind: str
    option: str
    package: str
    folder: Path
    group: str
    parts: Sequence[str]

    @functools.cached_property
    def built_in(self) -> dict[str, Path]:
        """The file of each plug-in of the built-in folder by its name; files that begin with _ are parts of others."""
        files = dict[str, Path]()
        for path in sorted(self.folder.glob("[a-z]*.py")):
            files[path.stem.replace("_", "-")] = path
        return files

    def installed(self) -> dict[str, EntryPoint]:
        """Return the entry points of installed packages by name, apart from names that are built in."""
        points = sorted(entry_points(group=self.group), key=lambda point: point.name)
        return {point.name: point for point in points if point.name not in self.built_in}

    def listing(self) -> list[Entry]:
        """Return every plug-in of the built-in folder and of installed packages, without importing any."""
        here = [Entry(name, _summary(path), "built in") for name, path in self.built_in.items()]
        others = []
        for point in self.installed().values():
            path = _module_file(point.value)
            owner = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            others.append(Entry(point.name, _summary(path) if path else "", owner))
        return here + others

    def given(self, word: str) -> str:
        """Return the option with its value, as on the command line."""
        return f"{self.option}={word}" if self.option.startswith("--set") else f"{self.option} {word}"

    def find(self, word: str) -> tuple[str, str]:
        """Return the name and the source hash of a plug-in that is given by its name or by a path to a Python file.

        The hash is "" for a built-in one. Raises InputError for an unknown name or a missing file.
        """
        if is_path(word):
            path, given = user_path(word, self.option), self.given(word)
            if not path.is_file():
                raise InputError(f"{given}: there is no such file")
            if path.stat().st_size > LARGEST:
                raise InputError(f"{given} has {path.stat().st_size:,} bytes, which no Python file has")
            source, name = hash_of(path), path.stem.replace("_", "-").lower()
            _files[source] = _files[f"{name}@{source}"] = path.resolve()
            return name, source
        if word in self.built_in:
            return word, ""
        installed = self.installed()
        if word not in installed:
            raise InputError(f"unknown {self.kind} {word!r}{suggest(word, [*self.built_in, *installed])}")
        path_of = _module_file(installed[word].value)
        return word, hash_of(path_of) if path_of else word

    def file(self, source: str) -> Path | None:
        """Return the file with this hash that was given by path, whatever its name; None for other plug-ins."""
        return _files.get(source)

    def keep(self, source: str, path: Path) -> None:
        """Use the copy at `path` as the file with the hash `source`, if none is known and the copy has this hash."""
        if not source or source in _files or not path.is_file() or path.stat().st_size > LARGEST:
            return
        if hash_of(path) == source:
            _files[source] = path.resolve()

    def load(self, name: str, source: str) -> ModuleType:
        """Return the module of a plug-in. Raises InputError if it cannot be loaded or lacks a required name."""
        path = _files.get(f"{name}@{source}")
        if path is None and source in _files and name not in self.installed():  # the same text under another name
            path = _files[f"{name}@{source}"] = _files[source]
        if path is not None:
            module = _load_file(path, f"workbench_{self.kind}_{source}")
        elif source:
            point = self.installed().get(name)
            if point is None:
                raise InputError(
                    f"{self.kind} {name!r} is defined in a file that this command does not name; give it with "
                    f"{self.given('FILE')}"
                )
            with blaming(f"{name!r} of {point.value}", kind=self.kind):
                module = importlib.import_module(point.module)
        else:
            self.find(name)
            module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        if source and (missing := [part for part in self.parts if not hasattr(module, part)]):
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise InputError(
                f"{file_of(module)} has no {' and no '.join(missing)}; {article} {self.kind} needs "
                f"{', '.join(self.parts)}"
            )
        return module


def is_path(word: str) -> bool:
    """Return whether a word is the path of a plug-in's file, and not a plug-in's name."""
    return word.endswith(".py") or "/" in word


def check_options(options: Any, file: str) -> None:
    """Raise InputError if what a plug-in's file defines as Options is no class of options."""
    if not (isinstance(options, type) and issubclass(options, Part)):
        raise InputError(
            f"{file}: Options must be a subclass of workbench.spec.parts.Part, as in `class Options(Part):`"
        )


def options_of(options: type[Part], given: Mapping[str, Any], key: str, file: str, noun: str = "") -> dict[str, Any]:
    """Return all options of a plug-in as spec.json holds them: the given ones, checked, and defaults for the others."""
    with blaming(file, "Options raised", noun):
        found = parse_part(options, given, key).model_dump(mode="json")
        json.dumps(found)  # fails for integers of more than 4,300 digits
    return found


def hash_of(path: Path) -> str:
    """Return 16 hex digits of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def file_of(module: ModuleType) -> str:
    """Return the file of a module, or its name if it has no file, for messages."""
    return module.__file__ or module.__name__


class _SourceAlone(SourceFileLoader):
    """A loader that neither reads nor writes a compiled copy of a file, since the file may be in a run's folder."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, on which importlib uses the source alone."""
        raise OSError


def _load_file(path: Path, name: str) -> ModuleType:
    """Return the module in a file, imported under `name`. Raises InputError if the import fails."""
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path, loader=_SourceAlone(name, str(path)))
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        with blaming(str(path)):
            module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_file(dotted: str) -> Path | None:
    """Return the file of the module in an entry point's value, without importing it; None if there is none."""
    try:
        module_spec = importlib.util.find_spec(dotted.partition(":")[0])
    except ModuleNotFoundError:
        return None
    return Path(module_spec.origin) if module_spec and module_spec.origin else None


def _summary(path: Path) -> str:
    """Return the first line of the docstring in a file; "" if the file cannot be read or parsed."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (SyntaxError, OSError):
        return ""
    return text.partition("\n")[0]
