"""The registry of pre-training objectives: the files of this folder, installed packages, and files given by path.

An objective is a module with three names: `Options` (a subclass of `workbench.spec.parts.Part`), `cost(spec) -> Flops`,
which returns the operations of one forward pass over one row, and `Objective(encoder, spec, options)`, a torch module
from Batch to StepLoss, whose losses are means (`tensors.Mean`), and whose attribute `encoder` is the exported encoder.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from workbench.errors import InputError, suggest
from workbench.models.flops import Flops
from workbench.spec.parts import CONVENTIONS, Convention, PairKind, Part
from workbench.spec.run_spec import RunSpec, flat, parse_part
from workbench.spec.stages import ResolvedSpec
from workbench.spec.user_code import blaming
from workbench.store.atomic import user_path

if TYPE_CHECKING:
    from torch import nn

    from workbench.models.encoder import Encoder

GROUP = "workbench.objectives"
LARGEST = 16 << 20  # bytes of the file of an objective
PARTS = ("Options", "cost", "Objective")
MOST = 1e100  # operations of one row; a larger number is a mistake, and products with it may overflow a float
_files: dict[str, Path] = {}  # files of objectives that were given by path in this process, by `name@hash`


@dataclass(frozen=True)
class Entry:
    """One known objective: its name, the first line of its docstring, and "built in" or the package that it is from."""

    name: str
    summary: str
    source: str


def listing() -> list[Entry]:
    """Return every objective of this folder and of installed packages, without importing any."""
    known = _built_in()
    here = [Entry(name, _summary(path), "built in") for name, path in known.items()]
    others = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in known:
            continue
        path = _module_file(point.value)
        owner = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        others.append(Entry(point.name, _summary(path) if path else "", owner))
    return here + others


@functools.cache
def _built_in() -> dict[str, Path]:
    """Return the file of each objective of this folder, by the name of the objective."""
    return {path.stem.replace("_", "-"): path for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))}


def names() -> list[str]:
    """Return the names of all objectives of this folder and of installed packages."""
    return [entry.name for entry in listing()]


def find(word: str) -> tuple[str, str]:
    """Return the name and source hash of the objective in `--objective`, a known name or a path to a Python file.

    The hash is "" for a built-in objective. Raises InputError for an unknown name or a missing file.
    """
    if word.endswith(".py") or "/" in word:
        path = user_path(word, "--objective")
        if not path.is_file():
            raise InputError(f"--objective {word}: there is no such file")
        if path.stat().st_size > LARGEST:
            raise InputError(f"--objective {word} has {path.stat().st_size:,} bytes, which no Python file has")
        source = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        name = path.stem.replace("_", "-").lower()
        _files[f"{name}@{source}"] = path.resolve()
        return name, source
    if word in _built_in():
        return word, ""
    if word not in names():
        raise InputError(f"unknown objective {word!r}{suggest(word, names())}")
    path_of = _module_file(next(p.value for p in entry_points(group=GROUP) if p.name == word))
    return word, hashlib.sha256(path_of.read_bytes()).hexdigest()[:16] if path_of else word


def source_file(spec: RunSpec) -> Path | None:
    """Return the file of an objective that was given by path, to be copied into its run; None for other objectives."""
    return _files.get(f"{spec.objective}@{spec.source}")


def keep_source(spec: RunSpec, path: Path) -> None:
    """Use the copy at `path`, in a run's folder, as the file of the spec's objective, unless one was given by path.

    A copy whose hash differs from that of the spec is not used.
    """
    if not spec.source or not path.is_file() or path.stat().st_size > LARGEST:
        return
    if hashlib.sha256(path.read_bytes()).hexdigest()[:16] == spec.source:
        _files.setdefault(f"{spec.objective}@{spec.source}", path.resolve())


def load(spec: RunSpec) -> ModuleType:
    """Return the module of the spec's objective. Raises InputError if it cannot be loaded or lacks a required name."""
    path = source_file(spec)
    if path is not None:
        module = _load_file(path, f"workbench_objective_{spec.source}")
    elif spec.source:
        point = next((p for p in entry_points(group=GROUP) if p.name == spec.objective), None)
        if point is None:
            raise InputError(
                f"objective {spec.objective!r} is defined in a file that this command does not name; give it with "
                f"--objective FILE"
            )
        with blaming(f"{spec.objective!r} of {point.value}", kind="objective"):
            module = importlib.import_module(point.module)
    else:
        find(spec.objective)
        module = importlib.import_module(f"{__name__}.{spec.objective.replace('-', '_')}")
    missing = [part for part in PARTS if not hasattr(module, part)]
    if missing:
        raise InputError(f"{file_of(module)} has no {' and no '.join(missing)}; an objective needs {', '.join(PARTS)}")
    if not (isinstance(module.Options, type) and issubclass(module.Options, Part)):
        raise InputError(
            f"{file_of(module)}: Options must be a subclass of workbench.spec.parts.Part, as in `class Options(Part):`"
        )
    causal, pairs = getattr(module, "CAUSAL", False), getattr(module, "PAIRS", None)
    with blaming(file_of(module), "CAUSAL or PAIRS raised"):  # when they are shown
        if not isinstance(causal, bool):
            raise InputError(f"{file_of(module)}: CAUSAL is {causal!r:.40}, not True or False")
        if pairs is not None and str(pairs) not in get_args(PairKind):
            raise InputError(f"{file_of(module)}: PAIRS is {pairs!r:.40}, not one of {', '.join(get_args(PairKind))}")
    return module


