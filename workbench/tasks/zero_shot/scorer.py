"""A trained objective, put together again from what its run exported: `encoder` and `heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench import objectives
from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.models.export import WEIGHTS
from workbench.models.sentence_scores import Scorer
from workbench.models.unigram import WordFrequencies
from workbench.spec.run_spec import RunSpec
from workbench.store.run_directory import home_of

DEFAULT = "default"  # the name under which an objective's own `score` is asked for


@dataclass(frozen=True)
class Scoring:
    """How the sentences of one run are scored: by the scorer `name`, and by `beside` for comparison."""

    spec: RunSpec
    model: nn.Module
    name: str
    scorer: Scorer
    beside: Mapping[str, Scorer]


def load(encoder: Path, asked: Sequence[str], device: str) -> Scoring:
    """Put the objective of a run together from its encoder's folder and what lies beside.

    `asked` are names of scorers: the first that the objective has counts. Raises InputError where there is none.
    """
    spec, model = put_together(encoder, device)
    known = _scorers(model)
    if not known:
        raise InputError(
            f"the objective {spec.objective} defines no score(ids, attention), so it cannot score sentences"
        )
    usual = next(iter(known))
    names = list(dict.fromkeys(usual if name == DEFAULT else name for name in asked))
    there = [name for name in names if name in known]
    if not there:
        raise InputError(f"tasks.scorers={','.join(asked)}: {spec.objective} has {', '.join(known)} and none of these")
    return Scoring(spec, model, there[0], known[there[0]], {name: known[name] for name in there[1:]})


def put_together(encoder: Path, device: str) -> tuple[RunSpec, nn.Module]:
    """Return the spec and the objective, with its weights, of the run that an encoder's folder belongs to.

    Raises InputError where the folder is of no run, or weights are missing or damaged.
    """
    run, place = home_of(encoder)
    if not (run.path / "spec.json").is_file():
        raise InputError(
            f"{encoder}: sentences are scored with the heads of pre-training, so name the folder encoder of a run"
        )
    spec = run.spec()
    heads = encoder.parent / "heads"
    if not (heads / WEIGHTS).is_file():
        raise InputError(
            f"{run.run_id} has no folder heads, without which it cannot score sentences: an older version finished "
            f"it, or the folder was deleted; train it again in another store"
        )
    run.check_encoder(place)
    run.check_heads(place)
    objectives.keep_source(spec, run.path / "objective.py")
    model = objectives.build(spec, build_encoder(spec))
    _fill(model, encoder, heads, spec)
    return spec, model.to(device).eval().requires_grad_(False)


def _scorers(model: nn.Module) -> dict[str, Scorer]:
    """Return the ways in which an objective scores sentences, its own first; none where it defines none."""
    if callable(several := getattr(model, "scorers", None)):
        return dict(several())
    if callable(score := getattr(model, "score", None)):
        return {"score": lambda s: score(s.ids, s.attention)}
    return {}


def _fill(model: nn.Module, encoder: Path, heads: Path, spec: RunSpec) -> None:
    """Copy the exported weights into an objective, whose disentangled table becomes the one table that was exported."""
    from safetensors.torch import load_file

    body: nn.Module = model.encoder.model  # type: ignore[union-attr, assignment]
    for part in body.modules():
        if parametrize.is_parametrized(part, "weight"):
            parametrize.remove_parametrizations(part, "weight")
    own = {id(weight) for weight in body.parameters()}
    wanted: dict[str, Tensor] = {name: weight for name, weight in model.named_parameters() if id(weight) not in own}
    for name, module in model.named_modules():
        if isinstance(module, WordFrequencies):
            wanted[f"{name}.log_share"], module.counted = module.log_share, True
    _copy(dict(body.named_parameters()), load_file(encoder / WEIGHTS), spec)
    _copy(wanted, load_file(heads / WEIGHTS), spec)


def _copy(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], spec: RunSpec) -> None:
    with torch.no_grad():
        for name, weight in wanted.items():
            if name not in given or given[name].shape != weight.shape:
                raise InputError(f"{spec.name}: the exported weights lack {name}, so it cannot score sentences")
            weight.copy_(given[name])
