"""Texts that are prepared in slices, and what is then in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from workbench.data import prepare
from workbench.data.prepare import Prepared
from workbench.progress import silent
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

Small = Callable[[int], None]


def spec_of(path: Path, **changes: object) -> RunSpec:
    base = {"data.corpus": (str(path),), "encoder.vocab": 800, "batch.size": 4, "data.length": 32}
    return resolve("nano", base | {key.replace("__", "."): value for key, value in changes.items()})


def make(spec: RunSpec, cache: Path, workers: int = 1) -> Prepared:
    return prepare.prepare(spec, silent, cache, workers)


def content(cache: Path) -> dict[str, str]:
    """The hash of every file of a cache, without those of processes that were killed."""
    kept = [path for path in cache.rglob("*") if path.is_file() and "/." not in str(path.relative_to(cache.parent))]
    return {str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
