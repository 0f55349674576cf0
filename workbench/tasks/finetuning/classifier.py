"""Classifier: an encoder with one linear layer on the state of one token, [CLS] or in some families the last one."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from workbench.cpu import layers
from workbench.data import hugging_face
from workbench.errors import InputError
from workbench.models import electra

REFUSED = "cannot be loaded as an encoder"


class Classifier(nn.Module):
    """Dropout on the state of one position, then one linear layer, as in the released code (docs/electra.md 5).

    The position is the first real token; it is the last one if the encoder is causal or, as XLNet, ends its rows
    with [CLS].

    `ElectraForSequenceClassification` is not used because it has a further dense layer in between.
    """

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.segments = has_segments(encoder)
        self.reads_last = reads_last(encoder.config)
        self.language: nn.Module | None = None  # predicts the next token, if that is trained too (`language_loss`)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.config.hidden_size, outputs)  # type: ignore[union-attr, arg-type]
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of input tensors (B, L)."""
        return self.classify(self.states(inputs), inputs)

    def states(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the last hidden states (B, L, D) of input tensors (B, L)."""
        return states(self.encoder, self.segments, inputs)

    def classify(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of the states (B, L, D) of input tensors (B, L)."""
        outputs: Tensor = self.head(self.dropout(pooled(hidden, inputs.get("attention_mask"), self.reads_last)))
        return outputs


def states(encoder: Any, segments: bool, inputs: dict[str, Tensor]) -> Tensor:
    """Return the last hidden states (B, L, D) of input tensors (B, L); segment ids are used only with `segments`.

    They are computed by our own kernels where these compute the same in less time.
    """
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    types = inputs.get("token_type_ids") if segments else None
    if layers.can(encoder, ids):
        return layers.hidden_states(encoder, ids, mask, types)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    hidden: Tensor = encoder(**{name: value for name, value in given.items() if value is not None}).last_hidden_state
    return hidden


def pooled(hidden: Tensor, attention: Tensor | None, last: bool) -> Tensor:
    """Return the states (B, D) of the first or the last real token of `hidden` (B, L, D).

    Padding may be on either side. Without `attention` all tokens are real.
    """
    if attention is None:
        return hidden[:, -1 if last else 0]
    real = attention.bool().int()
    places = real.shape[1] - 1 - real.flip(1).argmax(1) if last else real.argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def has_segments(encoder: Any) -> bool:
    """Return whether an encoder distinguishes a first and a second text; RoBERTa, MPNet and ModernBERT do not.

    GPT-2 accepts segment ids as well, but embeds them as tokens of its vocabulary.
    """
    taken = "token_type_ids" in inspect.signature(encoder.forward).parameters
    default = 2 if encoder.config.model_type == "xlnet" else 0
    return taken and getattr(encoder.config, "type_vocab_size", default) > 1


def load_encoder(folder: Path, dropout: float, device: str = "cpu") -> nn.Module:
    """Load the encoder of a folder in float32, with all of its dropout rates set to `dropout`.

    The folder is checked first (`workbench.data.hugging_face`), and the loaded encoder is tested on a few tokens.
    Raises InputError if it holds no encoder, or one that cannot be computed with.
    """
    files = hugging_face.check_encoder_folder(folder)
    needed = files.elements * (4 if device.startswith("cuda") else 16)  # weights; gradients and Adam's moments
    if needed > (free := psutil.virtual_memory().available):
        raise InputError(
            f"{folder} holds {files.elements:,} weights; fine-tuning them takes {needed >> 20:,} MiB of memory, and "
            f"{free >> 20:,} MiB are free"
        )
    model: nn.Module | None = electra.load(folder, dropout)
    with contextlib.nullcontext() if model is not None else hugging_face.refusing(folder, REFUSED):
        model = model if model is not None else _load_hugging_face(files, dropout)
    for name, weight in model.named_parameters():
        if whole := next(
            (whole_name for whole_name in files.whole_numbers if f".{whole_name}".endswith(f".{name}")), None
        ):
            raise InputError(f"{folder}: {whole} holds whole numbers, and the weights of an encoder are fractions")
        if not torch.isfinite(weight).all():
            raise InputError(
                f"{folder}: {name} holds weights that are NaN or infinite, so nothing can be computed with it"
            )
    _try(model, folder)
    return model


def configured(files: hugging_face.EncoderFiles) -> Any:
    """Return the transformers configuration of a checked folder. Raises InputError if its settings are refused."""
    from transformers import AutoConfig

    with hugging_face.refusing(files.folder, REFUSED):
        kind = files.config["model_type"]
        return AutoConfig.for_model(kind, **{key: value for key, value in files.config.items() if key != "model_type"})


def load_frozen(folder: Path, device: str) -> Any:
    """Load the encoder of a folder on a device to read its states, as Hugging Face's module if that is not a CPU.

    Raises InputError as `load_encoder` does.
    """
    model: Any = load_encoder(folder, 0.0, device).eval()
    if isinstance(model, electra.Electra) and device != "cpu":
        model = electra.hugging_face(model).eval()
    return model.to(device)


def _load_hugging_face(files: hugging_face.EncoderFiles, dropout: float) -> nn.Module:
    """Return an encoder that transformers loads from a view of the folder. Raises what transformers raises."""
    from transformers import AutoModel

    config = configured(files)
    for name, value in config.to_dict().items():
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, (int, float)):
            setattr(config, name, dropout)
    config.use_cache = False
    _check_total(files, config)
    with hugging_face.view(files.folder, files.weights, files.config) as clean:
        model, report = AutoModel.from_pretrained(
            clean, config=config, dtype=torch.float32, output_loading_info=True, trust_remote_code=False,
            use_safetensors=True, local_files_only=True, ignore_mismatched_sizes=True,
        )  # fmt: skip
    for name, shape, described in sorted(report["mismatched_keys"]):
        if not name.startswith("pooler."):
            raise InputError(
                f"{files.folder} {REFUSED}: {name} has the shape {tuple(shape)}, and config.json describes "
                f"{tuple(described)}"
            )
    lacking = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if lacking:
        raise InputError(f"{files.folder} lacks {len(lacking)} of the encoder's weights, {lacking[0]} for one")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    encoder: nn.Module = model
    return encoder


