"""DeBERTaV3 (He et al. 2023): DeBERTa with 256 buckets of distances on each side, and no table of positions."""

from __future__ import annotations

import functools
from typing import Any

from workbench.encoders import deberta_v2
from workbench.models import encoder, flops
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = deberta_v2.TABLE, deberta_v2.EMBEDDINGS, deberta_v2.LAYERS
OWN_WIDTH, PROJECTS_INSIDE = True, True
BUCKETS = 256  # of distances on each side
cost = functools.partial(flops.transformer, relative=2 * BUCKETS)  # products of queries and keys with the buckets
plain_states, states = encoder.plain_states, encoder.states
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `DebertaV2Model` with the settings of version 3 and initial weights."""
    return deberta_v2.relative(
        config, special, position_buckets=BUCKETS, share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False,
    )  # fmt: skip
