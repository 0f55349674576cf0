"""Options of the commands and of the Python interface, each declared once.

An option is a field of a dataclass. Its name, type and default are the field's; `option` adds range, help and example.
The command line (`workbench.cli.command`), the signatures of `workbench.api`, the words of a cluster's jobs and the
documentation are made from these declarations.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, replace
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from workbench.errors import InputError, suggest

Names = Sequence[str | Path] | Path  # a text is one name; `checked` makes all of these a tuple of texts
Settings = Mapping[str, Any]  # dotted keys and their values
UNIONS = (UnionType, Union)  # `int | None` is the first, with Literal it may be the second
G = TypeVar("G")


@dataclass(frozen=True)
class Option:
    """What is said of an option besides its name, type and default.

    `least` and `most` bound a number. `names` is the list of `workbench list` whose names complete a value. On the
    command line, a `repeated` option is written once for each of its values, a `separated` one has them in one text
    with commas, and a `positional` one has no name. `common` options are shown by --help, the others by --help-all.
    """

    help: str
    metavar: str | None = None
    least: float = -math.inf
    most: float = math.inf
    names: str = ""
    repeated: bool = False
    separated: bool = False
    positional: bool = False
    common: bool = False


def option(default: Any, help: str, metavar: str | None = None, **facts: Any) -> Any:
    """Return the field of an option, which may be left out if it has a default."""
    return field(default=default, metadata={"option": Option(help, metavar, **facts)})


def like(group: type, name: str, **changes: Any) -> Any:
    """Return the field of an option that another group declares, with some of its facts changed."""
    former = next(each for each in fields(group) if each.name == name)
    default = changes.pop("default", former.default)
    return field(default=default, metadata={"option": replace(former.metadata["option"], **changes)})


@dataclass(frozen=True, kw_only=True)
class What:
    """Which runs are compared."""

    TITLE: ClassVar[str] = "What is compared"

    objective: Names = option(
        (), "Objective: a name or ./my_idea.py; repeatable.", "NAME|FILE",
        names="objectives", repeated=True, common=True,
    )  # fmt: skip
    set: Settings | None = option(
        None, "A setting, as in optim.lr=5e-4; repeatable (workbench list keys).", "KEY=VALUE",
        names="keys", repeated=True, common=True,
    )  # fmt: skip
    scale: str | None = option(
        None, "Size: nano (default), micro, mini, small, base, large or a published one "
        "(workbench list scales).", "NAME", names="scales", common=True,
    )  # fmt: skip
    corpus: Names = option(
        (), "Text: docs (built in), a file, a folder, a glob or a hub name; repeatable.", "NAME|PATH",
        names="corpora", repeated=True, common=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much every run is trained, and over how many seeds."""

    TITLE: ClassVar[str] = "How much is trained"

    budget: str | Mapping[str, float] | None = option(
        None, "Budget of a run: flops=1e17, tokens=2e6, words=1e8, steps=1000 or seconds=600.", "UNIT=AMOUNT",
        common=True,
    )  # fmt: skip
    match: str | None = option(
        None, "The unit of which all runs get the same amount: flops (default), tokens, words, steps or seconds. With "
        "none, each run gets the --budget as given, and the report is not at equal compute.", "UNIT|none",
    )  # fmt: skip
    seeds: int | Literal["auto"] | None = option(
        None, "Pre-training seeds (default 1); auto adds seeds until every declared comparison is decided, or "
        "cannot be.",
        "N|auto", least=1, most=1000, common=True,
    )  # fmt: skip
    most_seeds: int | None = option(None, "For --seeds auto: the largest number (default 12).", "N", least=2, most=1000)
    most_compute: str | Mapping[str, float] | None = option(
        None, "For --seeds auto: the most that all runs may spend, as flops=1e17 or seconds=36000.", "UNIT=AMOUNT"
    )
    most_epochs: float | None = option(
        None, "Refuse runs with more epochs of the text; BabyLM's challenge allows 10.", "NUMBER", least=1e-9, most=1e9
    )


