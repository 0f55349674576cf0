"""One revision of a run as a Hugging Face folder that `AutoModelForMaskedLM.from_pretrained` loads.

The masked language model is the part of an objective that learned to predict [MASK]: for BERT MLM the encoder with
its head, for every objective with a generator the generator. In the second case the encoder, which is what is
fine-tuned, is in the folder `encoder` beside it, for `AutoModel`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from torch import nn

from workbench.data.hugging_face import TOKENIZER_FILES
from workbench.models import export
from workbench.models.export import add_origin, export_masked_lm, masked_lm, save_tensors
from workbench.models.heads import BinaryHead
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import copy_files
from workbench.store.redact import code_in_markdown, for_markdown
from workbench.store.run_directory import RunDir
from workbench.tasks.common import sentence_scorers

HEAD = "detection_head.safetensors"


def write(run: RunDir, weights: Path, folder: Path, revision: str) -> None:
    """Fill `folder` with a revision whose `encoder` and `heads` are in `weights`. Raises InputError."""
    spec, model = sentence_scorers.put_together(weights / "encoder", "cpu")
    language_model = masked_lm(model)
    folder.mkdir(parents=True)
    if language_model is None:
        copy_files(weights / "encoder", folder)
    else:
        export_masked_lm(*language_model, folder)
        add_origin(folder, spec)
        for file in (weights / "encoder").iterdir():
            if file.name in TOKENIZER_FILES:
                shutil.copyfile(file, folder / file.name)
        if language_model[0] is not model.encoder:
            copy_files(weights / "encoder", folder / "encoder")
    head = getattr(model, "head", None)
    if isinstance(head, BinaryHead):
        save_tensors(dict(head.named_parameters()), folder / HEAD)
    (folder / "README.md").write_text(card(spec, model, revision), encoding="utf-8")


def card(spec: RunSpec, model: nn.Module, revision: str) -> str:
    """Return a model card that describes which part of the objective each file holds."""
    objective, corpus = code_in_markdown(spec.objective), for_markdown(", ".join(spec.data.corpus))
    language_model = masked_lm(model)
    if language_model is None:
        lines = [
            f"- `model.safetensors`: the encoder, for `AutoModel`. The objective {objective} has no part that "
            "learned to predict [MASK], so `AutoModelForMaskedLM` adds a random head"
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
    body = f"""# {for_markdown(spec.name)}, revision {for_markdown(revision)}

Pre-trained with the objective {objective} on {corpus}; rows of {spec.data.length} tokens.

{chr(10).join(lines)}
"""
    return export.page(spec, body, "fill-mask" if language_model is not None else "feature-extraction")
