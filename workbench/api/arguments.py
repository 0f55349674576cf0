"""The keyword arguments of `run`, `sweep`, `plan`, `evaluate` and `submit`, and checks of their types.

They are the options of the commands, under the same names; those that are left out have the command's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, TypedDict

from workbench.errors import InputError, suggest
from workbench.store.redact import refuse_secrets_in


class Computation(TypedDict, total=False):
    """Where and how the encoders are computed, which is not part of what a run is."""

    device: str  #: auto, cpu, cuda, cuda:N or mps
    precision: str  #: auto, fp32 or bf16


class SubmitArguments(Computation, total=False):
    """The keyword arguments of `submit` besides those in its signature."""

    threads: int | None  #: CPU threads


class EvaluateArguments(Computation, total=False):
    """The keyword arguments of `evaluate` besides those in its signature."""

    settings: Mapping[str, Any] | None  #: fields of the spec and their values, as with --set


class RunArguments(Computation, total=False):
    """The keyword arguments of `run` and `plan`."""

    objectives: str | Path | Sequence[str | Path]  #: names or files of objectives, by default those of the experiment
    settings: Mapping[str, Any] | None  #: fields of the spec and their values, as with --set
    scale: str | None  #: the size of the encoder: nano, micro, mini, small, base, large or a published size
    corpus: str | Path | Sequence[str | Path]  #: text: docs, files, folders, globs or names on the hub
    tasks: str | None  #: tasks that measure the encoders, separated by commas
    evaluate_at: str | None  #: points of training that are measured as well: auto, log:N, words or none
    budget: str | None  #: flops=1e17, tokens=2e6, words=1e8, steps=1000 or seconds=600
    match: str | None  #: the unit of which all runs get the same amount, or none
    seeds: int | str | None  #: the number of pre-training seeds, or auto
    most_seeds: int | None  #: with seeds="auto", the largest number of seeds
    most_compute: str | None  #: with seeds="auto", the most that all runs may spend
    most_epochs: float | None  #: the largest number of epochs of the text
    store: Path | str  #: the folder of the run store
    out: Path | str | None  #: the folder of the report
    workers: int  #: the number of runs at a time
    launcher: Literal["local", "slurm"]  #: where runs are computed
    devices: int | None  #: the number of devices that compute each run
    shard: bool  #: whether several devices hold a part of the weights each
    threads: int | None  #: CPU threads of each run
    micro_batch: int | None  #: rows computed at once
    compile_: bool  #: whether torch.compile is used
    plain: bool  #: whether plain PyTorch in fp32 is used, without faster code
    save_every: int | None  #: steps between checkpoints
    track: Literal["wandb"] | None  #: the tracker that metrics are copied to


class SweepArguments(RunArguments, total=False):
    """The keyword arguments of `sweep` besides those in its signature."""

    trials: int | None  #: the number of trials of a search
    sampler: str  #: tpe, random or qmc
    tuning_seeds: int  #: with the axis tune, pre-training seeds of each trial
    storage: str | None  #: the storage of Optuna's copy of the trials


# The least and the largest value of each whole number, as of the command's options.
WHOLE = {
    "workers": (1, 1024), "devices": (1, 1024), "threads": (1, 4096), "micro_batch": (1, 1 << 31),
    "save_every": (1, 1 << 31), "most_seeds": (2, 1000),
}  # fmt: skip
TEXTS = ("scale", "tasks", "evaluate_at", "budget", "match", "most_compute", "device", "precision", "launcher")
LISTS = ("objectives", "corpus")
MAPPINGS = ("settings",)


def checked(arguments: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return a copy of the arguments of a function, of which `kind` is the TypedDict.

    Paths become texts, and whole numbers of other types, such as numpy's, become ints. Raises InputError for an unknown
    name, and for a value of another type or out of its range.
    """
    plain = {name: _plain(name, value) for name, value in arguments.items()}
    for name, value in plain.items():
        if name not in kind.__annotations__:
            raise InputError(f"unknown argument {name!r}{suggest(name, kind.__annotations__)}")
        if value is not None:
            _check(name, value)
        refuse_secrets_in(value, name)
    return plain


def _plain(name: str, value: Any) -> Any:
    """Return the value of an argument with texts for paths and ints for whole numbers, where these are expected."""
    if name in WHOLE and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if name in LISTS and isinstance(value, PathLike):
        return fspath(value)
    if name in LISTS and isinstance(value, Sequence) and any(isinstance(each, PathLike) for each in value):
        return tuple(fspath(each) if isinstance(each, PathLike) else each for each in value)
    return value


def _check(name: str, value: Any) -> None:
    """Raise InputError if an argument cannot have this value."""
    if name in WHOLE:
        least, most = WHOLE[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(f"{name}={value!r} is not a whole number from {least} to {most:,}")
    elif name == "most_epochs" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise InputError(f"{name}={value!r} is not a number above 0")
    elif name in TEXTS and not isinstance(value, str):
        raise InputError(f"{name}={value!r} is not a text{_as_text(value)}")
    elif name in LISTS and not (isinstance(value, str) or _is_list(value)):
        raise InputError(f"{name}={value!r} is neither a name nor a list of names")
    elif name in MAPPINGS and not isinstance(value, Mapping):
        raise InputError(f"{name}={value!r} is not a mapping; give it as {{'optim.lr': 1e-3}}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping) and all(isinstance(v, str) for v in value)


def _as_text(value: Any) -> str:
    """Return advice on how to write a list of names as the text that the option takes."""
    return f"; give it as {','.join(value)!r}" if _is_list(value) and not isinstance(value, str) else ""
