"""Encoders: Hugging Face backbones as functions of (ids, attention). Their families are in `families.py`.

B rows, L positions, D width.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.cpu import layers
from workbench.errors import InputError
from workbench.models import two_streams, xlnet
from workbench.models.electra import Config, Electra, hugging_face
from workbench.models.families import FAMILIES, Family, family_of
from workbench.models.two_streams import Queries
from workbench.rng import seed_of
from workbench.spec.parts import EncoderSpec, Special
from workbench.spec.run_spec import RunSpec


class Encoder(nn.Module):
    """A backbone without pooler or head.

    `model` is an `Electra` for that family and Hugging Face's module for any other. On a CPU, `cpu/layers.py` computes
    the families of BERT's design (`cpu/designs.py`); if `plain`, Hugging Face's module always does. If `hollow`, the
    states are meta tensors, which have a shape and no values.
    """

    plain = False
    hollow = False
    predicts_by_query = False  # whether heads were trained on the query stream, and not on `forward`
    _twin: tuple[Any, ...] = ()  # Hugging Face's module over the same weights; a tuple hides it from torch

    def __init__(self, spec: EncoderSpec, special: Special) -> None:
        super().__init__()
        self.spec, self.special = spec, special
        self.model = _backbone(spec, special)
        self.has_segments = family_of(spec).distances or getattr(self.model.config, "type_vocab_size", 0) > 1

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
        if not self.has_segments:
            segments = None
        if queries is not None:
            return self._query_states(ids, queries, segments)
        if layers.can(self.model, ids) and not self.plain:
            return layers.hidden_states(self.model, ids, attention, segments)
        if family_of(self.spec).distances and not self.plain:
            return xlnet.hidden_states(self.model, ids, attention, segments)
        model = self._hugging_face() if self.plain else self.model
        mask = attention.long() if attention is not None and family_of(self.spec).distances else attention  # 1 - mask
        kinds = {} if segments is None else {"token_type_ids": segments}
        hidden: Tensor = model(input_ids=ids, attention_mask=mask, **kinds).last_hidden_state
        return hidden

    def states_at(self, ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
        """Return the hidden states (B, D) at one position of each row, places (B,), for use without gradients."""
        if layers.can(self.model, ids) and not self.plain and attention is None:
            return layers.states_at(self.model, ids, places)
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
        if not family_of(self.spec).two_streams:
            known = " and ".join(name for name, each in FAMILIES.items() if each.two_streams)
            raise InputError(
                f"encoder.family={self.spec.family} has no second stream of states that do not see their own token; "
                f"choose one of {known}"
            )
        if family_of(self.spec).distances:
            self.model.mask_emb.requires_grad_(True)
        self.predicts_by_query = True
        return self

    def _query_states(self, ids: Tensor, queries: Queries, segments: Tensor | None) -> Tensor:
        if family_of(self.spec).distances:
            compute = xlnet.plain_query_states if self.plain else xlnet.query_states
            return compute(self.model, ids, queries, segments)
        return two_streams.electra_states(self.model, ids, queries, self.special.mask, self.plain, segments)

    def _hugging_face(self) -> Any:
        if not isinstance(self.model, Electra):
            return self.model
        self._twin = self._twin or (hugging_face(self.model),)
        return self._twin[0].train(self.training)

    @property
    def table(self) -> nn.Embedding:
        """The token embeddings (V, E)."""
        table: nn.Embedding = self.model.get_input_embeddings()
        return table

    def save(self, folder: Path) -> None:
        """Write the backbone alone in the Hugging Face layout, which `AutoModel.from_pretrained(folder)` loads."""
        if isinstance(self.model, Electra):
            self.model.save(folder, plain_weights(self.model))
            return
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model.save_pretrained(folder, state_dict=plain_weights(self.model))


def build_encoder(spec: RunSpec) -> Encoder:
    """Return the main encoder with its initial weights, which depend only on the seed and the sizes of the encoder."""
    with seeded(spec.seed, "init", "encoder"):
        return _for_rows(Encoder(spec.encoder, spec.data.special), spec)


def _for_rows(encoder: Encoder, spec: RunSpec) -> Encoder:
    """Return the encoder, with its weights for segments trained if the rows of the spec have two."""
    if spec.data.pairs is not None and family_of(encoder.spec).distances:
        xlnet.train_segments(encoder.model)
    return encoder


def build_generator_body(encoder: Encoder, spec: RunSpec) -> Encoder:
    """Return the encoder of the generator, which shares weights with the main encoder (docs/electra.md 2).

    `spec.tying` says which. `none`: it has tables of its own, at its own width. `tokens`: the token table is shared.
    `embeddings`: token, position and segment tables and the layer norm of the embeddings are shared; of these, XLNet
    has the token table alone. `all`: it is the main encoder. `gdes`: the token table is the generator's, and the main
    encoder uses this table plus a residual (`Disentangled`). Raises InputError if a family cannot share tables between
    different widths.
    """
    if spec.tying == "all":
        return encoder
    sizes = spec.generator_encoder
    family = family_of(sizes)
    if spec.tying != "none" and family.embedding is None and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying={spec.tying} needs generator.width=1 with encoder.family={sizes.family}, which has no projection "
            f"between embeddings and layers; set tying=none or generator.width=1"
        )
    if spec.tying == "embeddings" and family.projects_inside and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying=embeddings needs generator.width=1 with encoder.family={sizes.family}, whose embeddings end at the "
            f"width of its layers; set tying=tokens or generator.width=1"
        )
    with seeded(spec.seed, "init", "generator"):
        body = _for_rows(Encoder(sizes, spec.data.special), spec)
    if spec.tying == "tokens" or (spec.tying == "embeddings" and family_of(spec.encoder).distances):
        body.model.set_input_embeddings(encoder.table)
    elif spec.tying == "embeddings":
        body.model.embeddings = encoder.model.embeddings
    elif spec.tying == "gdes":
        body.model.set_input_embeddings(copy.deepcopy(encoder.table))
        parametrize.register_parametrization(encoder.table, "weight", Disentangled(body.table))
    return body


class Disentangled(nn.Module):
    """Gradient-disentangled embedding sharing (He et al. 2021, DeBERTaV3): E_D = stop_gradient(E_G) + residual.

    The main loss trains only the residual, the generator's loss only E_G. The residual starts at 0, so that the main
    encoder has the same initial weights as without sharing. The sum is what is saved.
    """

    def __init__(self, shared: nn.Embedding) -> None:
        super().__init__()
        self._shared = (shared,)  # a tuple hides it from torch: its weights belong to the generator

    def forward(self, residual: Tensor) -> Tensor:
        """Return the token table (V, E) of the main encoder."""
        return residual + self._shared[0].weight.detach()

    def right_inverse(self, table: Tensor) -> Tensor:
        """Return the residual (V, E) for which `forward` returns `table`."""
        return table - self._shared[0].weight.detach()


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a state dict in which a disentangled table is replaced by its sum."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, part in model.named_modules():
        if parametrize.is_parametrized(part, "weight"):
            del weights[f"{name}.parametrizations.weight.original"]
            weights[f"{name}.weight"] = part.weight.detach()
    return weights


@contextmanager
def seeded(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed torch's CPU random numbers from a stream inside the block, and restore their former state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, *stream))
        yield


def _backbone(spec: EncoderSpec, special: Special) -> Any:
    family = family_of(spec)
    if family.embedding is None and spec.embedding_width != spec.hidden:
        raise InputError(
            f"encoder.embedding={spec.embedding_width} must equal encoder.hidden={spec.hidden} "
            f"for encoder.family={spec.family}, which has no projection between them"
        )
    if family.distances and spec.attention_dropout != spec.dropout:
        raise InputError(
            f"encoder.attention_dropout={spec.attention_dropout:g} must equal encoder.dropout={spec.dropout:g} for "
            f"encoder.family={spec.family}, which has one rate of dropout"
        )
    if spec.causal and not family.can_be_causal:
        known = ", ".join(name for name, each in FAMILIES.items() if each.can_be_causal)
        raise InputError(f"encoder.family={spec.family} cannot be causal; there are {known}")
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
        "is_decoder": bool(spec.causal),
        "hidden_act": "gelu",
    }
    sizes |= {family.embedding: spec.embedding_width} if family.embedding else {}
    if spec.family == "electra":
        model: Any = Electra(Config(**sizes, attention=spec.attention))
    else:
        model = _foreign(family, sizes, "eager" if family.only_eager else spec.attention)
    if family.initial == "gpt2":
        initialise_gpt2(model, spec.init, spec.layers)
    elif family.initial == "modernbert":
        initialise_modernbert(model, spec.init, spec.layers)
    elif family.initial == "xlnet":
        xlnet.initialise(model, spec.init)
    else:
        initialise(model, spec.init)
    initialise_positions(model, spec)
    return model


def _foreign(family: Family, sizes: dict[str, Any], attention: str) -> Any:
    """Return a Hugging Face module of these sizes, without its pooler."""
    from transformers import AutoConfig, AutoModel

    named = {name: value for key, value in sizes.items() for name in family.names.get(key, (key,))}
    config = AutoConfig.for_model(family.model_type, **named | family.extra)
    config.use_cache = False  # it would keep keys and values of all layers for generating text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModel.from_config(config, attn_implementation=attention)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it would stay untrained: fine-tuning uses the [CLS] state itself (docs/electra.md 2)
    # It looks for padding in every batch without a mask, for which a GPU must be waited for; such rows are full here.
    model.warn_if_padding_and_no_attention_mask = _no_warning
    return model


def _no_warning(*_: Any) -> None:
    pass


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


def initialise_modernbert(model: Any, std: float, layers: int) -> None:
    """Initialise the weights of Hugging Face's `ModernBertModel` in place, as that class does.

    They are BERT's, except that the projection at the end of each of the two residual branches of a layer is drawn from
    a standard deviation of std / sqrt(2 layers) (Warner et al. 2024, appendix A, "Megatron" initialisation).
    """
    initialise(model, std)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".Wo.weight"):
                weight.div_(math.sqrt(2 * layers))


def initialise_gpt2(model: Any, std: float, layers: int) -> None:
    """Initialise the weights of Hugging Face's `GPT2Model` in place, as the first GPT-2 was.

    Weights are drawn from a normal distribution of standard deviation `std`, except positions, of half of that (the
    released code, openai/gpt-2, `src/model.py`), and the projections at the end of each of the two residual branches of
    a layer, of std / sqrt(2 layers) (Radford et al. 2019, "Language models are unsupervised multitask learners",
    section 2.3, where N is the number of residual layers). Biases are 0, and the weights of layer norms 1.
    """
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
    for name, weight in model.named_parameters():
        if name.endswith(".c_proj.weight"):
            nn.init.normal_(weight, std=std / math.sqrt(2 * layers))
        elif weight.ndim == 2:
            nn.init.normal_(weight, std=std / 2 if name == "wpe.weight" else std)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)


# ----------------------------------------
# Initial weights by which positions can be told from the first step on: sinusoids, and attention to neighbours.
#
# With normally distributed initial weights, an encoder first has to learn which tokens are neighbours. Below Small
# this takes millions of tokens in which all objectives only learn token frequencies (docs/log.md, 2026-11-25).


BASE = 10_000  # of the sinusoids' wavelengths (Vaswani et al. 2017, section 3.5)
# Of `local`, chosen by measurement (docs/log.md, 2026-11-25).
AMPLITUDE = 3.0  # standard deviation of the position table, as a multiple of that of the token table
PAIRS = 6  # pairs of a sine and a cosine, those of the highest frequencies, by which a head of the first layer attends
FACTOR = 1.125  # of the sum of the pairs' products, which is a head's attention logit where tokens add nothing to it
PROJECTIONS = ("embeddings_project", "embedding_hidden_mapping_in", "embed_proj")  # of embeddings, in all families


def initialise_positions(model: Any, spec: EncoderSpec) -> None:
    """Initialise the position table, and for `local` the first layer's attention, in place.

    A family that tells positions by distances alone is left as it is. Raises InputError for one without a table.
    """
    path = family_of(spec).positions
    if spec.position_init == "normal" or path is None:
        return
    table = attrgetter(path)(model)
    if table is None:
        raise InputError(
            f"encoder.position_init={spec.position_init}: encoder.family={spec.family} has no position table"
        )
    if table.weight.is_meta:  # a meta tensor holds no numbers, and the sines would import torch's compiler
        return
    places, width = table.weight.shape
    local = spec.position_init == "local"
    with torch.no_grad():
        table.weight.copy_(sines(places, width) * spec.init * math.sqrt(2) * (AMPLITUDE if local else 1.0))
        if local:
            _attend_to_neighbours(model, spec, width)


def periods(width: int) -> Tensor:
    """Return the tokens (width / 2,) in which each sinusoid of a table of this width advances by one radian."""
    return BASE ** (torch.arange(0, width, 2) / width)


def sines(places: int, width: int) -> Tensor:
    """Return sines and cosines (places, width) in turn, the highest frequency first."""
    angles = torch.arange(places)[:, None] / periods(width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def offsets(heads: int, causal: bool) -> list[int]:
    """Return the distance to the token that each head attends to: 1, -1, 2, -2 ..., or -1, -2 ... if it is causal."""
    return [-1 - head if causal else (1 + head // 2) * (-1) ** head for head in range(heads)]


def _attend_to_neighbours(model: Any, spec: EncoderSpec, width: int) -> None:
    """Let the heads of the first layer attend to the tokens at `offsets`, through a table `width` wide.

    The query's matrix turns the sinusoids of a position, each a sine and a cosine, into those of the position `offset`
    further; the key's copies them. Their product is greatest where the key has that position, and depends on nothing
    but the distance. Other rows of both matrices stay as they were drawn. If embeddings are projected to the width of
    the layers, the first rows of the projection pass these sinusoids on.
    """
    size = spec.hidden // spec.head_count
    pairs = min(PAIRS, size // 2, width // 2)
    query, key = _query_and_key(model, spec.hidden)
    scale = math.sqrt(FACTOR * math.sqrt(size))
    copied = torch.eye(2 * pairs)
    causal = bool(spec.causal) or family_of(spec).always_causal
    for head, offset in enumerate(offsets(spec.head_count, causal)):
        angles = offset / periods(width)[:pairs]
        turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], dim=-1).view(pairs, 2, 2)
        rows = slice(head * size, head * size + 2 * pairs)
        for matrix, part in ((query, torch.block_diag(*turns)), (key, copied)):
            matrix[rows] = 0.0
            matrix[rows, : 2 * pairs] = scale * part
    for name, part in model.named_modules():
        if name.endswith(PROJECTIONS):
            part.weight[: 2 * pairs] = 0.0
            part.weight[: 2 * pairs, : 2 * pairs] = copied


def _query_and_key(model: Any, width: int) -> tuple[Tensor, Tensor]:
    """Return the first layer's matrices (width, width) of queries and keys, as views that can be written to."""
    for part in model.modules():
        for query, key in (("query", "key"), ("query_proj", "key_proj")):
            if hasattr(part, query) and hasattr(part, key):
                return getattr(part, query).weight, getattr(part, key).weight
        if hasattr(part, "c_attn"):  # GPT-2's, transposed and side by side
            both = part.c_attn.weight.T
            return both[:width], both[width : 2 * width]
    raise AssertionError("a family with a position table has queries and keys")