def cost(spec: ResolvedSpec) -> Flops:
    """Return the operations of one forward pass over one row, computed by `cost` of the spec's objective.

    Raises InputError, which names the file, if `cost` fails or returns anything but numbers of operations.
    """
    module = load(spec)
    with blaming(file_of(module), "cost(spec) raised"):
        return _checked(module.cost(spec), spec.budget.convention, file_of(module))


def _checked(flops: Any, convention: Convention, file: str) -> Flops:
    """Return what `cost` in an objective's file returned. Raises InputError unless it is numbers of operations."""
    if not isinstance(flops, Flops):
        raise InputError(f"{file}: cost(spec) returns {flops!r:.80}, not a workbench.models.flops.Flops")
    whole = (flops.paper, flops.sparse, flops.matmul)
    still: Any = flops.still
    if not isinstance(still, tuple) or len(still) != len(whole):
        raise InputError(f"{file}: cost(spec) holds {still!r:.40}, not a number of operations")
    for amount in (*whole, *still):
        if not isinstance(amount, (int, float, Fraction)) or not 0 <= amount <= MOST:
            raise InputError(f"{file}: cost(spec) holds {amount!r:.40}, not a number of operations")
    for amount, part in zip(whole, still, strict=True):
        if part > amount:
            raise InputError(
                f"{file}: cost(spec) holds {part!r:.40} operations without a backward pass, "
                f"more than all {amount!r:.40} operations"
            )
    if dict(zip(CONVENTIONS, whole, strict=True))[convention] == 0:
        raise InputError(f"{file}: cost(spec) holds 0 operations under {convention}, the convention of the budget")
    return flops


def build(spec: RunSpec, encoder: Encoder) -> nn.Module:
    """Return the spec's objective as a torch module that contains the encoder.

    Raises InputError if it is not a torch module with an encoder, or if the encoder's family is always causal and the
    objective is not. An error in its `__init__` is raised unchanged, so that only this run fails.
    """
    from torch import nn

    from workbench.models.families import family_of

    module = load(spec)
    if family_of(spec.encoder).always_causal and not is_causal(spec):
        raise InputError(
            f"encoder.family={spec.encoder.family} has no position that sees a later one, which {spec.objective} "
            f"needs; choose --objective causal-lm or another family"
        )
    objective = module.Objective(encoder, spec, module.Options(**spec.options))
    if not isinstance(objective, nn.Module) or not isinstance(getattr(objective, "encoder", None), nn.Module):
        raise InputError(
            f"{file_of(module)}: Objective(encoder, spec, options) must be a torch module that keeps the encoder as "
            f"`self.encoder`"
        )
    return objective


