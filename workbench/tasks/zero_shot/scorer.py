"""Trained objective, rebuilt from what its run exported (`encoder` and `heads`), as a scorer of sentences."""

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
from workbench.models.ngram_generators import Ngrams, WordFrequencies
from workbench.models.sentence_scores import Scorer
from workbench.spec.run_spec import RunSpec
from workbench.store.run_directory import home_of
from workbench.training.plan import outline

DEFAULT = "default"  # the name that selects an objective's own scorer, and what stands beside it
# With a generator as wide as the encoder, the originality of a detector may be far below what both know together
# (docs/howto/tasks.md), so neither stands alone. Beside generator-pll, electric costs one more pass.
BESIDE = {"originality": ("electric",)}


@dataclass(frozen=True)
class Scoring:
    """How the sentences of one model are scored: by the scorer `name`, and by those in `beside` for comparison.

    `model` is the model's name, `length` the number of tokens that it reads, `hidden` the width of its layers, and
    `vocabulary` the number of its token ids.
    """

    model: str
    length: int
    hidden: int
    vocabulary: int
    name: str
    scorer: Scorer
    beside: Mapping[str, Scorer]


def of_folder(encoder: Path, asked: Sequence[str], device: str) -> Scoring:
    """Return how the sentences of an encoder in any folder are scored: of a run by `load`, else by the file's own head.

    `asked` is as for `load`. Raises InputError if there is nothing to score with.
    """
    if (home_of(encoder)[0].path / "spec.json").is_file() or not (encoder / "config.json").is_file():
        return load(encoder, asked, device)
    from workbench.tasks.zero_shot import published_scorer

    found = published_scorer.load(encoder, device)
    name, scorer, beside = _chosen(asked, found.scorers, str(encoder))
    return Scoring(str(encoder), found.length, found.hidden, found.vocabulary, name, scorer, beside)


def load(encoder: Path, asked: Sequence[str], device: str) -> Scoring:
    """Rebuild the objective of a run from its encoder's folder and the folder `heads` beside it.

    `asked` are names of scorers; the first that the objective has gives the score. Raises InputError if it has
    none.
    """
    spec, model = put_together(encoder, device)
    known = _scorers(model)
    if not known:
        raise InputError(
            f"the objective {spec.objective} defines no score(ids, attention), so it cannot score sentences"
        )
    name, scorer, beside = _chosen(asked, known, f"the objective {spec.objective}")
    return Scoring(spec.name, spec.data.length, spec.encoder.hidden, spec.encoder.vocab, name, scorer, beside)


def check(spec: RunSpec) -> None:
    """Raise InputError if a run's objective can score sentences, but has none of the scorers in `tasks.scorers`.

    Commands call this before training. An objective without any scorer can still be measured by other tasks.
    """
    if DEFAULT not in spec.tasks.scorers and (known := _scorers(outline(spec))):
        _chosen(spec.tasks.scorers, known, f"the objective {spec.objective}")


def _chosen(asked: Sequence[str], known: Mapping[str, Scorer], of: str) -> tuple[str, Scorer, dict[str, Scorer]]:
    """Return the name of the first scorer that is asked for and known, the scorer, and the others by their names.

    Beside a default scorer in BESIDE stand those named there. Raises InputError if none of them is known.
    """
    default = next(iter(known))
    own = (default, *BESIDE.get(default, ()))
    names = list(dict.fromkeys(each for name in asked for each in (own if name == DEFAULT else (name,))))
    available = [name for name in names if name in known]
    if not available:
        raise InputError(f"--set tasks.scorers={','.join(asked)}: {of} has none of these; it has {', '.join(known)}")
    return available[0], known[available[0]], {name: known[name] for name in available[1:]}


def put_together(encoder: Path, device: str) -> tuple[RunSpec, nn.Module]:
    """Return the spec and the objective, with its trained weights, of the run that an encoder's folder belongs to.

    Raises InputError if the folder belongs to no run, or if weights are missing or damaged.
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
            f"{run.run_id} has no folder heads, without which sentences cannot be scored: it was trained by an older "
            f"version, or the folder was deleted; train it again in another store"
        )
    run.check_encoder(place)
    run.check_heads(place)
    objectives.keep_source(spec, run.path / "objective.py")
    model = objectives.build(spec, build_encoder(spec))
    _fill(model, encoder, heads, spec)
    return spec, model.to(device).eval().requires_grad_(False)


def _scorers(model: nn.Module) -> dict[str, Scorer]:
    """Return the scorers that an objective defines, its default first; none if it defines none."""
    if callable(several := getattr(model, "scorers", None)):
        return dict(several())
    if callable(score := getattr(model, "score", None)):
        return {"score": lambda s: score(s.ids, s.attention)}
    return {}


def _fill(model: nn.Module, encoder: Path, heads: Path, spec: RunSpec) -> None:
    """Copy the exported weights into an objective.

    A disentangled embedding, a sum of two tables, is replaced by the one table that was exported.
    """
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
    exported = load_file(heads / WEIGHTS)
    _copy(dict(body.named_parameters()), load_file(encoder / WEIGHTS), spec)
    _copy(wanted, exported, spec)
    for name, module in model.named_modules():
        if isinstance(module, Ngrams):
            module.count(*(_named(exported, f"{name}.{table}", spec) for table in ("pairs", "counts")))


def _copy(weights: Mapping[str, Tensor], exported: Mapping[str, Tensor], spec: RunSpec) -> None:
    """Copy weights by name. Raises InputError if one is missing or has another shape."""
    with torch.no_grad():
        for name, weight in weights.items():
            if _named(exported, name, spec).shape != weight.shape:
                raise _lacking(name, spec)
            weight.copy_(exported[name])


def _named(exported: Mapping[str, Tensor], name: str, spec: RunSpec) -> Tensor:
    """Return an exported tensor. Raises InputError if it is missing."""
    if name not in exported:
        raise _lacking(name, spec)
    return exported[name]


def _lacking(name: str, spec: RunSpec) -> InputError:
    return InputError(f"{spec.name}: the exported weights lack {name}, so sentences cannot be scored")
