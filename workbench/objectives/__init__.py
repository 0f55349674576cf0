"""The folder is the registry: a file is an objective. Installed packages and plain files may add to it.

An objective is a module of three names: `Options` (a `workbench.spec.parts.Part`), `cost(spec) -> Flops` of one forward
pass over one row, and `Objective(encoder, spec, options)`, a torch module from Batch to StepLoss whose `.encoder` is
kept.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, suggest
from workbench.models.flops import Flops
from workbench.objectives import _former_names
from workbench.spec.parts import CONVENTIONS, Part
from workbench.spec.run_spec import RunSpec, flat, parse_part
from workbench.spec.stages import ResolvedSpec
from workbench.spec.user_code import blaming
from workbench.store.atomic import user_path

if TYPE_CHECKING:
    from torch import nn

    from workbench.models.encoder import Encoder

GROUP = "workbench.objectives"
PARTS = ("Options", "cost", "Objective")
MOST = 1e100  # operations of a row; numbers far above what floats can hold are a mistake
_files: dict[str, Path] = {}  # objectives given as files in this process, by name and hash


@dataclass(frozen=True)
class Entry:
    """One known objective: its name, the first line of its docstring, and the file or package it comes from."""

    name: str
    summary: str
    source: str


def listing() -> list[Entry]:
    """Every objective that can be named, without importing any."""
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
    """The file of each objective of this folder, by its name."""
    return {path.stem.replace("_", "-"): path for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))}


def names() -> list[str]:
    """Names of all objectives in the folder and in installed packages."""
    return [entry.name for entry in listing()]


def find(word: str) -> tuple[str, str]:
    """The name and source hash of what `--objective` was given: a known name or a path to a Python file.

    The hash is empty for those built in. Raises InputError for an unknown name or a missing file.
    """
    if word.endswith(".py") or "/" in word:
        path = user_path(word, "--objective")
        if not path.is_file():
            raise InputError(f"--objective {word}: there is no such file")
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
    """The file of an objective that was given as a path, to be kept beside its run."""
    return _files.get(f"{spec.objective}@{spec.source}")


def keep_source(spec: RunSpec, path: Path) -> None:
    """Read the spec's objective from its copy in a run's folder, where the file itself was not named here."""
    if spec.source and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()[:16] == spec.source:
        _files.setdefault(f"{spec.objective}@{spec.source}", path.resolve())


def load(spec: RunSpec) -> ModuleType:
    """The module of the spec's objective. Raises InputError if it cannot be loaded or lacks one of its three parts."""
    path = source_file(spec)
    if path is not None:
        module = _load_file(path, f"workbench_objective_{spec.source}")
    elif spec.source:
        point = next((p for p in entry_points(group=GROUP) if p.name == spec.objective), None)
        if point is None:
            raise InputError(
                f"objective {spec.objective!r} came from a file; name the file again with --objective FILE"
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
            f"{file_of(module)}: Options must be a class made from workbench.spec.parts.Part, "
            "as in `class Options(Part):`"
        )
    return module


def cost(spec: ResolvedSpec) -> Flops:
    """Return what the spec's objective says one forward pass over one row costs.

    Raises InputError naming the file where its `cost` fails, or gives something other than numbers of operations.
    """
    module = load(spec)
    with blaming(file_of(module), "cost(spec) raised"):
        found = module.cost(spec)
    if not isinstance(found, Flops):
        raise InputError(f"{file_of(module)}: cost(spec) gives {found!r:.80}, not a workbench.models.flops.Flops")
    whole = (found.paper, found.sparse, found.matmul)
    still: Any = found.still
    if not isinstance(still, tuple) or len(still) != len(whole):
        raise InputError(f"{file_of(module)}: cost(spec) holds {still!r:.40}, not a number of operations")
    for amount in (*whole, *still):
        if not isinstance(amount, (int, float, Fraction)) or not 0 <= amount <= MOST:
            raise InputError(f"{file_of(module)}: cost(spec) holds {amount!r:.40}, not a number of operations")
    for amount, part in zip(whole, still, strict=True):
        if part > amount:
            raise InputError(
                f"{file_of(module)}: cost(spec) holds {part!r:.40} operations without a backward pass, "
                f"of {amount!r:.40}"
            )
    convention = spec.budget.convention
    if dict(zip(CONVENTIONS, whole, strict=True))[convention] == 0:
        raise InputError(f"{file_of(module)}: cost(spec) holds 0 under {convention}, by which the budget is counted")
    return found


def build(spec: RunSpec, encoder: Encoder) -> nn.Module:
    """Return the spec's objective around an encoder. What its `__init__` raises passes: one run fails by it.

    Raises InputError for something other than a module with an encoder.
    """
    from torch import nn

    module = load(spec)
    made = module.Objective(encoder, spec, module.Options(**spec.options))
    if not isinstance(made, nn.Module) or not isinstance(getattr(made, "encoder", None), nn.Module):
        raise InputError(
            f"{file_of(module)}: Objective(encoder, spec, options) must be a torch module that keeps the encoder as "
            f"`self.encoder`"
        )
    return made


def file_of(module: ModuleType) -> str:
    """Return the file of a module, to be named in messages."""
    return module.__file__ or module.__name__


def with_options(spec: RunSpec) -> ResolvedSpec:
    """The spec with the objective's options checked and written out in full, and its parent's. Raises InputError."""
    module = load(spec)
    with blaming(file_of(module), "Options raised"):
        options = parse_part(module.Options, spec.options, "options").model_dump(mode="json")
    spec = spec.replace(options=options)
    if getattr(module, "CAUSAL", False):
        spec = _causal(spec)
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
    if parent.start is not None:
        given["start"] = parent.start.model_dump()
    return ResolvedSpec(spec.replace(start=spec.start.model_dump() | {"parent": given}))


def _causal(spec: RunSpec) -> RunSpec:
    """Return the spec with a causal encoder. Raises InputError if it is to be another."""
    if spec.encoder.causal is False:
        raise InputError(f"encoder.causal=false: {spec.objective} needs an encoder whose positions see no later one")
    return spec.changed({"encoder.causal": True})


def _load_file(path: Path, name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    _former_names.make_importable()
    try:
        with blaming(str(path)):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_file(dotted: str) -> Path | None:
    try:
        found = importlib.util.find_spec(dotted.partition(":")[0])
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


def _summary(path: Path) -> str:
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (SyntaxError, OSError):
        return ""
    return text.partition("\n")[0]
