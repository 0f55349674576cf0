"""The auxiliary loss of fine-tuning a causal encoder: predicting the next token of the task's own texts.

Radford et al. 2018, "Improving language understanding by generative pre-training", section 3.2: the loss of the task
plus `tasks.lm_weight`, 0.5 there, times the loss of the language model.

B rows, L positions, D width of the encoder, E width of its token table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench import objectives
from workbench.cpu import functions
from workbench.data import hugging_face
from workbench.errors import InputError
from workbench.models.export import WEIGHTS
from workbench.store.run_directory import home_of
from workbench.tasks.finetuning.classifier import is_causal

NAMES = ("dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias")  # of the head of `causal-lm`


class LanguageLoss(nn.Module):
    """The head with which an encoder predicted next tokens in pre-training, and its loss.

    For an encoder of ours, this is the head of its run, with its weights. Published causal models whose output layer is
    their token table need no weights. Raises InputError for an encoder that is not causal, or whose head is not known.
    """

    def __init__(self, encoder: Any, folder: Path) -> None:
        super().__init__()
        self.table: nn.Embedding = encoder.get_input_embeddings()
        vocabulary, width = self.table.weight.shape
        if not is_causal(encoder.config):
            raise InputError(
                f"tasks.lm_weight: {folder} holds an encoder whose positions see later ones, so it cannot be trained "
                f"to predict the next token; set tasks.lm_weight=0"
            )
        weights = _head_of_run(folder)
        self.transform: nn.Module | None = None
        if weights:
            dense, norm = nn.Linear(encoder.config.hidden_size, width), nn.LayerNorm(width, eps=1e-12)
            self.transform = nn.Sequential(dense, nn.GELU(), norm)
            self.bias = nn.Parameter(weights["bias"].clone())
            dense.load_state_dict({"weight": weights["dense.weight"], "bias": weights["dense.bias"]})
            norm.load_state_dict({"weight": weights["norm.weight"], "bias": weights["norm.bias"]})
        elif _predicts_by_table(encoder.config) and width == encoder.config.hidden_size:
            self.register_buffer("bias", torch.zeros(vocabulary), persistent=False)
        else:
            raise InputError(
                f"tasks.lm_weight: {folder} has no head that predicts the next token: neither that of a causal-lm run, "
                f"nor a token table that is also the output layer, as in GPT-2; set tasks.lm_weight=0"
            )

    def forward(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return the mean over rows () of each row's mean loss, over every real token that follows another.

        hidden (B, L, D) are the states of inputs, tensors (B, L). As in the released code (openai/
        finetune-transformer-lm, `train.py`), special tokens are predicted too.
        """
        ids, attention = inputs["input_ids"], inputs.get("attention_mask")
        real = torch.ones_like(ids) if attention is None else attention
        counted = (real[:, 1:] * real[:, :-1]).float()
        weights = counted / counted.sum(1, keepdim=True).clamp(min=1)
        features = hidden[:, :-1] if self.transform is None else self.transform(hidden[:, :-1])
        loss = functions.guess(
            features.flatten(0, 1), self.table.weight, self.bias, ids[:, 1:].flatten(), weights.flatten()
        ).loss
        return loss.value


def _head_of_run(folder: Path) -> dict[str, Tensor]:
    """Return the weights of the head of causal LM in the run of an encoder's folder; none if there is no such head."""
    from safetensors.torch import load_file

    run, place = home_of(folder)
    heads = folder.parent / "heads"
    if not (run.path / "spec.json").is_file() or not (heads / WEIGHTS).is_file():
        return {}
    objectives.keep_source(spec := run.spec(), run.path / "objective.py")
    if not objectives.is_causal(spec):  # its head, if it has one of these names, fills masks
        return {}
    run.check_heads(place)
    tensors = load_file(heads / WEIGHTS)
    return {name: tensors[f"head.{name}"] for name in NAMES} if all(f"head.{name}" in tensors for name in NAMES) else {}


def _predicts_by_table(config: Any) -> bool:
    """Return whether a language model of this configuration multiplies its states by its token table."""
    return config.model_type in hugging_face.CAUSAL and bool(getattr(config, "tie_word_embeddings", False))
