"""Encoders in folders: loading and checking them, how they read texts, and the classifier on top of one."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from workbench.cpu import layers
from workbench.data import hugging_face, model_files
from workbench.errors import InputError
from workbench.models import own_layout
from workbench.models.families import PLUGS
from workbench.models.own_layout import ORIGIN
from workbench.spec.parts import TUNING_FIELDS, TasksSpec
from workbench.store.run_directory import home_of
from workbench.tasks.common.contract import EncoderFacts, Origin

REFUSED = "cannot be loaded as an encoder"


class WithHead(nn.Module):
    """An encoder, to which subclasses add a head on its last states."""

    def __init__(self, encoder: Any, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        # Whether the encoder tells a first and a second text apart; GPT-2's segment ids are words instead.
        taken = "token_type_ids" in inspect.signature(encoder.forward).parameters
        default = 2 if encoder.config.model_type == "xlnet" else 0
        self.segments = taken and getattr(encoder.config, "type_vocab_size", default) > 1
        self.reads_last = reads_last(encoder.config)
        self.dropout = nn.Dropout(dropout)
        self.width = int(encoder.config.hidden_size)

    def states(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the last states (B, L, D) of input tensors (B, L), by our kernels where they are faster."""
        ids, mask = inputs["input_ids"], inputs.get("attention_mask")
        types = inputs.get("token_type_ids") if self.segments else None
        if layers.can(self.encoder, ids):
            return layers.hidden_states(self.encoder, ids, mask, types)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        outputs = self.encoder(**{name: value for name, value in given.items() if value is not None})
        hidden: Tensor = outputs.last_hidden_state
        return hidden


def head_layer(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with Glorot's initial weights and a bias of 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Classifier(WithHead):
    """Dropout on the state of one position, then one linear layer, as in the released code (docs/electra.md 5).

    The position is the first real token; it is the last one if the encoder is causal or, as XLNet, ends its rows
    with [CLS]. `ElectraForSequenceClassification` is not used because it has a further dense layer in between.
    """

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__(encoder, dropout)
        self.language: nn.Module | None = None  # predicts the next token, if that is trained too (`LanguageLoss`)
        self.head = head_layer(self.width, outputs)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of input tensors (B, L)."""
        return self.classify(self.states(inputs), inputs)

    def classify(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of the states (B, L, D) of input tensors (B, L)."""
        outputs: Tensor = self.head(self.dropout(pooled(hidden, inputs.get("attention_mask"), self.reads_last)))
        return outputs


def pooled(hidden: Tensor, attention: Tensor | None, last: bool) -> Tensor:
    """Return the states (B, D) of the first or last real token of `hidden` (B, L, D), by `attention` (B, L)."""
    if attention is None:
        return hidden[:, -1 if last else 0]
    real = attention.bool().int()
    places = real.shape[1] - 1 - real.flip(1).argmax(1) if last else real.argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


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
    run = home_of(folder)[0]
    if (run.path / "encoder.py").is_file() and (run.path / "spec.json").is_file():
        PLUGS.keep(run.spec().encoder.source, run.path / "encoder.py")  # the file of a family that is in no package
    model = own_layout.read(folder, files.config, dropout)
    with contextlib.nullcontext() if model is not None else model_files.refusing(folder, REFUSED):
        model = model if model is not None else load_hugging_face(files, dropout)
    for name, weight in model.named_parameters():
        whole = next((each for each in files.whole_numbers if f".{each}".endswith(f".{name}")), None)
        if whole:
            raise InputError(f"{folder}: {whole} holds whole numbers, and the weights of an encoder are fractions")
        if not torch.isfinite(weight).all():
            raise InputError(
                f"{folder}: {name} holds weights that are NaN or infinite, so nothing can be computed with it"
            )
    _try(model, folder)
    return model


def configured(files: hugging_face.EncoderFiles) -> Any:
    """Return the transformers configuration of a checked folder. Raises InputError if its settings are refused."""
    kind = files.config["model_type"]
    if kind == hugging_face.OWN:
        return SimpleNamespace(**files.config)
    from transformers import AutoConfig

    with model_files.refusing(files.folder, REFUSED):
        return AutoConfig.for_model(kind, **{key: value for key, value in files.config.items() if key != "model_type"})


def load_frozen(folder: Path, device: str) -> Any:
    """Load an encoder to read its states, as Hugging Face's module if not on a CPU. Raises InputError."""
    model: Any = load_encoder(folder, 0.0, device).eval()
    if hasattr(model, "as_hugging_face") and device != "cpu":
        model = model.as_hugging_face().eval()
    return model.to(device)


def load_hugging_face(files: hugging_face.EncoderFiles, dropout: float) -> Any:
    """Return an encoder that transformers loads from a view of the folder. Raises what transformers raises."""
    config = configured(files)
    for name, value in config.to_dict().items():
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, (int, float)):
            setattr(config, name, dropout)
    _check_total(files, config)
    model, mismatched, lacking = from_files(files, config, "AutoModel")
    if mismatched:
        raise InputError(f"{files.folder} {REFUSED}: {mismatched[0]}")
    if lacking:
        raise InputError(f"{files.folder} lacks {len(lacking)} of the encoder's weights, {lacking[0]} for one")
    if hasattr(model, "pooler"):
        model.pooler = None
    return model


