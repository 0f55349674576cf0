"""Drills on damage by structure: every file of the cache, in every way that disks, copies and people damage files."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.cpu import compiled
from workbench.data import built_in_text, prepare, tokenizer
from workbench.progress import silent
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.store import cache
from workbench.tasks import table

from .small import write_table, write_text


def cache_files(folder: Path, count: int) -> str:
    """Goal 5: what is opened from a damaged cache is what an intact one gives, and the file is made anew."""
    text, rows = write_text(folder / "text.txt"), write_table(folder / "table.csv")
    packages = folder / "numpy"
    for number in range(30):
        (packages / f"part{number}").mkdir(parents=True)
        (packages / f"part{number}/m.py").write_text(f'"""Module {number} says {"very " * number}much of itself."""')
    built_in_text._root = {"numpy": packages}.get  # type: ignore[assignment]
    compiled._compile = compiled_quickly  # type: ignore[assignment]
    pristine, here = folder / "pristine", folder / "cache"
    opened(pristine, text, rows)
    shutil.rmtree(pristine / "tokenizers")  # those that prepared text was made with are not opened again
    whole = opened(pristine, text, rows)
    cases = [
        (path, damage)
        for path in sorted(pristine.rglob("*"))
        if path.is_file() and path.relative_to(pristine).parts[0] != "locks"
        for damage in DAMAGES
    ]
    assert not list(cache.differences(pristine))
    random.Random(count).shuffle(cases)
    told: Counter[str] = Counter()
    for path, damage in cases[:count]:
        name = path.relative_to(pristine)
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(pristine, here)
        if not damage(here / name, here):
            continue
        gone = damage is removed and len(name.parts) == 2  # nothing tells that such an entry was there
        assert gone or list(cache.differences(here)), f"{name}, {damage.__name__}: verify says nothing"
        assert opened(here, text, rows) == whole, f"{name}, {damage.__name__}: used as it was"
        assert not list(cache.differences(here)), f"{name}, {damage.__name__}: not made anew"
        told[damage.__name__] += 1
    ways = ", ".join(f"{number} {way}" for way, number in sorted(told.items()))
    return f"{sum(told.values())} of {sum(told.values())} made anew ({ways}), 0 used"


def opened(root: Path, text: Path, rows: Path) -> list[Any]:
    """All that training, scoring and export would read from this cache."""
    os.environ["WORKBENCH_CACHE"] = str(root)
    built_in_text._load.cache_clear()
    found: list[Any] = [built_in_text.info(), built_in_text.entries("train")]
    for vocab in (150, 160):
        words = {"data.corpus": (str(text),), "encoder.vocab": vocab, "batch.size": 4, "data.length": 32}
        spec = resolve("nano", words)
        place = tokenizer.train_or_load(spec.data, vocab, text.read_text().split("\n\n"), "drill", root)
        made = prepare.prepare(spec, silent, root)
        found += [made.fingerprint, made.tokens, made.documents, made.bytes, made.vocab, made.special]
        found += [path.read_bytes() for folder in (made.folder, place) for path in sorted(folder.rglob("*.*"))]
    task = table.read(rows, TasksSpec())
    found.append(dict(task.baselines(root)))
    found += [compiled._compiled(root / "kernels" / name, ()) for name in "ab"]
    return found


def compiled_quickly(folder: Path, more: tuple[str, ...]) -> None:
    """In the place of a compiler, which takes seconds."""
    (folder / compiled.LIBRARY).write_bytes(b"7" * 1000 + folder.parent.name[:2].encode())


def cut(path: Path, root: Path) -> bool:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return len(content) > 1


def digit_changed(path: Path, root: Path) -> bool:
    content = path.read_bytes()
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return False
    place = random.Random(str(path.name)).choice(places)
    path.write_bytes(content[:place] + bytes([48 + (content[place] - 47) % 10]) + content[place + 1 :])
    return True


def bit_flipped(path: Path, root: Path) -> bool:
    content = bytearray(path.read_bytes())
    if not content:
        return False
    content[random.Random(str(path.name)).randrange(len(content))] ^= 1
    path.write_bytes(content)
    return True


def removed(path: Path, root: Path) -> bool:
    path.unlink()
    return True


def emptied(path: Path, root: Path) -> bool:
    full = path.stat().st_size > 0
    path.write_bytes(b"")
    return full


def exchanged(path: Path, root: Path) -> bool:
    """With the file of the same name in a sibling, where there is one that differs."""
    kind, entry, *rest = path.relative_to(root).parts
    for sibling in sorted((root / kind).iterdir()):
        other = sibling.joinpath(*rest)
        if rest and sibling.name != entry and other.is_file() and other.read_bytes() != path.read_bytes():
            path.rename(root / "aside")
            other.rename(path)
            (root / "aside").rename(other)
            return True
    return False


DAMAGES: tuple[Callable[[Path, Path], bool], ...] = (cut, digit_changed, bit_flipped, removed, emptied, exchanged)
