"""Weight tying: which weights the generator shares with the main encoder (`--set tying=`; docs/electra.md 2)."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.nn.utils import parametrize

from workbench.errors import InputError
from workbench.models.encoder import Encoder, seeded
from workbench.spec.run_spec import RunSpec


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
        body = Encoder(sizes, spec.data.special)
    if spec.data.pairs is not None:
        body.family.release(body.model, "segments")
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
        """Return the main encoder's token table (V, E): the generator's table, detached, plus the residual (V, E)."""
        return residual + self._shared[0].weight.detach()

    def right_inverse(self, table: Tensor) -> Tensor:
        """Return the residual (V, E) for which `forward` returns `table`."""
        return table - self._shared[0].weight.detach()
