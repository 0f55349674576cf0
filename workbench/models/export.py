"""Export of an encoder as a Hugging Face model: weights, tokenizer, and a model card with its origin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.data.hugging_face import TOKENIZER_FILES
from workbench.errors import InputError
from workbench.models.corruption import Generator
from workbench.models.counts.ngram import Ngrams
from workbench.models.counts.unigram import WordFrequencies
from workbench.models.electra import Electra
from workbench.models.encoder import Encoder, plain_weights
from workbench.models.heads import BinaryHead, MlmHead
from workbench.models.model_card import encoder_card
from workbench.spec.parts import TUNING_FIELDS
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import read_object, write_new
from workbench.store.safetensors_writer import content, library_errors, save_copies

WEIGHTS = "model.safetensors"
ORIGIN = "workbench"  # key of config.json with what `workbench evaluate` has to know about an encoder's run


def export(encoder: Encoder, tokenizer: Path, folder: Path, spec: RunSpec, facts: dict[str, Any]) -> None:
    """Write the encoder, its tokenizer and a model card into `folder`, which the caller then moves into place.

    `facts` are the steps, tokens and FLOPs of the run. Raises OSError.
    """
    with library_errors(folder):
        encoder.save(folder)
    add_origin(folder, spec)
    for file in tokenizer.iterdir():
        if file.name in TOKENIZER_FILES:
            shutil.copyfile(file, folder / file.name)
    limit_length(folder / "tokenizer_config.json", spec.encoder.positions)
    (folder / "README.md").write_text(encoder_card(spec, facts), encoding="utf-8")


def export_heads(objective: nn.Module, folder: Path) -> None:
    """Write the weights of an objective that are not in its encoder, its heads and its generator, into `folder`.

    Together with the exported encoder they suffice to score sentences. Names are those of `named_parameters`; what is
    counted and not learned is saved as `log_share` (tokens) and as `pairs` and `counts` (pairs of neighbours).
    """
    encoder: nn.Module = objective.encoder  # type: ignore[assignment]
    own = {id(weight) for weight in encoder.parameters()}
    weights = {name: weight for name, weight in objective.named_parameters() if id(weight) not in own}
    for name, part in objective.named_modules():
        if isinstance(part, WordFrequencies):
            weights[f"{name}.log_share"] = part.log_share  # type: ignore[assignment]
        elif isinstance(part, Ngrams):
            weights |= {f"{name}.pairs": part.pairs, f"{name}.counts": part.counts}  # type: ignore[dict-item]
    _, parts = content(weights)
    write_new(folder / WEIGHTS, b"".join(parts))


def add_origin(folder: Path, spec: RunSpec) -> None:
    """Add to config.json how a run measures its encoder, so that the folder is measured alike wherever it lies.

    These are the tokens of a row of pre-training, to which sentences are cut when they are scored, and the settings of
    fine-tuning. Other programs ignore the entry.
    """
    path = folder / "config.json"
    tasks = spec.tasks.model_dump(mode="json", include={*TUNING_FIELDS})
    origin = {"row_length": spec.data.length, "scale": spec.scale, "tasks": tasks}
    facts = json.loads(path.read_text(encoding="utf-8")) | {ORIGIN: origin}
    path.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def limit_length(settings: Path, positions: int) -> None:
    """Limit the length of texts in a tokenizer's settings to `positions` tokens, the maximum of the encoder."""
    raw = read_object(settings) if settings.is_file() else {}
    longest = raw.get("model_max_length")
    longest = min(longest, positions) if isinstance(longest, (int, float)) and longest > 0 else positions
    text = json.dumps(raw | {"model_max_length": int(longest)}, indent=2, ensure_ascii=False)
    settings.write_text(text + "\n", encoding="utf-8")


def masked_lm(model: nn.Module) -> tuple[Encoder, MlmHead] | None:
    """Return encoder and head of the part that learned to predict [MASK]; None if the objective has none."""
    generator, head = getattr(model, "generator", None), getattr(model, "head", None)
    if isinstance(generator, Generator):
        return None if generator.words is not None else (generator.body, generator.head)
    encoder = getattr(model, "encoder", None)
    if not isinstance(head, MlmHead) or not isinstance(encoder, Encoder):
        return None
    if encoder.spec.causal or encoder.predicts_by_query:
        return None  # the head learned to predict the next token, or tokens from states of a second stream
    return encoder, head


def export_masked_lm(encoder: Encoder, head: MlmHead, folder: Path) -> None:
    """Write config.json and model.safetensors of an `ElectraForMaskedLM`, with our head under its names."""
    own = {
        "generator_predictions.dense.weight": head.dense.weight, "generator_predictions.dense.bias": head.dense.bias,
        "generator_predictions.LayerNorm.weight": head.norm.weight,
        "generator_predictions.LayerNorm.bias": head.norm.bias, "generator_lm_head.bias": head.bias,
    }  # fmt: skip
    _with_head(encoder, own, "ElectraForMaskedLM", folder)


def export_discriminator(encoder: Encoder, head: BinaryHead, folder: Path) -> None:
    """Write config.json and model.safetensors of an `ElectraForPreTraining`, with our head under its names.

    Its head has a dense layer. A linear head, z = w h + b, is written as one that computes the same: the dense layer
    gives z and -z, and gelu(z) - gelu(-z) = z.
    """
    start, width = "discriminator_predictions.", encoder.spec.hidden
    if head.dense is not None:
        dense, out = head.dense, head.out
        parts = {"dense.weight": dense.weight, "dense.bias": dense.bias,
                 "dense_prediction.weight": out.weight, "dense_prediction.bias": out.bias}  # fmt: skip
    else:
        signs = torch.zeros(width)
        signs[0], signs[1] = 1.0, -1.0
        parts = {"dense.weight": signs[:, None] * head.out.weight.cpu(), "dense.bias": signs * head.out.bias.cpu(),
                 "dense_prediction.weight": signs[None], "dense_prediction.bias": torch.zeros(1)}  # fmt: skip
    _with_head(encoder, {start + name: weight for name, weight in parts.items()}, "ElectraForPreTraining", folder)


def _with_head(encoder: Encoder, head: dict[str, Tensor], kind: str, folder: Path) -> None:
    """Write an encoder and the tensors of its head as the model class `kind`. Raises InputError for other families."""
    if not isinstance(encoder.model, Electra):
        raise InputError(
            f"encoder.family={encoder.spec.family}: models with their heads are exported for the family electra only; "
            f"AutoModel loads the folder encoder of each run"
        )
    facts = {"architectures": [kind], "dtype": "float32", **encoder.model.config.facts()}
    (folder / "config.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    body = {f"electra.{name}": weight for name, weight in plain_weights(encoder.model).items()}
    save_tensors(body | head, folder / WEIGHTS)


def save_tensors(weights: dict[str, Tensor], path: Path) -> None:
    """Write a copy of each tensor on the CPU to a safetensors file."""
    with library_errors(path):
        save_copies(weights, path)
