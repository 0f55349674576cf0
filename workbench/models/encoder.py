"""Encoders of every family, as functions of ids, attention and segments (`families.py` has the contract).

B rows, L positions, D width.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.errors import InputError
from workbench.models import own_layout
from workbench.models.families import built_in, family_of
from workbench.models.initial_weights import initialise as initialise
from workbench.models.initial_weights import seeded as seeded
from workbench.models.two_streams import Queries
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
        self.family = family_of(spec)
        self._check()
        self.model = self.family.build(spec, special)
        if self.family.source:
            self._check_built()

    def _check(self) -> None:
        """Raise InputError for sizes that the family does not have."""
        spec, family = self.spec, self.family
        if not family.OWN_WIDTH and spec.embedding_width != spec.hidden:
            raise InputError(
                f"encoder.embedding={spec.embedding_width} must equal encoder.hidden={spec.hidden} "
                f"for encoder.family={spec.family}, which has no projection between them"
            )
        if spec.causal and family.CAUSAL == "never":
            known = ", ".join(each.name for each in built_in() if each.CAUSAL != "never")
            raise InputError(f"encoder.family={spec.family} cannot be causal; there are {known}")

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
        return _for_rows(Encoder(spec.encoder, spec.data.special), spec)


def _for_rows(encoder: Encoder, spec: RunSpec) -> Encoder:
    """Return the encoder, with its weights for segments trained if the rows of the spec have two."""
    if spec.data.pairs is not None:
        encoder.family.release(encoder.model, "segments")
    return encoder


def build_generator_body(encoder: Encoder, spec: RunSpec) -> Encoder:
    """Return the encoder of the generator, which shares weights with the main encoder (docs/electra.md 2).

    `spec.tying` says which. `none`: it has tables of its own, at its own width. `tokens`: the token table is shared.
    `embeddings`: token, position and segment tables and the layer norm of the embeddings are shared; families without
    a module of all these, such as XLNet, share the token table alone. `all`: it is the main encoder. `gdes`: the token
    table is the generator's, and the main encoder uses this table plus a residual (`Disentangled`). Raises InputError
    if a family cannot share tables between different widths.
    """
    if spec.tying == "all":
        return encoder
    sizes, family = spec.generator_encoder, encoder.family
    if spec.tying != "none" and not family.OWN_WIDTH and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying={spec.tying} needs generator.width=1 with encoder.family={sizes.family}, which has no projection "
            f"between embeddings and layers; set tying=none or generator.width=1"
        )
    if spec.tying == "embeddings" and family.PROJECTS_INSIDE and sizes.hidden != spec.encoder.hidden:
        raise InputError(
            f"tying=embeddings needs generator.width=1 with encoder.family={sizes.family}, whose embeddings end at the "
            f"width of its layers; set tying=tokens or generator.width=1"
        )
    with seeded(spec.seed, "init", "generator"):
        body = _for_rows(Encoder(sizes, spec.data.special), spec)
    if spec.tying == "embeddings" and family.EMBEDDINGS:
        body.model.set_submodule(family.EMBEDDINGS, encoder.model.get_submodule(family.EMBEDDINGS))
    elif spec.tying in ("tokens", "embeddings"):
        body.model.set_submodule(family.TABLE, encoder.table)
    elif spec.tying == "gdes":
        body.model.set_submodule(family.TABLE, copy.deepcopy(encoder.table))
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