def from_files(files: hugging_face.EncoderFiles, config: Any, kind: str) -> tuple[Any, list[str], list[str]]:
    """Return the model of a class of transformers in float32, what is wrong with shapes, and the weights it lacks.

    Weights of a pooler are neither. Raises what transformers raises.
    """
    import transformers

    config.use_cache = False
    with model_files.view(files.folder, files.weights, files.config) as clean:
        model, report = getattr(transformers, kind).from_pretrained(
            clean, config=config, dtype=torch.float32, output_loading_info=True, trust_remote_code=False,
            use_safetensors=True, local_files_only=True, ignore_mismatched_sizes=True,
        )  # fmt: skip
    mismatched = [
        f"{name} has the shape {tuple(shape)}, and config.json describes {tuple(described)}"
        for name, shape, described in sorted(report["mismatched_keys"]) if ".pooler." not in f".{name}"
    ]  # fmt: skip
    return model, mismatched, sorted(name for name in report["missing_keys"] if ".pooler." not in f".{name}")


def _check_total(files: hugging_face.EncoderFiles, config: Any) -> None:
    """Raise InputError for settings that describe far more weights than the files hold, before any is allocated."""
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
        right = hidden.shape == (2, 4, model.config.hidden_size)
        fault = "" if right else f"makes states of shape {tuple(hidden.shape)}"
    except Exception as error:  # a setting that passed all checks may lead to any error
        fault = str(error).strip().split("\n")[0][:200] or type(error).__name__
    if fault:
        raise InputError(f"{folder} {REFUSED}: computing with it fails: {fault}")
    model.train(training)


def reads_last(config: Any) -> bool:
    """Return whether a text is read at its last token: in causal models, whose first token sees no other, and XLNet."""
    return is_causal(config) or config.model_type in hugging_face.LAST


def is_causal(config: Any) -> bool:
    """Return whether no position of an encoder sees a later one."""
    causal = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    return bool(causal) or config.model_type in hugging_face.CAUSAL


# These families count positions from the id after the padding's id, which is 1 in published checkpoints.
OFFSET = ("roberta", "camembert", "mpnet", "data2vec-text", "ibert", "esm", "layoutlmv3")


def row_length(folder: Path, config: Any, length: int) -> int:
    """Return how many tokens a row may have: at most `length`, the encoder's positions and model_max_length."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    if positions > 0 and any(kind in config.model_type for kind in OFFSET):
        positions = max(1, positions - max(2, (config.pad_token_id or 0) + 1))
    most = [length, positions, hugging_face.longest_text(folder) or length]
    return min(each for each in most if each > 0)


# ---- sizes and limits of an encoder ----

UNLIMITED = 1 << 30
SHORTEST_ROW = 8  # tokens, as `DataSpec.length` allows


def encoder_facts(folder: Path) -> EncoderFacts:
    """Return the facts of an encoder from config.json and its tokenizer. Raises InputError for a folder without one."""
    files = hugging_face.check_encoder_folder(folder)
    config = configured(files)
    layers, hidden = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not isinstance(layers, int) or not isinstance(hidden, int):
        raise InputError(
            f"{folder}: config.json lacks num_hidden_layers or hidden_size, the number and width of layers"
        )
    length = row_length(folder, config, UNLIMITED)
    most = None if length == UNLIMITED else length
    return EncoderFacts(layers, hidden, most, reads_last(config), origin_of(files))


def origin_of(files: hugging_face.EncoderFiles) -> Origin | None:
    """Return what an encoder's run says about measuring it. Raises InputError for an entry that no run wrote."""
    raw = files.config.get(ORIGIN)
    if raw is None:
        return None
    try:
        origin = TypeAdapter(Origin).validate_python(raw)
        tasks = TasksSpec.model_validate(dict(origin.tasks)).model_dump(include={*TUNING_FIELDS})
        if tasks.keys() != origin.tasks.keys() or origin.row_length < SHORTEST_ROW:
            raise ValueError
    except ValueError:
        raise InputError(
            f"{files.folder}: the entry {ORIGIN!r} of config.json is not one that a run wrote; remove it from the file"
        ) from None
    return replace(origin, tasks=tasks)