def _check_total(files: hugging_face.EncoderFiles, config: Any) -> None:
    """Raise InputError if the settings describe far more weights than the files hold, before any is allocated."""
    from transformers import AutoModel

    with torch.device("meta"):
        empty = AutoModel.from_config(config)
    described = sum(weight.numel() for name, weight in empty.named_parameters() if "pooler" not in name)
    described += sum(buffer.numel() for buffer in empty.buffers()) // 4
    if described > 2 * files.elements + (1 << 22):
        raise InputError(
            f"{files.folder}: config.json describes an encoder of {described:,} weights, and the files hold "
            f"{files.elements:,}"
        )


def _try(model: Any, folder: Path) -> None:
    """Raise InputError for a model that does not compute hidden states of tokens."""
    ids = torch.zeros((2, 4), dtype=torch.int64)
    training = model.training
    try:
        with torch.inference_mode():
            hidden = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        fault = (
            "" if hidden.shape == (2, 4, model.config.hidden_size) else f"makes states of shape {tuple(hidden.shape)}"
        )
    except Exception as error:  # a setting that passed all checks may lead to any error
        fault = str(error).strip().split("\n")[0][:200] or type(error).__name__
    if fault:
        raise InputError(f"{folder} {REFUSED}: computing with it fails: {fault}")
    model.train(training)


def reads_last(config: Any) -> bool:
    """Return whether a text is read at its last token.

    Causal models are, because their first tokens do not attend to what follows, and so is XLNet.
    """
    return is_causal(config) or config.model_type in hugging_face.LAST


def is_causal(config: Any) -> bool:
    """Return whether no position of an encoder sees a later one."""
    causal = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    return bool(causal) or config.model_type in hugging_face.CAUSAL


# These families count positions from the id after that of padding, which is 1 in published checkpoints.
OFFSET = ("roberta", "camembert", "mpnet", "data2vec-text", "ibert", "esm", "layoutlmv3")


def longest(config: Any, length: int) -> int:
    """Return how many tokens a row may have: `length`, or as many as the encoder has positions if these are fewer."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    if positions > 0 and any(kind in config.model_type for kind in OFFSET):
        positions = max(1, positions - max(2, (config.pad_token_id or 0) + 1))
    return min(length, positions) if positions > 0 else length


def row_length(folder: Path, config: Any, length: int) -> int:
    """Return how many tokens a row may have: `longest`, or the tokenizer's model_max_length if that is less."""
    return min(longest(config, length), hugging_face.longest_text(folder) or length)
