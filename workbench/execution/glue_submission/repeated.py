"""A recorded fine-tuning carried out again, for its outputs on rows without labels; kept in the cache until needed.

While it is not finished, its state is in the folder `repeating` of the cache, from which the next command goes on.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.errors import Diverged, InputError, LeaseLost
from workbench.progress import warn_once
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import digest, parse_part
from workbench.store.atomic import cache_root, dumps, loads
from workbench.store.cache import alone, discard, is_whole, staged
from workbench.store.lease import Lease
from workbench.tasks import glue
from workbench.tasks.common.contract import Model, score_digest
from workbench.tasks.common.examples import Examples, Task

if TYPE_CHECKING:
    from workbench.tasks.common.fine_tuning import Unfinished

log = logging.getLogger("workbench")
ROUNDING = 1.0  # points by which a score may differ on another device or in another precision
SAME = 1e-4  # points by which correlations differ from those of versions that computed them in 32-bit floats
RECORD = "score.json"


@dataclass(frozen=True)
class Repeated:
    """The outputs (N, labels) of a repeated fine-tuning for each part, and its metrics on dev."""

    outputs: Mapping[str, Any]
    values: Mapping[str, Mapping[str, float]]


def task_of(score: Mapping[str, Any], place: str | None) -> tuple[Task, TasksSpec]:
    """Return the task and the settings of a recorded score, from the data at `place`.

    Raises InputError if data or settings differ from those of the score.
    """
    name = score["task"]
    settings = {**score["finetune"], "names": name, "glue": place}
    spec = parse_part(TasksSpec, settings, "tasks")
    tasks, missing = glue.read([name], place, spec.rows)
    for why in missing.values():
        raise InputError(f"{name} cannot be fine-tuned again: {why}; name GLUE's folder with --glue DIR")
    (task,) = tasks
    if task.fingerprint != score["data"]:
        raise InputError(
            f"{name}: the rows in {place or glue.HUB} are not those of the recorded score (data fingerprint "
            f"{task.fingerprint} instead of {score['data']}); name the folder that it was taken with: --glue DIR"
        )
    if score_digest(task, spec) != score["digest"]:
        raise InputError(
            f"{name}: the recorded score has settings that this version of workbench does not have ({score['code']}); "
            f"take it again with workbench evaluate"
        )
    return task, spec


def repeat(
    encoder: Path, weights: str, score: Mapping[str, Any], task: Task, spec: TasksSpec, parts: Mapping[str, Examples],
    host: Host, progress: Callable[[int, int], None],
) -> Repeated:  # fmt: skip
    """Fine-tune again as for a recorded score and predict the parts, unless the cache has the outcome.

    `weights` is a hash of the encoder's weights. Raises InputError if the score on dev is not reproduced.
    """
    texts = {name: glue.fingerprint_of_texts(rows) for name, rows in parts.items()}
    computed = [host.resolved_device(), host.resolved_precision(), host.threads, host.plain, workbench.__version__]
    key = digest([weights, score["digest"], score["seed"], texts, computed], 16)
    folder = cache_root() / "submissions" / f"{task.name}-{score['seed']}-{key}"
    if not is_whole(folder):
        _compute_alone(folder, encoder, weights, task, spec, score["seed"], parts, host, progress)
    made = _read(folder, parts)
    _compare(score, made.values)
    return made


@dataclass
class Repeating:
    """The folder of the cache for the state of a repeated fine-tuning, while this process holds its lease."""

    folder: Path
    owner: Lease | None

    def file(self, name: str) -> Path:
        """Return the path of a file or folder of this name in the folder."""
        return self.folder / name

    def remove(self, name: str) -> None:
        """Delete a file or folder of this name in the folder, if it exists."""
        discard(self.file(name))


def _compute_alone(
    folder: Path, encoder: Path, weights: str, task: Task, spec: TasksSpec, seed: int, parts: Mapping[str, Examples],
    host: Host, progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Write the outcome of a fine-tuning to a folder of the cache, unless another process does so in the meantime."""
    from workbench.tasks.common.fine_tuning import Unfinished

    place = cache_root() / "repeating" / folder.name
    waiting = f"another process fine-tunes on {task.name} (seed {seed}); waiting for it"
    try:
        with alone(place, lambda: warn_once(waiting)) as lease:
            if not is_whole(folder):
                state = Unfinished(Repeating(place, lease), f"{folder.name}.json", {"encoder": weights})
                _compute(folder, encoder, task, spec, seed, parts, host, progress, state)
                state.delete()
    except LeaseLost as error:
        raise InputError(f"{error}; give the same command again") from None
    shutil.rmtree(place, ignore_errors=True)


def _compute(
    folder: Path, encoder: Path, task: Task, spec: TasksSpec, seed: int, parts: Mapping[str, Examples], host: Host,
    progress: Callable[[int, int], None], state: Unfinished,
) -> None:  # fmt: skip
    """Write the outcome of a fine-tuning to a folder of the cache, going on from its state."""
    import numpy as np

    from workbench.tasks.common.classification import finetune_and_predict

    try:
        score, outputs = finetune_and_predict(task, parts, Model(encoder, spec, seed, progress, state), host)
    except Diverged as error:
        raise InputError(f"{task.name}: the recorded fine-tuning with seed {seed} diverges here: {error}") from None
    with staged(folder) as draft:
        for name, array in outputs.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        (draft / RECORD).write_text(dumps(score.values), encoding="utf-8")


def _read(folder: Path, parts: Mapping[str, Examples]) -> Repeated:
    """Return the outcome in a folder of the cache."""
    import numpy as np

    outputs = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in parts}
    return Repeated(outputs, loads((folder / RECORD).read_bytes()))


def _compare(score: Mapping[str, Any], values: Mapping[str, Mapping[str, float]]) -> None:
    """Log a warning if the metrics on dev differ from the recorded ones. Raises InputError beyond rounding."""
    if _same(values, score["values"]):
        return
    metric, part = score["metric"], next(iter(score["values"]))
    now, before = values[part][metric], score["value"]
    what = (
        f"{score['task']}, seed {score['seed']}: fine-tuned again, {metric} on {part} is {now:.4f} and not {before:.4f}"
    )
    if abs(now - before) > ROUNDING:
        raise InputError(
            f"{what}, as recorded: this is not the model that was chosen; use the --device and --precision with which "
            f"it was measured, or measure it again here with workbench evaluate"
        )
    log.warning("%s, as another device, precision or number of threads rounds differently; the card says so", what)


def _same(values: Mapping[str, Mapping[str, float]], recorded: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether two sets of metrics have the same parts and names, and values that differ by no more than SAME."""
    names = [{(part, name) for part, of_part in each.items() for name in of_part} for each in (values, recorded)]
    return names[0] == names[1] and all(
        abs(values[part][name] - recorded[part][name]) <= SAME for part, name in names[0]
    )
