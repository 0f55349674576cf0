"""An experiment file becomes runs. A file is a question, and the axes along which the runs differ.

    QUESTION = "At equal compute, what does each step from BERT to ELECTRA buy?"
    AXES = {"objective": ("bert-mlm", "rtd")}

A name is looked up as a path, then in `./experiments`, then among those that came with the package.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, suggest
from workbench.spec import RunSpec, digest, known_keys


@dataclass(frozen=True)
class Experiment:
    """`axes` maps dotted keys of the spec to the values they take; the runs are all combinations, times the seeds."""

    name: str
    question: str
    axes: Mapping[str, Sequence[Any]]

    @property
    def axis(self) -> str:
        """The first axis, the one that reports compare along."""
        return next(iter(self.axes), "objective")

    def runs(self, base: RunSpec, seeds: int) -> Iterator[RunSpec]:
        """One spec a seed and combination; seeds vary slowest, so that whole comparisons come in early."""
        for seed in range(base.seed, base.seed + seeds):
            for values in itertools.product(*self.axes.values()):
                yield base.changed(dict(zip(self.axes, values, strict=True)) | {"seed": seed})

    def record_name(self, base: RunSpec) -> str:
        """`ablation-nano-1a2b3c4d`: all runs of one question about one base share it, whatever their budget."""
        given = base.identity()
        for key in ("budget", "seed", "objective", "options", "source"):
            given.pop(key)
        for key in self.axes:
            part = given
            *path, last = key.split(".")
            for name in path:
                part = part.get(name, {})
            part.pop(last, None)
        tasks = base.tasks.model_dump(mode="json")
        return f"{self.name}-{base.scale}-{digest([self.name, given, tasks], 8)}"


def load(word: str) -> Experiment:
    """The experiment of a name or a path. Raises InputError where there is none, or its file is not one."""
    path = _locate(word)
    found = importlib.util.spec_from_file_location(f"workbench_experiment_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"experiment file {path}: {type(error).__name__}: {error}") from error
    question, axes = getattr(module, "QUESTION", None), getattr(module, "AXES", None)
    if not isinstance(question, str) or not isinstance(axes, Mapping):
        raise InputError(f"experiment file {path} needs QUESTION, a sentence, and AXES, a dict of keys and values")
    for key, values in axes.items():
        if key not in known_keys():
            raise InputError(f"experiment file {path}: unknown key {key!r} in AXES{suggest(key, known_keys())}")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"experiment file {path}: AXES[{key!r}] must be a list of values")
    return Experiment(path.stem.replace("_", "-"), question, dict(axes))


def listing() -> list[tuple[str, str, str]]:
    """(name, question, path) of every experiment that can be named."""
    found: dict[str, tuple[str, str, str]] = {}
    for folder in _folders():
        for path in sorted(folder.glob("[a-z]*.py")):
            name = path.stem.replace("_", "-")
            if name not in found:
                found[name] = (name, load(str(path)).question, str(path))
    return list(found.values())


def _folders() -> list[Path]:
    here = Path(__file__).parent
    # Beside the package in a checkout, inside it in a wheel.
    return [path for path in (Path("experiments"), here / "experiments", here.parent / "experiments") if path.is_dir()]


def _locate(word: str) -> Path:
    if word.endswith(".py"):
        if Path(word).is_file():
            return Path(word)
        raise InputError(f"experiment {word}: there is no such file")
    stem = word.replace("-", "_")
    for folder in _folders():
        if (folder / f"{stem}.py").is_file():
            return folder / f"{stem}.py"
    known = {path.stem.replace("_", "-") for folder in _folders() for path in folder.glob("[a-z]*.py")}
    raise InputError(f"unknown experiment {word!r}{suggest(word, known)}" if known else f"unknown experiment {word!r}")