@dataclass(frozen=True, kw_only=True)
class Measures:
    """On what the encoders are measured."""

    TITLE: ClassVar[str] = "What is measured"

    tasks: Names | None = option(
        None, "Tasks (default pairs:replace,linear:next), such as glue, CoLA,RTE, blimp, squad1, tag:FILE, my.csv, "
        "./my_task.py or none (workbench list tasks).", "NAMES",
        names="tasks", separated=True, common=True,
    )  # fmt: skip
    evaluate_at: str | None = option(
        None, "Points of training at which zero-shot and linear tasks are scored as well: auto (default: up to 6 on a "
        "log scale, for at most 5 % of a run's compute), log:N, words (BabyLM's schedule) or none.", "POINTS",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Computation:
    """How each run is computed on a machine; no part of what a run is."""

    TITLE: ClassVar[str] = "How it is computed"

    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.", "DEVICE", common=True)
    devices: int | None = option(
        None, "Number of devices that compute each run: GPUs, or processes on a CPU (default: 1, or as many as "
        "torchrun started).", "N", least=1, most=1024,
    )  # fmt: skip
    shard: bool = option(
        False, "Let each of several --devices hold a part of the weights, gradients and optimizer state (FSDP2), for "
        "models that do not fit on one.",
    )  # fmt: skip
    streams: int = option(
        1, "Number of runs that each process trains at the same time, on a GPU in CUDA streams.", "N", least=1, most=16
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "Precision: auto (bf16 on CUDA and, from a width of 64, on CPUs that have it), fp32 or bf16.",
        "NAME",
    )  # fmt: skip
    threads: int | None = option(None, "CPU threads of each run.", "N", least=1, most=4096)
    micro_batch: int | None = option(
        None, "Rows computed at once (default: all of a device's).", "ROWS", least=1, most=1 << 31
    )
    compile: bool = option(False, "Use torch.compile.")
    plain: bool = option(False, "Use plain PyTorch in fp32, without faster code, for comparison.")
    save_every: int | None = option(
        None, "Steps between checkpoints (default: one each 5 min).", "STEPS", least=1, most=1 << 31
    )
    track: Path | str | None = option(
        None, "Copy every run to a tracker while it is trained: wandb, trackio, tensorboard, mlflow, or a file "
        "./my_tracker.py (workbench list trackers).", "NAME|FILE", names="trackers",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine(Computation):
    """Where runs are computed, and how many at a time."""

    TITLE: ClassVar[str] = Computation.TITLE

    workers: int = option(
        1, "Runs at a time: processes that share the CPU or the GPUs.", "N", least=1, most=1024, common=True
    )
    launcher: Literal["local", "slurm"] = option(
        "local", "Where it is computed: local, or slurm for jobs of a cluster, as many at a time as --workers says; "
        "--set launch.time=04:00:00 and the like are options of the jobs.", "NAME",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where runs and reports are written."""

    TITLE: ClassVar[str] = "What is written"

    runs: Path | str = option(Path("runs"), "Folder of the run store.", "FOLDER", common=True)
    out: Path | str | None = option(None, "Folder for the report (default reports/NAME).", "FOLDER", common=True)


@dataclass(frozen=True, kw_only=True)
class Chosen(Output):
    """Which runs of a store a command tends."""

    names: Names = option(
        (), "Names of runs, or parts that no other run has.", "RUN", positional=True, names="runs", repeated=True
    )
    where: Names = option(
        (), "Only runs that meet this condition, as state=failed; repeatable.", "CONDITION", repeated=True
    )
    study: str | None = option(
        None, "Only runs of this study, by its name or its experiment's.", "NAME", names="records"
    )


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Who is told of the end of a study."""

    TITLE: ClassVar[str] = "What is written"

    notify: str | None = option(
        None, "Tell a person when the study ends, fails or is interrupted: desktop, webhook=URL or command=PROGRAM "
        "(default: the environment variable WORKBENCH_NOTIFY).", "WAY",
    )  # fmt: skip


# Of several bases, dataclasses take the fields of the last one first.
@dataclass(frozen=True, kw_only=True)
class SpecOptions(Measures, Amount, What):
    """The options that decide which runs a command has, and what they are measured on."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Notice, Output, Machine, SpecOptions):
    """The options that all commands which compare runs have in common."""


@dataclass(frozen=True)
class RunOptions(StudyOptions):
    """The options of `run` and `plan`."""

    experiment: str = option(
        MISSING, "Name or file of an experiment, such as ablation (workbench list experiments).", "EXPERIMENT",
        positional=True, names="experiments",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How a sweep searches its space."""

    TITLE: ClassVar[str] = "How it is searched"

    trials: int | None = option(
        None, "Trials of the search over --over, for each arm; each runs to its end.", "N", least=1, most=100_000,
        common=True,
    )  # fmt: skip
    sampler: Literal["tpe", "random", "qmc"] = option("tpe", "For a search: tpe, random or qmc (quasi-random).", "NAME")
    tuning_seeds: int = option(1, "For tune: pre-training seeds of each trial.", "N", least=1, most=1000)
    storage: str | None = option(
        None, "Storage of Optuna's copy of the trials (default: a journal in the run store).", "FILE|ADDRESS"
    )


@dataclass(frozen=True)
class SweepOptions(Trials, StudyOptions):
    """The options of `sweep`."""

    axis: str | None = option(
        None, "Name or file of an experiment, such as generator-size; or tune.", "EXPERIMENT", positional=True,
        names="experiments",
    )  # fmt: skip
    over: Settings | None = option(
        None, "Values to compare, as tying=none,all (all combinations), or with --trials the space to search, as "
        "optim.lr=1e-4..1e-3:log; repeatable.", "KEY=VALUES", names="keys", repeated=True, common=True,
    )  # fmt: skip


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `evaluate`."""

    encoder: Names = option(
        MISSING, "Folders of encoders in Hugging Face format, or names of models on the hub.", "FOLDER|NAME",
        positional=True, repeated=True,
    )  # fmt: skip
    tasks: Names | None = like(
        Measures, "tasks", help="Tasks (default probes), such as glue, CoLA,RTE, blimp, squad1, tag:FILE, my.csv or "
        "./my_task.py (workbench list tasks).",
    )  # fmt: skip
    scale: str | None = like(
        What, "scale", help="Scale whose settings of fine-tuning are used (default: the run's own, or the one nearest "
        "in size).",
    )  # fmt: skip
    _: KW_ONLY
    set: Settings | None = like(What, "set")
    runs: Path | str = like(Output, "runs")
    flops: float | None = option(
        None, "Training FLOPs of the model, as others state them (paper convention).", "NUMBER", least=1, most=1e30
    )
    allow_bin: bool = option(False, "Read pytorch_model.bin, by a reader that runs no code of the file.")
    device: str = like(Computation, "device")
    precision: Literal["auto", "fp32", "bf16"] = like(Computation, "precision")
    launcher: Literal["local", "slurm"] = like(Machine, "launcher")
    workers: int | None = like(
        Machine, "workers", default=None, help="With --launcher slurm: jobs at a time (default: all models)."
    )


@dataclass(frozen=True)
class SubmitOptions:
    """The options of `submit`."""

    name: str = option(MISSING, "Name of an experiment, or of a run (a part of it that no other run has).", "NAME",
                       positional=True, names="runs")  # fmt: skip
    out: Path | str = option(MISSING, "Zip file to write; its card is written beside it, as .json and .md.", "FILE")
    _: KW_ONLY
    runs: Path | str = like(Output, "runs")
    arm: str | None = option(None, "Arm of the experiment; its run with the best mean on dev is submitted.", "ARM")
    seed: int | None = option(None, "Fine-tuning seed (default: of each task the best one on dev).", "N", least=0)
    ensemble: int = option(
        1, "Average the N fine-tuning seeds of each task that are best on dev.", "N", least=1, most=1000
    )
    glue: str | None = option(
        None, "Folder of GLUE with its test files, or its name on the hub (default: the run's).", "FOLDER|NAME"
    )
    wnli_majority: bool = option(False, "Predict WNLI's most frequent training label; the card says so.")
    partial: bool = option(False, "Leave out files that cannot be made.")
    device: str = like(Computation, "device")
    precision: Literal["auto", "fp32", "bf16"] = like(Computation, "precision")
    threads: int | None = like(Computation, "threads")


def options_of(group: type) -> dict[str, Option]:
    """Return the options of a group by name, in the order of the help."""
    options = dict[str, Option]()
    for each in fields(group):
        if "option" in each.metadata:
            options[each.name] = each.metadata["option"]
    return options


def flag(name: str, end: str = "") -> str:
    """Return the name of an option on the command line, such as `--micro-batch`, and `end` behind it."""
    return f"--{name.replace('_', '-')}{end}"


def checked(group: type[G], values: Mapping[str, Any], spelled: Callable[[str], str] = "{}=".format) -> G:
    """Return a group with these values, each in the type of its field; None stands for the default.

    Names become tuples of texts, and numpy's numbers plain ones. `spelled` writes an option in messages. Raises
    InputError.
    """
    known, types, given = options_of(group), get_type_hints(group), dict[str, Any]()
    for name, value in values.items():
        if name not in known:
            raise InputError(f"unknown argument {name!r}{suggest(name, known)}")
        if value is not None:
            given[name] = _value(spelled(name), value, known[name], types[name])
    for each in fields(group):  # type: ignore[arg-type]
        if each.default is MISSING and each.name not in given:
            raise InputError(f"{spelled(each.name)} is missing: {known[each.name].help}")
    return group(**given)


def kinds_of(kind: Any) -> tuple[list[Any], tuple[str, ...]]:
    """Return the types that a field accepts besides None, and of a `Literal` the texts.

    Types are without what they hold: `list` for `list[str] | None`. A `Literal` has the type `str`.
    """
    kinds, choices = list[Any](), tuple[str, ...]()
    for each in get_args(kind) if get_origin(kind) in UNIONS else (kind,):
        place = get_origin(each) or each
        if place is Literal:
            choices = get_args(each)
        kinds.append(str if place is Literal else place)
    return kinds, choices


def _value(name: str, value: Any, declared: Option, kind: Any) -> Any:
    """Return the value of an option in one of the types of its field. Raises InputError."""
    kinds, choices = kinds_of(kind)
    if isinstance(value, bool):
        usable = bool in kinds
    elif isinstance(value, str | PathLike) and Sequence in kinds:
        text = fspath(value)
        return tuple(filter(None, map(str.strip, text.split(",")))) if declared.separated else (text,)
    elif isinstance(value, str | PathLike) and Path in kinds:
        return Path(value)
    elif isinstance(value, str):
        usable = str in kinds and value in (choices or (value,))
    elif isinstance(value, Mapping):
        usable = Mapping in kinds and {str}.issuperset(map(type, value))
    elif isinstance(value, Real):
        number: int | float = int(value) if isinstance(value, Integral) and int in kinds else float(value)
        if type(number) in kinds and declared.least <= number <= declared.most:
            return number
        usable = False
    else:
        usable, several = isinstance(value, Iterable) and Sequence in kinds, list[str]()
        for each in value if usable else ():
            usable = usable and isinstance(each, str | PathLike)
            several += [fspath(each)] if usable else []
        if usable:
            return tuple(several)
    if usable:
        return value
    raise InputError(f"{name}{value!r:.80} is not {_usable(declared, kinds, choices)}")


def _usable(declared: Option, kinds: Sequence[Any], choices: Sequence[str]) -> str:
    """Return which values an option takes, in words."""
    bounds = f" from {declared.least:,.12g}" if declared.least > -math.inf else ""
    bounds += f" to {declared.most:,.12g}" if declared.most < math.inf else ""
    several = Sequence in kinds
    example = {"steps": 1000} if str in kinds else {"optim.lr": 1e-3}
    words = {
        int: f"a whole number{bounds}", float: f"a number{bounds}", bool: "True or False",
        str: " or ".join(choices) if choices else "a text", Path: "a name" if several else "a path",
        Sequence: "a list of names", Mapping: f"a mapping, such as {example}",
    }  # fmt: skip
    if Path in kinds:
        kinds = [each for each in kinds if each is not str]
    return " or ".join(words[each] for each in words if each in kinds)


def words(options: Any) -> list[str]:
    """Return the options of a group that differ from their defaults as words of the command line."""
    typed: list[str] = []
    for each in fields(options):
        value, declared = getattr(options, each.name), each.metadata["option"]
        if value == each.default or declared.positional:
            continue
        if isinstance(value, Mapping):
            values = [f"{key}={text_of(one)}" for key, one in value.items()]
        else:
            values = list(value) if isinstance(value, tuple) and declared.repeated else [text_of(value)]
        typed += [flag(each.name)] if value is True else [word for one in values for word in (flag(each.name), one)]
    return typed


def text_of(value: Any) -> str:
    """Return a value as the command line takes it: several joined by commas, None as `unset`."""
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return "unset" if value is None else str(value)
