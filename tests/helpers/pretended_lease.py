"""The lease of a process on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drills.cells import BEAT

from workbench.store.atomic import dumps


def pretend(folder: Path, stage: bool = True, **changes: Any) -> None:
    """The lease of an owner that this process knows nothing good about: another machine's, unless changed."""
    content = {"format": 1, "owner": "abc123", "host": "far", "pid": 1, "started": "1", "machine": "x", "beat": BEAT}
    (folder / "lease").write_text(dumps(content | changes))
    if stage:
        (folder / ".tmp-abc123").mkdir()
