"""Encoders of every family, as functions of ids, attention and segments (`families.py` has the contract).

Below are what families share: initial weights, and how Hugging Face's modules are made, computed and saved.

B rows, L positions, D width.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.cpu import layers
from workbench.errors import InputError
from workbench.models import own_layout
from workbench.models.families import built_in, family_of
from workbench.models.two_streams import Queries
from workbench.rng import seed_of
from workbench.spec.parts import EncoderSpec, Special
from workbench.spec.run_spec import RunSpec


class Encoder(nn.Module):
    """A backbone without pooler or head.

    `model` is the module that the family builds. On a CPU, `cpu/layers.py` computes the families of BERT's design; if
    `plain`, Hugging Face's module always does. If `hollow`, the states are meta tensors, which have a shape and no
    values.
    """

    plain = False
    hollow = False
    predicts_by_query = False  # whether heads were trained on the query stream, and not on `forward`

    def __init__(self, spec: EncoderSpec, special: Special) -> None:
        super().__init__()
        self.spec, self.special = spec, special
        self.family = family = family_of(spec)
        if not family.OWN_WIDTH and spec.embedding_width != spec.hidden:
            raise InputError(
                f"encoder.embedding={spec.embedding_width} must equal encoder.hidden={spec.hidden} "
                f"for encoder.family={spec.family}, which has no projection between them"
            )
        if spec.causal and family.CAUSAL == "never":
            known = ", ".join(each.name for each in built_in() if each.CAUSAL != "never")
            raise InputError(f"encoder.family={spec.family} cannot be causal; there are {known}")
        self.model = family.build(spec, special)
        if family.source:
            self._check_built()

    def _check_built(self) -> None:
        """Raise InputError if what the family's file built is no module with a token table of these sizes."""
        file, path, wanted = self.family.file, self.family.TABLE, (self.spec.vocab, self.spec.embedding_width)
        if not isinstance(self.model, nn.Module):
            raise InputError(f"{file}: build(config, special) returns {self.model!r:.40}, not a torch module")
        table = own_layout.part_at(self.model, path)
        if not isinstance(table, nn.Embedding) or tuple(table.weight.shape) != wanted:
            shape = f"of shape {tuple(table.weight.shape)}" if isinstance(table, nn.Embedding) else "missing"
            raise InputError(
                f"{file}: the token table `{path}` of the module is {shape}, and must be an nn.Embedding of shape "
                f"{wanted}; set TABLE to the path of that attribute"
            )

    def forward(
        self, ids: Tensor, attention: Tensor | None = None, segments: Tensor | None = None,
        queries: Queries | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the hidden states (B, L, D) for ids (B, L).

        attention (B, L) is None if no row is padded, segments (B, L) if all are 0. A family without segment embeddings
        ignores segments. With `queries`, whose masks take the place of attention, these are the states (B, M, D) of the
        query stream.
        """
        if self.hollow:
            places = ids if queries is None else queries.places
            return torch.empty(*places.shape, self.spec.hidden, device="meta")
        if not self.family.SEGMENTS:
            segments = None
        if queries is not None:
            assert self.family.query_states is not None, "`with_query_stream` checks the family"
            return self.family.query_states(self.model, ids, queries, segments, self.special.mask, self.plain)
        compute = self.family.plain_states if self.plain and self.family.plain_states else self.family.states
        hidden: Tensor = compute(self.model, ids, attention, segments)
        if self.family.source and (not isinstance(hidden, Tensor) or hidden.shape != (*ids.shape, self.spec.hidden)):
            raise InputError(own_layout.wrong_states(self.family.file, hidden, ids, self.spec.hidden))
        return hidden

    def states_at(self, ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
        """Return the hidden states (B, D) at one position of each row, places (B,), for use without gradients."""
        if self.family.states_at is not None and not self.plain and attention is None:
            states = self.family.states_at(self.model, ids, places)
            if states is not None:
                return states
        hidden: Tensor = self(ids, attention)
        return hidden[torch.arange(len(ids), device=ids.device), places]

    def with_query_stream(self) -> Encoder:
        """Return this encoder, with the first vector of its query stream trained.

        Raises InputError for a family that has no query stream, and for a causal encoder.
        """
        if self.spec.causal:
            raise InputError(
                "encoder.causal=true: a query stream predicts tokens in any order, and not only from left to right; "
                "set encoder.causal=unset"
            )
        if self.family.query_states is None:
            known = " and ".join(each.name for each in built_in() if each.query_states is not None)
            raise InputError(
                f"encoder.family={self.spec.family} has no second stream of states that do not see their own token; "
                f"choose one of {known}"
            )
        self.family.release(self.model, "queries")
        self.predicts_by_query = True
        return self

    @property
    def table(self) -> nn.Embedding:
        """The token embeddings (V, E)."""
        table: nn.Embedding = self.model.get_submodule(self.family.TABLE)
        return table

    def save(self, folder: Path) -> None:
        """Write the backbone alone, as `AutoModel.from_pretrained(folder)` loads it if the family has a hub format.

        Raises InputError if the `to_hub` of a family's file writes no settings or no weights.
        """
        weights = plain_weights(self.model)
        if self.family.to_hub is not None:
            self.family.to_hub(self.model, weights, folder)
        else:
            own_layout.write(self.spec, weights, folder)
        if self.family.source:
            if not all((folder / name).is_file() for name in (own_layout.SETTINGS, own_layout.WEIGHTS)):
                raise InputError(
                    f"{self.family.file}: to_hub(model, weights, folder) wrote no {own_layout.SETTINGS} or no "
                    f"{own_layout.WEIGHTS}"
                )
            parts = {"config": self.spec, "special": self.special}
            family = {name: part.model_dump(mode="json") for name, part in parts.items()}
            own_layout.add_entry(folder, family=family)


def build_encoder(spec: RunSpec) -> Encoder:
    """Return the main encoder with its initial weights, which depend only on the seed and the sizes of the encoder."""
    with seeded(spec.seed, "init", "encoder"):
        encoder = Encoder(spec.encoder, spec.data.special)
    if spec.data.pairs is not None:  # rows have two segments
        encoder.family.release(encoder.model, "segments")
    return encoder


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a state dict in which a disentangled table is replaced by its sum."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, part in model.named_modules():
        if parametrize.is_parametrized(part, "weight"):
            del weights[f"{name}.parametrizations.weight.original"]
            weights[f"{name}.weight"] = part.weight.detach()
    return weights


# ----------------------------------------
# Initial weights of encoders and heads: random ones, and positions that can be told apart from the first step on.

PROJECTIONS = ("embeddings_project", "embedding_hidden_mapping_in", "embed_proj")  # of embeddings, in all families


@contextmanager
def seeded(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed torch's CPU random numbers from a stream inside the block, and restore their former state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, *stream))
        yield


def initialise(module: nn.Module, std: float) -> None:
    """Initialise the weights of a module in place (docs/electra.md 2).

    Matrices and tables are drawn from a normal distribution of standard deviation `std`, truncated at two of these, and
    projections of embeddings by Glorot uniform. Biases and the embedding of padding are 0.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            if name.endswith(PROJECTIONS):
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
            if part.bias is not None:
                nn.init.zeros_(part.bias)


# ----------------------------------------
# Initial weights by which positions can be told from the first step on: sinusoids, and attention to neighbours.
#
# With normally distributed initial weights, an encoder first has to learn which tokens are neighbours. Below Small
# this takes millions of tokens in which all objectives only learn token frequencies (docs/log.md, 2026-11-25).


BASE = 10_000  # of the sinusoids' wavelengths (Vaswani et al. 2017, section 3.5)
# Of `local`, chosen by measurement (docs/log.md, 2026-11-25).
AMPLITUDE = 3.0  # ratio of the standard deviations of the position table and the token table
PAIRS = 6  # sine-cosine pairs of the highest frequencies, which a head of the first layer uses to attend
FACTOR = 1.125  # of the sum of the pairs' products, which is a head's attention logit where tokens add nothing to it


def initialise_positions(
    config: EncoderSpec, table: nn.Embedding, query: Tensor, key: Tensor, project: Tensor | None = None,
    causal: bool = False,
) -> None:  # fmt: skip
    """Initialise the position table, and for `local` the first layer's attention, in place.

    `query` and `key` (D, D) are the first layer's matrices, (out, in), and `project` (D, E) is the projection of the
    embeddings, if there is one. A family that tells positions by distances alone does not call this.
    """
    if config.position_init == "normal" or table.weight.is_meta:  # drawing sines would import torch's compiler
        return
    places, width = table.weight.shape
    local = config.position_init == "local"
    with torch.no_grad():
        table.weight.copy_(sines(places, width) * config.init * math.sqrt(2) * (AMPLITUDE if local else 1.0))
        if local:
            _attend_to_neighbours(config, width, query, key, project, causal or bool(config.causal))


def periods(width: int) -> Tensor:
    """Return the tokens (width / 2,) in which each sinusoid of a table of this width advances by one radian."""
    return BASE ** (torch.arange(0, width, 2) / width)


def sines(places: int, width: int) -> Tensor:
    """Return sines and cosines (places, width) in turn, the highest frequency first."""
    angles = torch.arange(places)[:, None] / periods(width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def _attend_to_neighbours(
    config: EncoderSpec, width: int, query: Tensor, key: Tensor, project: Tensor | None, causal: bool
) -> None:
    """Set query and key weights so that each head of the first layer attends to the token at a fixed offset.

    `width` is the width of the position table. The offsets are 1, -1, 2, -2 ..., or -1, -2 ... if the encoder is
    causal. The query's matrix turns the sinusoids of a position, each a sine and a cosine, into those of the position
    `offset` further; the key's copies them. Their product is greatest where the key has that position, and depends on
    nothing but the distance. Other rows of both matrices stay as they were drawn. If embeddings are projected to the
    width of the layers, the first rows of the projection pass these sinusoids on.
    """
    size = config.hidden // config.head_count
    pairs = min(PAIRS, size // 2, width // 2)
    scale = math.sqrt(FACTOR * math.sqrt(size))
    copied = torch.eye(2 * pairs)
    for head in range(config.head_count):
        offset = -1 - head if causal else (1 + head // 2) * (-1) ** head
        angles = offset / periods(width)[:pairs]
        turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], dim=-1).view(pairs, 2, 2)
        rows = slice(head * size, head * size + 2 * pairs)
        for matrix, part in ((query, torch.block_diag(*turns)), (key, copied)):
            matrix[rows] = 0.0
            matrix[rows, : 2 * pairs] = scale * part
    if project is not None:
        project[: 2 * pairs] = 0.0
        project[: 2 * pairs, : 2 * pairs] = copied


# ----------------------------------------
# Hugging Face's modules as encoders: how built-in families make, compute and read them.
#
# B rows, L positions, D width.


def bert_settings(config: EncoderSpec, special: Special) -> dict[str, Any]:
    """Return the settings of an encoder under the names of `BertConfig`, which many families share."""
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.head_count,
        "intermediate_size": config.ffn_width,
        "max_position_embeddings": config.positions,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": 1e-12,
        "initializer_range": config.init,
        "pad_token_id": special.pad,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
        "is_decoder": bool(config.causal),
        "hidden_act": "gelu",
    }


def like_bert(model_type: str, config: EncoderSpec, special: Special, attention: str = "", **own: Any) -> Any:
    """Return a Hugging Face module of `bert_settings` and `own` settings, with initial weights but for positions."""
    settings = bert_settings(config, special) | own
    model = hugging_face_module(model_type, settings, attention or config.attention)
    initialise(model, config.init)
    return model


def hugging_face_module(model_type: str, settings: dict[str, Any], attention: str) -> Any:
    """Return a Hugging Face module with these settings, without its pooler."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(model_type, **settings)
    config.use_cache = False  # it would keep keys and values of all layers for generating text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModel.from_config(config, attn_implementation=attention)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it would stay untrained: fine-tuning uses the [CLS] state itself (docs/electra.md 2)
    # It looks for padding in every batch without a mask, for which a GPU must be waited for; such rows are full here.
    model.warn_if_padding_and_no_attention_mask = lambda *_: None
    return model


def plain_states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the states (B, L, D) of a Hugging Face module for ids (B, L), attention (B, L), segments (B, L)."""
    kinds = {} if segments is None else {"token_type_ids": segments}
    hidden: Tensor = model(input_ids=ids, attention_mask=attention, **kinds).last_hidden_state
    return hidden


def states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the same as `plain_states`, by our own kernels where these compute the design (`cpu/layers.py`)."""
    if layers.can(model, ids):
        return layers.hidden_states(model, ids, attention, segments)
    return plain_states(model, ids, attention, segments)


def states_at(model: Any, ids: Tensor, places: Tensor) -> Tensor | None:
    """Return the states (B, D) at places (B,) of rows without padding, or None if no kernel of ours computes them."""
    return layers.states_at(model, ids, places) if layers.can(model, ids) else None


def save(model: Any, weights: dict[str, Tensor], folder: Path) -> None:
    """Write a Hugging Face module with these weights as `AutoModel.from_pretrained(folder)` loads it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder, state_dict=weights)
