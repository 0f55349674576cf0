"""Checkpoints of a sharded run, of which each process writes the parts of the tensors that it has.

The first process names a folder through torch's store of keys; the others write their files there and answer with
sizes and hashes, which go into the manifest. Files are as torch's distributed checkpoints have them in safetensors
(`torch.distributed.checkpoint.HuggingFaceStorageReader` reads them). Torch's own writers are not used: they exchange
pickled objects, know neither hashes nor staging, and serialize a whole file in memory.
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from workbench.errors import RankLost
from workbench.store import checkpoint
from workbench.store.checkpoint import Files
from workbench.store.lease import Lease

WAIT = 0.02  # seconds between looks for what another process answers
Groups = Mapping[str, Mapping[str, Tensor]]


class Parts:
    """The writing of checkpoints by the process `index` of `count`; a context, whose error ends all waiting.

    `store` are the keys of this run's processes, and `offsets` say by name where this process's tensors begin in whole
    ones. Every process calls `save` or `write` for the same checkpoints in the same order. A process that does not
    answer for `seconds` counts as ended.
    """

    def __init__(self, store: Any, index: int, count: int, offsets: checkpoint.Offsets, seconds: float) -> None:
        self.store, self.index, self.count, self.offsets, self.seconds = store, index, count, offsets, seconds
        self._number = 0
        self._over = threading.Event()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._over.set()

    def save(
        self, folder: Path, step: int, tensors: Groups, state: Mapping[str, Any], owner: Lease | None = None
    ) -> None:
        """Write a checkpoint with the other processes, as `checkpoint.save` does. Raises RankLost if one has ended."""
        self._number += 1
        place = f"draft/{self._number}"
        try:
            checkpoint.save(
                folder, step, self._named(tensors), state, owner=owner, beside=self._told, offsets=self.offsets
            )  # fmt: skip
        finally:
            if not self.store.check([place]):  # nothing was written, and the others wait for a folder
                self.store.set(place, "")

    def write(self, tensors: Groups) -> None:
        """Write the parts of this process, which is not the first, into the folder that the first one names.

        An error of the disk is left to the first process.
        """
        self._number += 1
        draft = self._awaited(f"draft/{self._number}")
        if not draft:
            return
        answer: dict[str, Any]
        try:
            answer = {"files": checkpoint.write_part(Path(draft), self._named(tensors), self.offsets)}
        except OSError as error:
            answer = {"error": [error.errno or errno.EIO, error.strerror, str(error.filename)]}
        self.store.set(f"part/{self._number}/{self.index}", json.dumps(answer))

    def _named(self, tensors: Groups) -> Groups:
        """Return the groups under the names of this process's parts."""
        return {checkpoint.part_name(group, self.index, self.count): tensors[group] for group in tensors}

    def _told(self, draft: Path) -> Callable[[], Files]:
        """Tell the others the folder; return a function that waits for their files, and raises their OSError."""
        self.store.set(f"draft/{self._number}", str(draft.absolute()))
        return self._files

    def _files(self) -> Files:
        files: Files = {}
        for index in range(1, self.count):
            answer = json.loads(self._awaited(f"part/{self._number}/{index}"))
            if "error" in answer:
                raise OSError(*answer["error"])
            files |= answer["files"]
        return files

    def _awaited(self, key: str) -> str:
        """Return the value of a key once it is there. Raises RankLost if it does not come."""
        until = time.monotonic() + self.seconds
        while not self.store.check([key]):
            if self._over.wait(WAIT) or time.monotonic() > until:
                raise RankLost("another process of this run ended or did not answer while a checkpoint was written")
        return str(self.store.get(key).decode())
