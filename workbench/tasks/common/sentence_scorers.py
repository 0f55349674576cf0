"""Trained objective, rebuilt from what its run exported (`encoder` and `heads`), as a scorer of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrize

from workbench import objectives
from workbench.data import hugging_face, model_files
from workbench.data.model_files import check_weights, regular_files
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.models.generators import Ngrams, WordFrequencies
from workbench.models.heads import Scorer, pseudo_log_likelihood, summed
from workbench.models.own_layout import WEIGHTS, exported_weights
from workbench.spec.parts import Special
from workbench.spec.run_spec import RunSpec
from workbench.store.run_directory import home_of
from workbench.tasks.common.encoder_folders import (
    REFUSED,
    configured,
    from_files,
    is_causal,
    load_encoder,
    origin_of,
    row_length,
)
from workbench.tasks.common.token_rows import check_tokens
from workbench.training.plan import outline

DEFAULT = "default"  # the name that selects an objective's own scorer, and what stands beside it
# With a generator as wide as the encoder, the originality of a detector may be far below what both know together
# (docs/howto/tasks.md), so neither stands alone. Beside generator-pll, electric costs one more pass.
BESIDE = {"originality": ("electric",)}


@dataclass(frozen=True)
class Scoring:
    """How the sentences of one model are scored: by the scorer `name`, and by others `beside` it for comparison."""

    model: str  # its name
    length: int  # tokens that it reads
    hidden: int  # width of its layers
    vocabulary: int  # token ids
    name: str
    scorer: Scorer
    beside: Mapping[str, Scorer]


def of_folder(encoder: Path, asked: Sequence[str], device: str) -> Scoring:
    """Return how an encoder in any folder scores: by the objective of its run, else by its own head.

    `asked` are names of scorers; the first that the model has gives the score. Raises InputError if it has none.
    """
    if not (home_of(encoder)[0].path / "spec.json").is_file() and (encoder / "config.json").is_file():
        length, hidden, vocabulary, known = load_published(encoder, device)
        return Scoring(str(encoder), length, hidden, vocabulary, *_chosen(asked, known, str(encoder)))
    spec, model = put_together(encoder, device)
    if not (known := _scorers(model)):
        raise InputError(f"the objective {spec.objective} defines no score(ids, attention), so it scores no sentences")
    chosen = _chosen(asked, known, f"the objective {spec.objective}")
    return Scoring(spec.name, spec.data.length, spec.encoder.hidden, spec.encoder.vocab, *chosen)


def check(spec: RunSpec) -> None:
    """Raise InputError, before training, if a run's objective has scorers, but none of `tasks.scorers`."""
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
    run.check_weights("encoder", place)
    run.check_weights("heads", place)
    objectives.keep_sources(spec, run.path)
    model = objectives.build(spec, build_encoder(spec))
    fill(model, encoder, heads, spec)
    return spec, model.to(device).eval().requires_grad_(False)


def _scorers(model: nn.Module) -> dict[str, Scorer]:
    if callable(several := getattr(model, "scorers", None)):
        return dict(several())
    if callable(score := getattr(model, "score", None)):
        return {"score": lambda s: score(s.ids, s.attention)}
    return {}


def fill(model: nn.Module, encoder: Path, heads: Path, spec: RunSpec) -> None:
    """Copy the exported weights into an objective. Raises InputError if one is missing or has another shape.

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
    own_weights = exported_weights(model.encoder.family, encoder)  # type: ignore[union-attr, arg-type]

    def named(tensors: Mapping[str, Tensor], name: str, shape: torch.Size | None = None) -> Tensor:
        if name not in tensors or (shape is not None and tensors[name].shape != shape):
            raise InputError(f"{spec.name}: the exported weights lack {name}, so sentences cannot be scored")
        return tensors[name]

    with torch.no_grad():
        for weights, tensors in ((dict(body.named_parameters()), own_weights), (wanted, exported)):
            for name, weight in weights.items():
                weight.copy_(named(tensors, name, weight.shape))
    for name, module in model.named_modules():
        if isinstance(module, Ngrams):
            module.count(*(named(exported, f"{name}.{table}") for table in ("pairs", "counts")))


# ---- published models ----
# The class of transformers follows from the weights: a discriminator of ELECTRA has `discriminator_predictions`; a
# causal model predicts the next token; any other must have a head that predicts masked tokens. B sentences, L
# positions.

LOGITS = 1 << 26  # numbers of logits (B, L, V) that are computed at once
LONGEST = 512  # tokens of a sentence for a model without a limit of its own


@dataclass(frozen=True)
class MaskedLM:
    """A masked language model in the two roles that `pseudo_log_likelihood` needs: its states are logits (B, V)."""

    model: Any

    def states_at(self, ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
        """Return the logits (B, V) at one position of each row of ids (B, L), places (B,)."""
        return torch.cat([logits[range(len(part)), places[part]] for part, logits in _logits(self.model, ids)])

    def log_likelihood(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return log p of the targets (N,) under `hidden` (N, V), which are logits."""
        return -F.cross_entropy(hidden.float(), targets, reduction="none")


