"""The cache folder, and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """$WORKBENCH_CACHE, or ~/.cache/workbench."""
    chosen = os.environ.get("WORKBENCH_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "workbench"


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that becomes `folder` when the block ends well, and is removed otherwise.

    When another process finished the same folder meanwhile, theirs stays: equal keys mean equal content.
    A damaged folder in the way must be removed by the caller first. Raises OSError when the disk does.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    temporary.mkdir()
    try:
        yield temporary
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir() or not any(folder.iterdir()):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