def file_of(module: ModuleType) -> str:
    """Return the file of a module, or its name if it has no file, for messages."""
    return module.__file__ or module.__name__


def with_options(spec: RunSpec) -> ResolvedSpec:
    """Return the spec with all options of its objective, checked and with defaults; the same for its parent run.

    Raises InputError for options that the objective does not accept.
    """
    module = load(spec)
    with blaming(file_of(module), "Options raised"):
        options = parse_part(module.Options, spec.options, "options").model_dump(mode="json")
        json.dumps(options)  # as spec.json holds them, which fails for integers of more than 4,300 digits
    spec = spec.model_copy(update={"options": options})
    if is_causal(spec):
        spec = _causal(spec)
    elif spec.tasks.lm_weight:
        raise InputError(
            f"tasks.lm_weight={spec.tasks.lm_weight:g}: {spec.objective} does not learn to predict the next token; "
            f"set tasks.lm_weight=0, or choose --objective causal-lm"
        )
    if pairs := getattr(module, "PAIRS", None):
        spec = _paired(spec, pairs)
    parent = spec.parent()
    if spec.start is None or parent is None:
        return ResolvedSpec(spec)
    if parent.objective != spec.objective:
        parent = parent.replace(source=find(parent.objective)[1])
    parent = with_options(parent)
    given = {k: v for k, v in flat(spec.start.parent).items() if k.partition(".")[0] not in ("options", "start")}
    given |= {"options": parent.options, "source": parent.source}
    if parent.encoder.causal != spec.encoder.causal:
        given["encoder.causal"] = parent.encoder.causal
    if parent.data.pairs != spec.data.pairs:
        given["data.pairs"] = parent.data.pairs
    if parent.start is not None:
        given["start"] = parent.start.model_dump()
    return ResolvedSpec(spec.replace(start=spec.start.model_dump() | {"parent": given}))


def is_causal(spec: RunSpec) -> bool:
    """Return whether the spec's objective needs an encoder in which no position sees a later one (`CAUSAL`)."""
    return bool(getattr(load(spec), "CAUSAL", False))


def _causal(spec: RunSpec) -> RunSpec:
    """Return the spec with a causal encoder. Raises InputError if `encoder.causal` is set to false."""
    if spec.encoder.causal is False:
        raise InputError(f"encoder.causal=false: {spec.objective} needs an encoder whose positions see no later one")
    return spec.changed({"encoder.causal": True})


def _paired(spec: RunSpec, pairs: PairKind) -> RunSpec:
    """Return the spec with rows of these pairs. Raises InputError if `data.pairs` is set to others."""
    if spec.data.pairs not in (None, pairs):
        raise InputError(f"data.pairs={spec.data.pairs}: {spec.objective} needs data.pairs={pairs}; leave it out")
    return spec.changed({"data.pairs": pairs})


class _SourceAlone(SourceFileLoader):
    """A loader that neither reads nor writes a compiled copy of a file, since its folder may be that of a run."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, on which importlib uses the source alone."""
        raise OSError


def _load_file(path: Path, name: str) -> ModuleType:
    """Return the module in a file, imported under `name`. Raises InputError if the import fails."""
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path, loader=_SourceAlone(name, str(path)))
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        with blaming(str(path)):
            module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_file(dotted: str) -> Path | None:
    """Return the file of the module in an entry point's value, without importing it; None if there is none."""
    try:
        module_spec = importlib.util.find_spec(dotted.partition(":")[0])
    except ModuleNotFoundError:
        return None
    return Path(module_spec.origin) if module_spec and module_spec.origin else None


def _summary(path: Path) -> str:
    """Return the first line of the docstring in a file; "" if the file cannot be read or parsed."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (SyntaxError, OSError):
        return ""
    return text.partition("\n")[0]
