"""One revision of a run as a Hugging Face folder that `AutoModelForMaskedLM.from_pretrained` loads.

The masked language model is the part of an objective that learned to predict [MASK]: for BERT MLM the encoder with
its head, for every objective with a generator the generator. In the second case the encoder, which is what is
fine-tuned, is in the folder `encoder` beside it, for `AutoModel`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from torch import Tensor, nn

from workbench.data.foreign import TOKENIZER_FILES
from workbench.errors import InputError
from workbench.models.corruption import Generator
from workbench.models.electra import Electra
from workbench.models.encoder import Encoder, plain_weights
from workbench.models.heads import BinaryHead, MlmHead
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import copy_files
from workbench.store.run_directory import RunDir
from workbench.store.safetensors_writer import library_errors, save_copies
from workbench.tasks.zero_shot import scorer

HEAD = "detection_head.safetensors"


def write(run: RunDir, weights: Path, folder: Path, revision: str) -> None:
    """Fill `folder` with a revision whose `encoder` and `heads` are in `weights`. Raises InputError."""
    spec, model = scorer.put_together(weights / "encoder", "cpu")
    language_model = masked_lm(model)
    folder.mkdir(parents=True)
    if language_model is None:
        copy_files(weights / "encoder", folder)
    else:
        _save_masked_lm(*language_model, folder)
        for file in (weights / "encoder").iterdir():
            if file.name in TOKENIZER_FILES:
                shutil.copyfile(file, folder / file.name)
        if language_model[0] is not model.encoder:
            copy_files(weights / "encoder", folder / "encoder")
    head = getattr(model, "head", None)
    if isinstance(head, BinaryHead):
        save_tensors(dict(head.named_parameters()), folder / HEAD)
    (folder / "README.md").write_text(card(spec, model, revision), encoding="utf-8")


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


def _save_masked_lm(encoder: Encoder, head: MlmHead, folder: Path) -> None:
    """Write config.json and model.safetensors of an `ElectraForMaskedLM`, with our head under its names."""
    if not isinstance(encoder.model, Electra):
        raise InputError(
            f"encoder.family={encoder.spec.family}: masked language models are exported for the family electra only; "
            f"AutoModel loads the folder encoder of each run"
        )
    facts = {"architectures": ["ElectraForMaskedLM"], "dtype": "float32", **encoder.model.config.facts()}
    (folder / "config.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    body = {f"electra.{name}": weight for name, weight in plain_weights(encoder.model).items()}
    own = {
        "generator_predictions.dense.weight": head.dense.weight, "generator_predictions.dense.bias": head.dense.bias,
        "generator_predictions.LayerNorm.weight": head.norm.weight,
        "generator_predictions.LayerNorm.bias": head.norm.bias, "generator_lm_head.bias": head.bias,
    }  # fmt: skip
    save_tensors(body | own, folder / "model.safetensors")


def save_tensors(weights: dict[str, Tensor], path: Path) -> None:
    """Write a copy of each tensor on the CPU to a safetensors file."""
    with library_errors(path):
        save_copies(weights, path)


def card(spec: RunSpec, model: nn.Module, revision: str) -> str:
    """Return a model card that describes which part of the objective each file holds."""
    language_model = masked_lm(model)
    if language_model is None:
        lines = [
            f"- `model.safetensors`: the encoder, for `AutoModel`. The objective `{spec.objective}` has no part that "
            "learned to predict [MASK], so this is no masked language model: `AutoModelForMaskedLM` adds a random head"
        ]
    elif language_model[0] is getattr(model, "encoder", None):
        lines = ["- `model.safetensors`: encoder and masked language model in one, for `AutoModelForMaskedLM`"]
    else:
        lines = [
            "- `model.safetensors`: the **generator**, for `AutoModelForMaskedLM`: the only part that learned to "
            "predict [MASK]. Its scores are not those of the encoder.",
            "- `encoder/`: the **encoder**, for `AutoModel`: this is what to fine-tune",
        ]
    if isinstance(head := getattr(model, "head", None), BinaryHead):
        lines.append(
            f"- `{HEAD}`: the head that detects replaced tokens from the encoder's states: "
            "logit = out.weight h + out.bias"
            + (", where h = gelu(dense.weight h + dense.bias)" if head.dense is not None else "")
            + " for each state h; a logit above 0 means replaced"
        )
    return f"""---
library_name: transformers
pipeline_tag: {"fill-mask" if language_model is not None else "feature-extraction"}
---
# {spec.name}, revision {revision}

Pre-trained with the objective `{spec.objective}` on {", ".join(spec.data.corpus)}; rows of {spec.data.length} tokens.

{chr(10).join(lines)}
"""
