"""Folders and files that appear whole or not at all; one process at a time."""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.files import disk_errors
from workbench.lease import LeaseHeld, acquire

LOOK = 0.2  # seconds between looks at whether another process has finished


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that becomes `folder` when the block ends well, and is removed otherwise.

    When another process finished the same folder meanwhile, theirs stays: equal keys mean equal content.
    A damaged folder in the way must be removed by the caller first. Raises OSError when the disk does.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    temporary = folder.with_name(f".{folder.name}~{socket.gethostname()}~{os.getpid()}~{uuid.uuid4().hex[:8]}")
    temporary.mkdir()
    try:
        with disk_errors(folder):
            yield temporary
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir() or not any(folder.iterdir()):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed processes of this machine left behind."""
    for left in parent.glob(f".*~{socket.gethostname()}~*~*"):
        pid = left.name.split("~")[-2]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def discard(folder: Path) -> None:
    """Remove a folder; it disappears under its name at once."""
    gone = folder.with_name(f".{folder.name}~{socket.gethostname()}~{os.getpid()}~{uuid.uuid4().hex[:8]}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Own `folder` inside the block, by a lease (`workbench.lease`); `waiting` is called while another process does.

    Whoever stands still for so long that another takes over does the work twice: a `staged` folder stays whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            lease = acquire(folder, patience=0)
            break
        except LeaseHeld:
            waiting()
            time.sleep(LOOK)
    try:
        yield
    finally:
        lease.release()


def write_atomic(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
