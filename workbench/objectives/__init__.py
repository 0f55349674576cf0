"""The registry of pre-training objectives: the files of this folder, installed packages, and files given by path.

An objective is a module with three names: `Options` (a subclass of `workbench.spec.parts.Part`), `cost(spec) -> Flops`,
which returns the operations of one forward pass over one row, and `Objective(encoder, spec, options)`, a torch module
from Batch to StepLoss, whose losses are means (`tensors.Mean`), and whose attribute `encoder` is the exported encoder.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from workbench.errors import InputError, blaming
from workbench.models import families
from workbench.models.flops import Flops
from workbench.registry import Plugs, check_options, options_of
from workbench.registry import file_of as file_of
from workbench.spec.parts import CONVENTIONS, Convention, PairKind
from workbench.spec.run_spec import RunSpec, flat
from workbench.spec.stages import ResolvedSpec

if TYPE_CHECKING:
    from torch import nn

    from workbench.models.encoder import Encoder

PARTS = ("Options", "cost", "Objective")
MOST = 1e100  # operations of one row; a larger number is a mistake, and products with it may overflow a float
PLUGS = Plugs("objective", "--objective", __name__, Path(__file__).parent, "workbench.objectives", PARTS)
listing, find = PLUGS.listing, PLUGS.find  # all known objectives; one objective's name and source hash


def names() -> list[str]:
    """Return the names of all objectives of this folder and of installed packages."""
    return [*PLUGS.built_in, *PLUGS.installed()]


def source_files(spec: RunSpec) -> dict[str, Path]:
    """Return the files of the objective and the encoder's family that were given by path, by their names in a run."""
    files = {"objective.py": PLUGS.file(spec.source), "encoder.py": families.PLUGS.file(spec.encoder.source)}
    return {name: path for name, path in files.items() if path is not None}


def find_file(name: str, file: str) -> None:
    """Make the file of an objective or a family known in this process; `name` is its name in a run."""
    (families.PLUGS if name == "encoder.py" else PLUGS).find(file)


def keep_sources(spec: RunSpec, folder: Path) -> None:
    """Use the copies in a run's folder as the files of its objective and its encoder's family.

    Files that were given by path go first, and a copy whose hash differs from that of the spec is not used.
    """
    PLUGS.keep(spec.source, folder / "objective.py")
    families.PLUGS.keep(spec.encoder.source, folder / "encoder.py")


def load(spec: RunSpec) -> ModuleType:
    """Return the module of the spec's objective. Raises InputError if it cannot be loaded or lacks a required name."""
    module = PLUGS.load(spec.objective, spec.source)
    if not spec.source:
        return module
    check_options(module.Options, file_of(module))
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
        flops: Flops = module.cost(spec)
        return _checked(flops, spec.budget.convention, file_of(module)) if spec.source else flops


def _checked(flops: Any, convention: Convention, file: str) -> Flops:
    """Return the FLOPs from `cost` of an objective's file. Raises InputError if they are not numbers of operations."""
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

    module = load(spec)
    if encoder.family.CAUSAL == "always" and not is_causal(spec):
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


def with_options(spec: RunSpec) -> ResolvedSpec:
    """Return the spec with all options of its objective, checked and with defaults; the same for its parent run.

    Raises InputError for options that the objective does not accept.
    """
    module = load(spec)
    spec = spec.model_copy(update={"encoder": families.resolved(spec.encoder)})
    spec = spec.replace(options=options_of(module.Options, spec.options, "options", file_of(module)))
    if getattr(module, "CAUSAL", False):
        if spec.encoder.causal is False:
            raise InputError(f"encoder.causal=false: {spec.objective} needs positions that see no later one")
        spec = spec.changed({"encoder.causal": True})
    elif spec.tasks.lm_weight:
        raise InputError(
            f"tasks.lm_weight={spec.tasks.lm_weight:g}: {spec.objective} does not learn to predict the next token; "
            f"set tasks.lm_weight=0, or choose --objective causal-lm"
        )
    if pairs := getattr(module, "PAIRS", None):
        if spec.data.pairs not in (None, pairs):
            raise InputError(f"data.pairs={spec.data.pairs}: {spec.objective} needs data.pairs={pairs}; leave it out")
        spec = spec.changed({"data.pairs": pairs})
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
