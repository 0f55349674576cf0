"""The families of encoders, as a table: what they are called in Hugging Face, and where they differ from BERT.

This module does not import torch, since plans read the table as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.errors import InputError, suggest
from workbench.spec.parts import EncoderSpec


@dataclass(frozen=True)
class Family:
    """The names by which a Hugging Face model type is configured, and where it differs from BERT.

    `embedding` is the name of the embedding width, or None if embeddings are always as wide as the layers.
    `extra` are settings that every encoder of the family has, and `offset` is the number of positions that it reserves.
    `names` translates BERT's names of settings; a setting without a name there keeps BERT's. `positions` is the path of
    the position table, or None if positions are told by distances alone.
    """

    model_type: str
    embedding: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    offset: int = 0
    projects_inside: bool = False  # the embedding module itself projects to the width of the layers
    always_projects: bool = False  # also if embeddings are as wide as the layers
    can_be_causal: bool = False  # there is a mask with which no position sees a later one
    always_causal: bool = False  # there is no other mask
    only_eager: bool = False  # attention has no fused implementation
    relative: bool = False  # attention also multiplies queries and keys with 2 * positions relative positions
    buckets: int | None = None  # of relative positions on each side, if there are fewer than positions
    distances: bool = False  # layers, dropout and positions are XLNet's (`query_stream/xlnet.py`)
    two_streams: bool = False  # there is a second stream of states that do not see their own token
    tied_head: bool = False  # tokens are predicted by the product with the token table, and nothing before it
    gated: bool = False  # the feed-forward layer multiplies two projections of its input
    initial: Literal["bert", "gpt2", "modernbert", "xlnet"] = "bert"  # whose initial weights its encoders have
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positions: str | None = "embeddings.position_embeddings"


FAMILIES = {
    "electra": Family("electra", "embedding_size", can_be_causal=True, two_streams=True),
    "bert": Family("bert", can_be_causal=True),
    "roberta": Family("roberta", extra={"type_vocab_size": 1}, offset=2, can_be_causal=True),
    "albert": Family("albert", "embedding_size", always_projects=True),
    "deberta-v2": Family(
        "deberta-v2",
        "embedding_size",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        projects_inside=True,
        only_eager=True,
        relative=True,
    ),
    "deberta-v3": Family(
        "deberta-v2",
        "embedding_size",
        {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 256,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
        projects_inside=True,
        only_eager=True,
        relative=True,
        buckets=256,
        positions=None,
    ),
    "modernbert": Family(
        "modernbert",
        gated=True,
        initial="modernbert",
        names={
            "hidden_dropout_prob": ("embedding_dropout", "mlp_dropout"),
            "attention_probs_dropout_prob": ("attention_dropout",),
            "hidden_act": ("hidden_activation",),
            "cls_token_id": ("cls_token_id", "bos_token_id"),
            "sep_token_id": ("sep_token_id", "eos_token_id"),
            **dict.fromkeys(("layer_norm_eps", "is_decoder"), ()),  # the class has its own
        },
        positions=None,
    ),
    "gpt2": Family(
        "gpt2",
        extra={"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
        can_be_causal=True,
        always_causal=True,
        tied_head=True,
        initial="gpt2",
        names={
            "hidden_size": ("n_embd",),
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",),
            "intermediate_size": ("n_inner",),
            "max_position_embeddings": ("n_positions",),
            "hidden_dropout_prob": ("embd_pdrop", "resid_pdrop"),
            "attention_probs_dropout_prob": ("attn_pdrop",),
            "cls_token_id": ("bos_token_id",),
            "sep_token_id": ("eos_token_id",),
            **dict.fromkeys(("hidden_act", "layer_norm_eps", "is_decoder"), ()),  # `extra` has its own
        },
        positions="wpe",
    ),
    "xlnet": Family(
        "xlnet",
        extra={"use_mems_eval": False, "mem_len": None, "reuse_len": None},
        only_eager=True,
        distances=True,
        two_streams=True,
        initial="xlnet",
        names={
            "hidden_size": ("d_model",),
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",),
            "intermediate_size": ("d_inner",),
            "hidden_dropout_prob": ("dropout",),
            "hidden_act": ("ff_activation",),
            "cls_token_id": ("bos_token_id",),
            "sep_token_id": ("eos_token_id",),
            **dict.fromkeys(("max_position_embeddings", "attention_probs_dropout_prob", "is_decoder"), ()),
        },
        positions=None,
    ),
}


def family_of(encoder: EncoderSpec) -> Family:
    """Return the row of the encoder's family. Raises InputError for a name that is not in the table."""
    if encoder.family not in FAMILIES:
        raise InputError(f"unknown encoder.family {encoder.family!r}{suggest(encoder.family, FAMILIES)}")
    return FAMILIES[encoder.family]