def load_published(folder: Path, device: str) -> tuple[int, int, int, dict[str, Scorer]]:
    """Return the length, width and vocabulary of a model with its head, and its scorers by name, the default first.

    Raises InputError if the folder holds no head to score with.
    """
    load_encoder(folder, 0.0, device)  # for its checks of a folder that others made
    files = hugging_face.check_encoder_folder(folder)
    config, tokenizer = configured(files), load_published_tokenizer(folder)
    special = special_of(tokenizer)
    model, kind = _with_head(files, config)
    model = model.to(device).eval().requires_grad_(False)
    vocabulary = model.get_input_embeddings().num_embeddings
    if kind == "AutoModelForPreTraining":
        scorers: dict[str, Scorer] = {"originality": lambda s: originality(model, s.ids, special)}
    elif kind == "AutoModelForCausalLM":
        first = tokenizer.bos_token_id
        check_tokens(folder, [] if first is None else [[first]], vocabulary)
        scorers = {"causal": lambda s: left_to_right(model, s.ids, special, first)}
    else:
        if tokenizer.mask_token_id is None:
            raise InputError(f"{folder}: its tokenizer has no mask token, with which sentences are scored")
        check_tokens(folder, [[tokenizer.mask_token_id]], vocabulary)
        both = MaskedLM(model)
        scorers = {"pll": lambda s: pseudo_log_likelihood(both, both, s.ids, None, special)}
        if tokenizer.is_fast:  # another does not say which tokens are of one word
            scorers["pll-word-l2r"] = lambda s: pseudo_log_likelihood(both, both, s.ids, None, special, s.words)
    origin = origin_of(files)  # positions beyond the rows of pre-training were never trained
    length = row_length(folder, config, LONGEST if origin is None else origin.row_length)
    return length, config.hidden_size, vocabulary, scorers


def special_of(tokenizer: Any) -> Special:
    """Return the ids of a tokenizer's special tokens, -1 for one that it does not have."""
    names = {name: name for name in Special.model_fields}
    if tokenizer.cls_token_id is None:
        names |= {"cls": "bos", "sep": "eos"}
    found = {key: getattr(tokenizer, f"{name}_token_id") for key, name in names.items()}
    return Special(**{key: -1 if number is None else number for key, number in found.items()})


def originality(model: Any, ids: Tensor, special: Special) -> Tensor:
    """Return the sum (B,) of log P(original) over the tokens of sentences ids (B, L), as the score of RTD is."""
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits  # (B, L), above 0 means replaced
    return summed(F.logsigmoid(-logits.float()), ids, None, special)


def left_to_right(model: Any, ids: Tensor, special: Special, first: int | None) -> Tensor:
    """Return the sum (B,) of log p(token | tokens before it) over sentences ids (B, L).

    If the tokenizer puts nothing before a sentence, the token `first` is put there, so that the first token is scored
    as well; without such a token it is not.
    """
    if first is not None and bool((ids[:, 0] != first).all()):
        ids = torch.cat([ids.new_full((len(ids), 1), first), ids], 1)
    parts = []
    for rows, logits in _logits(model, ids):
        targets = ids[rows, 1:]
        parts.append(-F.cross_entropy(logits[:, :-1].float().transpose(1, 2), targets, reduction="none"))
    return summed(torch.cat(parts), ids[:, 1:], None, special)


def _logits(model: Any, ids: Tensor) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the logits (b, L, V) of some rows of ids (B, L) after their indices, at most LOGITS numbers at once."""
    size = max(1, LOGITS // (ids.shape[1] * model.config.vocab_size))
    for start in range(0, len(ids), size):
        part = list(range(start, min(start + size, len(ids))))
        yield part, model(input_ids=ids[part], attention_mask=torch.ones_like(ids[part])).logits


def _with_head(files: hugging_face.EncoderFiles, config: Any) -> tuple[Any, str]:
    """Return the model with the head in its files, and its class. Raises InputError if there is none that works."""
    tensors = check_weights(files.folder, regular_files(files.folder))[1]
    if any(name.startswith("discriminator_predictions.") for name in tensors):
        kind = "AutoModelForPreTraining"
    else:
        kind = "AutoModelForCausalLM" if is_causal(config) else "AutoModelForMaskedLM"
    with model_files.refusing(files.folder, REFUSED):
        try:
            model, mismatched, lacking = from_files(files, config, kind)
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
            raise InputError(
                f"{files.folder}: sentences cannot be scored by models of type {config.model_type}"
            ) from None
    if mismatched:
        raise InputError(f"{files.folder}: {mismatched[0]}, so this head cannot be loaded and no sentence be scored")
    if lacking:
        raise InputError(
            f"{files.folder} holds no head that predicts or detects tokens ({lacking[0]} is missing), and with a "
            f"random one no sentence can be scored; name a model with its head, or the folder encoder of a run"
        )
    broken = next((name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()), None)
    if broken:
        raise InputError(f"{files.folder}: {broken} holds weights that are NaN or infinite")
    return model, kind
