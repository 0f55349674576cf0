"""Encoders in our own layout: folders of families that are defined in a file, and these families in tasks.

Such a folder has config.json and model.safetensors like those of Hugging Face. Its config.json has the sizes under
BERT's names and, in the entry `workbench`, the settings that `build` takes, with the hash of the family's file. A
family with `to_hub` writes Hugging Face's files instead, and the same entry. Code is never read from such a folder:
the family's file must be known, from the folder of the run or from the command line.

B rows, L positions, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from workbench.data.hugging_face import OWN
from workbench.errors import InputError, one_line
from workbench.models.families import PLUGS, Family, family_of
from workbench.spec.parts import EncoderSpec, Special
from workbench.store.atomic import read_object
from workbench.store.checkpoint import save_copies

ORIGIN = "workbench"  # key of config.json for what `workbench evaluate` reads
WEIGHTS, SETTINGS = "model.safetensors", "config.json"


def write(config: EncoderSpec, weights: dict[str, Tensor], folder: Path) -> None:
    """Write the weights of an encoder, and a config.json with its sizes."""
    sizes = {
        "model_type": OWN, "vocab_size": config.vocab, "hidden_size": config.hidden,
        "embedding_size": config.embedding_width, "num_hidden_layers": config.layers,
        "max_position_embeddings": config.positions,
    }  # fmt: skip
    write_settings(folder, sizes)
    save_copies(weights, folder / WEIGHTS)


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write config.json."""
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def add_entry(folder: Path, **facts: Any) -> None:
    """Add to the entry `workbench` of config.json what tasks and `read` need to know of an encoder."""
    settings = read_object(folder / SETTINGS)
    write_settings(folder, settings | {ORIGIN: (settings.get(ORIGIN) or {}) | facts})


def read(folder: Path, settings: Mapping[str, Any], dropout: float) -> nn.Module | None:
    """Return the encoder in a folder under Hugging Face's interface, with the same rate for every dropout.

    `settings` is the content of config.json. Returns None if only Hugging Face's own loader can read the folder. Raises
    InputError if the family's file is not known here, or if the weights do not fit.
    """
    entry = (settings.get(ORIGIN) or {}).get("family")
    if entry is None:
        kind = str(settings.get("model_type"))
        family = family_of(EncoderSpec(family=kind)) if kind in PLUGS.built_in else None
        return None if family is None or family.from_hub is None else family.from_hub(folder, dropout)
    try:
        config = EncoderSpec.model_validate(entry["config"])
        special = Special.model_validate(entry["special"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder}: the entry {ORIGIN!r} of config.json does not describe an encoder: {one_line(error)}"
        ) from None
    if not known(config):
        if settings.get("model_type") != OWN:
            return None
        raise InputError(
            f"{folder}: its encoder is of the family {config.family!r}, which is defined in a file; name that file "
            f"with {PLUGS.given('FILE')}, or measure the folder where its run is"
        )
    family = family_of(config)
    if family.to_hub is not None and family.from_hub is None:
        return None  # Hugging Face's own class computes the same
    config = config.model_copy(update={"dropout": dropout, "attention_dropout": dropout})
    model = family.from_hub(folder, dropout) if family.from_hub is not None else None
    return AsHuggingFace(family, config, special, _filled(family, config, special, folder) if model is None else model)


def exported_weights(family: Family, folder: Path) -> dict[str, Tensor]:
    """Return the weights of an encoder that a run exported, under the names of the family's module."""
    from safetensors.torch import load_file

    if family.source and family.to_hub is not None and family.from_hub is not None:
        weights: dict[str, Tensor] = family.from_hub(folder, 0.0).state_dict()
        return weights
    return load_file(folder / WEIGHTS)


def known(config: EncoderSpec) -> bool:
    """Return whether the file of an encoder's family is known in this process, or its package installed."""
    if PLUGS.file(config.source) is not None:
        return True
    return config.family in PLUGS.installed() and PLUGS.find(config.family)[1] == config.source


def _filled(family: Family, config: EncoderSpec, special: Special, folder: Path) -> nn.Module:
    """Return the family's module with the weights in a folder. Raises InputError if they do not fit."""
    from safetensors.torch import load_file

    with torch.random.fork_rng(devices=[]):  # the drawn weights are replaced, and leave no trace
        model: nn.Module = family.build(config, special)
    try:
        model.load_state_dict({name: weight.float() for name, weight in load_file(folder / WEIGHTS).items()})
    except (RuntimeError, OSError) as error:
        raise InputError(f"{folder}: its weights do not fit the module of {family.file}: {one_line(error)}") from None
    return model


class Output(NamedTuple):
    """The output of an encoder: the last states (B, L, D), and if requested, the states of all layers."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] = ()


class AsHuggingFace(nn.Module):
    """A module of a family in a file, with the interface by which tasks read encoders of Hugging Face."""

    def __init__(self, family: Family, config: EncoderSpec, special: Special, model: nn.Module) -> None:
        super().__init__()
        self.family, self.model = family, model
        self.config = SimpleNamespace(
            model_type=OWN, vocab_size=config.vocab, hidden_size=config.hidden, num_hidden_layers=config.layers,
            max_position_embeddings=config.positions, type_vocab_size=2 if family.SEGMENTS else 1,
            pad_token_id=special.pad, is_decoder=bool(config.causal) or family.CAUSAL == "always",
        )  # fmt: skip

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embeddings (V, E)."""
        table: nn.Embedding = self.model.get_submodule(self.family.TABLE)  # type: ignore[assignment]
        return table

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> Output:  # fmt: skip
        """Return the states for input_ids (B, L); the others are (B, L) or None if nothing is padded, or all are 0."""
        attention = None if attention_mask is None else attention_mask.bool()
        inner: list[Tensor] = []
        hooks = self._hooks(inner) if output_hidden_states else []
        try:
            hidden = self.family.states(self.model, input_ids, attention, token_type_ids)
        finally:
            for hook in hooks:
                hook.remove()
        if not isinstance(hidden, Tensor) or hidden.shape != (*input_ids.shape, self.config.hidden_size):
            raise InputError(wrong_states(self.family.file, hidden, input_ids, self.config.hidden_size))
        return Output(hidden, (*inner[:-1], hidden) if output_hidden_states else ())

    def _hooks(self, inner: list[Tensor]) -> list[Any]:
        """Collect the input of the first layer and the output of each in `inner`, (B, L, D) each.

        Raises InputError if the layers are not where the family says.
        """
        layers = part_at(self.model, self.family.LAYERS)
        if not isinstance(layers, nn.ModuleList) or not len(layers):
            raise InputError(
                f"{self.family.file}: a linear probe reads the states of all layers, and the module has no "
                f"nn.ModuleList `{self.family.LAYERS}`; set LAYERS to the path of that attribute"
            )
        first: Any = layers[0].register_forward_pre_hook(lambda _, given: inner.append(given[0]))
        return [first, *(layer.register_forward_hook(lambda _, given, out: inner.append(out)) for layer in layers)]


def part_at(model: nn.Module, path: str) -> nn.Module | None:
    """Return the submodule at a dotted path; None if there is none."""
    try:
        return model.get_submodule(path) if path else None
    except AttributeError:
        return None


def wrong_states(file: str, hidden: Any, ids: Tensor, width: int) -> str:
    """Return the message about states of another kind or shape than (B, L, D)."""
    what = f"states of shape {tuple(hidden.shape)}" if isinstance(hidden, Tensor) else f"a {type(hidden).__name__}"
    return f"{file}: the encoder returns {what} for ids of shape {tuple(ids.shape)}, not {(*ids.shape, width)}"
