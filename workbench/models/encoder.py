"""Any Hugging Face backbone as (ids, attention) -> hidden states. A family is a table row.

B rows, L positions, D width.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.cpu import layers
from workbench.errors import InputError, suggest
from workbench.models.electra import Config, Electra, hugging_face
from workbench.rng import seed_of
from workbench.spec.parts import EncoderSpec, Special
from workbench.spec.run_spec import RunSpec


@dataclass(frozen=True)
class Family:
    """How Hugging Face spells our sizes; `embedding` is None where embeddings are as wide as the layers.

    `projects_inside` is true where the embedding module itself projects to the layers' width.
    """

    model_type: str
    embedding: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    offset: int = 0  # positions that the family keeps for itself
    projects_inside: bool = False


FAMILIES = {
    "electra": Family("electra", "embedding_size"),
    "bert": Family("bert"),
    "roberta": Family("roberta", extra={"type_vocab_size": 1}, offset=2),
    "albert": Family("albert", "embedding_size"),
    "deberta-v2": Family(
        "deberta-v2",
        "embedding_size",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        projects_inside=True,
    ),
}


class Encoder(nn.Module):
    """A backbone without pooler or head. `model` is ours for an ELECTRA, else Hugging Face's; `table` its tokens'.

    On a CPU an ELECTRA's weights are computed with by `cpu/layers.py`; if `plain`, everything is by Hugging Face.
    """

    plain = False
    _twin: tuple[Any, ...] = ()  # Hugging Face's module over the same weights; a tuple hides it from ours

    def __init__(self, spec: EncoderSpec, special: Special) -> None:
        super().__init__()
        self.spec = spec
        self.model = _backbone(spec, special)

    def forward(self, ids: Tensor, attention: Tensor | None = None) -> Tensor:
        """Hidden states (B, L, D) of ids (B, L); attention (B, L) is None when rows are packed full."""
        if layers.can(self.model, ids) and not self.plain:
            return layers.hidden_states(self.model, ids, attention)
        model = self._hugging_face() if self.plain else self.model
        hidden: Tensor = model(input_ids=ids, attention_mask=attention).last_hidden_state
        return hidden

    def states_at(self, ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
        """Hidden states (B, D) of one position a row, places (B,); no gradient."""
        if layers.can(self.model, ids) and not self.plain and attention is None:
            return layers.states_at(self.model, ids, places)
        hidden: Tensor = self(ids, attention)
        return hidden[torch.arange(len(ids), device=ids.device), places]

    def _hugging_face(self) -> Any:
        if not isinstance(self.model, Electra):
            return self.model
        self._twin = self._twin or (hugging_face(self.model),)
        return self._twin[0].train(self.training)

    @property
    def table(self) -> nn.Embedding:
        """Token embeddings (V, E)."""
        table: nn.Embedding = self.model.get_input_embeddings()
        return table

    def save(self, folder: Path) -> None:
        """The backbone alone in the Hugging Face layout, so that `AutoModel.from_pretrained(folder)` loads it."""
        if isinstance(self.model, Electra):
            self.model.save(folder, plain_weights(self.model))
            return
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model.save_pretrained(folder, state_dict=plain_weights(self.model))


def build_encoder(spec: RunSpec) -> Encoder:
    """The main model with its initial weights, which depend on the seed and the encoder's sizes alone."""
    with seeded(spec.seed, "init", "encoder"):
        return Encoder(spec.encoder, spec.data.special)


def build_generator_body(encoder: Encoder, spec: RunSpec) -> Encoder:
    """The generator's encoder, tied to the main one as `spec.tying` says (docs/electra.md 2).

    `none`: tables of its own at its own width. `tokens`: the token table is shared. `embeddings`: token, position and
    segment tables and the embedding layer norm are shared. `all`: it is the main encoder. `gdes`: the token table is
    the generator's, and the main encoder's is that plus a residual of its own (`Disentangled`).
    Raises InputError where a family cannot share tables between different widths.
    """
    if spec.tying == "all":
        return encoder
    sizes = spec.generator_encoder
    if spec.tying != "none" and FAMILIES[sizes.family].embedding is None and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying={spec.tying} needs generator.width=1 with encoder.family={sizes.family}, which has no projection "
            f"between embeddings and layers; set tying=none or generator.width=1"
        )
    if spec.tying == "embeddings" and FAMILIES[sizes.family].projects_inside and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying=embeddings needs generator.width=1 with encoder.family={sizes.family}, whose embeddings end at the "
            f"width of its layers; set tying=tokens or generator.width=1"
        )
    with seeded(spec.seed, "init", "generator"):
        body = Encoder(sizes, spec.data.special)
    if spec.tying == "tokens":
        body.model.set_input_embeddings(encoder.table)
    elif spec.tying == "embeddings":
        body.model.embeddings = encoder.model.embeddings
    elif spec.tying == "gdes":
        body.model.set_input_embeddings(copy.deepcopy(encoder.table))
        parametrize.register_parametrization(encoder.table, "weight", Disentangled(body.table))
    return body


class Disentangled(nn.Module):
    """Gradient-disentangled sharing (He et al. 2021, DeBERTaV3): E_D = stop_gradient(E_G) + residual.

    The main loss reaches only the residual, the generator's only E_G. The residual starts at 0, so that the main
    encoder begins where it would without sharing; what is saved is the sum.
    """

    def __init__(self, shared: nn.Embedding) -> None:
        super().__init__()
        self._shared = (shared,)  # a tuple hides it: its weights are the generator's, not ours

    def forward(self, residual: Tensor) -> Tensor:
        """The main encoder's table (V, E)."""
        return residual + self._shared[0].weight.detach()

    def right_inverse(self, table: Tensor) -> Tensor:
        """The residual (V, E) that makes up `table`."""
        return table - self._shared[0].weight.detach()


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """A state dict in which a disentangled table is the one table that it amounts to."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, part in model.named_modules():
        if parametrize.is_parametrized(part, "weight"):
            del weights[f"{name}.parametrizations.weight.original"]
            weights[f"{name}.weight"] = part.weight.detach()
    return weights


@contextmanager
def seeded(seed: int, *stream: str | int) -> Iterator[None]:
    """torch's CPU generator set to a stream's seed inside, and as it was before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, *stream))
        yield


def _backbone(spec: EncoderSpec, special: Special) -> Any:
    if spec.family not in FAMILIES:
        raise InputError(f"unknown encoder.family {spec.family!r}{suggest(spec.family, FAMILIES)}")
    family = FAMILIES[spec.family]
    if family.embedding is None and spec.embedding_width != spec.hidden:
        raise InputError(
            f"encoder.embedding={spec.embedding_width} must equal encoder.hidden={spec.hidden} "
            f"for encoder.family={spec.family}, which has no projection between them"
        )
    sizes: dict[str, Any] = {
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.head_count,
        "intermediate_size": spec.ffn_width,
        "max_position_embeddings": spec.positions + family.offset,
        "hidden_dropout_prob": spec.dropout,
        "attention_probs_dropout_prob": spec.attention_dropout,
        "layer_norm_eps": 1e-12,
        "initializer_range": spec.init,
        "pad_token_id": special.pad,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
    }
    sizes |= {family.embedding: spec.embedding_width} if family.embedding else {}
    if spec.family == "electra":
        model: Any = Electra(Config(**sizes, attention=spec.attention))
    else:
        model = _foreign(family, sizes, "eager" if spec.family == "deberta-v2" else spec.attention)
    initialise(model, spec.init)
    if spec.position_init == "sinusoidal":
        start_from_sines(model, spec)
    return model


def _foreign(family: Family, sizes: dict[str, Any], attention: str) -> Any:
    """A Hugging Face module of these sizes, without its pooler."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(family.model_type, hidden_act="gelu", **sizes, **family.extra)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModel.from_config(config, attn_implementation=attention)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # the [CLS] state itself is fine-tuned (docs/electra.md 2), a pooler would never be trained
    return model


def start_from_sines(model: Any, spec: EncoderSpec) -> None:
    """Learned positions start as sines of the tables' deviation. Raises InputError where there are none."""
    table = getattr(model.embeddings, "position_embeddings", None)
    if table is None:
        raise InputError(f"encoder.position_init=sinusoidal: encoder.family={spec.family} has no position table")
    if table.weight.is_meta:  # there is nothing to write, and the sines would load torch's compiler
        return
    places, width = table.weight.shape
    angles = torch.arange(places)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    sines = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    with torch.no_grad():
        table.weight.copy_(sines * spec.init * math.sqrt(2))


def initialise(module: nn.Module, std: float) -> None:
    """Kernels from a normal of `std` cut at two deviations, embedding projections Glorot uniform: docs/electra.md 2."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            if name.endswith(("embeddings_project", "embedding_hidden_mapping_in", "embed_proj")):
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            if part.padding_idx is not None:
                with torch.no_grad():
                    part.weight[part.padding_idx].zero_()
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
