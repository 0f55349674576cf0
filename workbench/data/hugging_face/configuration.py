"""Checks of config.json: an encoder must have a supported model type, and sizes that can be built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import InputError

# Model types of transformers with one stack of layers over text, by the position that attends to the whole text.
FIRST = frozenset({
    "albert", "bert", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra",
    "ernie", "esm", "eurobert", "ibert", "layoutlm", "megatron-bert", "mobilebert", "modernbert", "mpnet", "mra",
    "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "squeezebert", "xlm-roberta",
    "xlm-roberta-xl", "yoso",
})  # fmt: skip
CAUSAL = frozenset({
    "biogpt", "bloom", "codegen", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo",
    "gpt_neox", "gptj", "granite", "llama", "mistral", "modernbert-decoder", "mpt", "nemotron", "olmo", "olmo2",
    "openai-gpt", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2", "xglm",
})  # fmt: skip
LAST = frozenset({"xlnet"})  # attends to both sides; the last position of a row is read
KINDS = FIRST | CAUSAL | LAST

ATTENTION = ("eager", "sdpa")
HOW = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")

_LAYERS, _WIDTH, _HEADS, _COUNT = (1, 256), (1, 1 << 20), (1, 1 << 14), (0, 1 << 20)
SIZES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _LAYERS),
    **dict.fromkeys(("num_hidden_groups", "inner_group_num", "num_feedforward_networks"), _LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "emb_dim", "embedding_size"), _WIDTH),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_inner", "ffn_dim", "hidden_dim"), _WIDTH),
    **dict.fromkeys(("true_hidden_size", "word_embed_proj_dim"), _WIDTH),
    **dict.fromkeys(("head_dim", "d_head", "intra_bottleneck_size", "conv_kernel_size", "rotary_dim"), _WIDTH),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_key_value_heads", "num_kv_heads"), _HEADS),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), (1, 1 << 24)),
    "vocab_size": (1, 1 << 27), "type_vocab_size": _COUNT, "num_labels": _COUNT, "head_ratio": _LAYERS,
}  # fmt: skip
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")
_HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads")
_EPSILONS = ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps")
_DROPPED = {*HOW, "auto_map", "_name_or_path", "name_or_path", "transformers_version", "torch_dtype", "dtype"}


def kind_of(raw: Mapping[str, Any], tensors: Iterable[str]) -> str | None:
    """Return the model type by config.json, or else by the names of weights or of the class; None if none says it.

    Configurations of 2020 may lack `model_type`; their weights have names such as `electra.embeddings...`.
    """
    named = raw.get("model_type")
    if named is not None:
        return named if isinstance(named, str) else None
    starts = {name.partition(".")[0].replace("_", "-") for name in tensors} & KINDS
    classes = raw.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    starts = starts or {re.split(r"For|Model|LMHead", first)[0].lower()} & KINDS
    return starts.pop() if len(starts) == 1 else None


def check_configuration(folder: Path, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of config.json that a library may read. Raises InputError naming the key that is wrong."""
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(
            f"{folder} cannot be loaded as an encoder: model_type {ascii(kind)[:60]} in config.json is not one of the "
            f"supported ones ({', '.join(sorted(FIRST | LAST)[:8])} ..., and causal language models such as gpt2)"
        )
    for key in HOW:
        if raw.get(key) not in (None, *ATTENTION):
            raise InputError(
                f"{folder}: config.json requests the attention {ascii(raw[key])[:60]} ({key}), and only "
                f"{' and '.join(ATTENTION)} are supported; remove that line"
            )
    for key in ("quantization_config", "is_encoder_decoder", "use_kernels", "pruned_heads"):
        if raw.get(key):
            raise InputError(f"{folder}: config.json has {key}, which is not supported; choose another encoder")
    if str(raw.get("position_embedding_type")).startswith("relative"):  # once of BERT's, and ignored by the library
        raise InputError(
            f"{folder}: config.json has position_embedding_type={ascii(raw['position_embedding_type'])[:40]}, and "
            f"positions relative to one another are no longer computed; choose another encoder"
        )
    _check_sizes(folder, raw)
    return {key: value for key, value in raw.items() if key not in _DROPPED}


def _check_sizes(folder: Path, raw: Mapping[str, Any]) -> None:
    for key, (least, most) in SIZES.items():
        value = raw.get(key)
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise InputError(
                f"{folder}: config.json has {key}={ascii(value)[:40]}, and it must be a whole number "
                f"from {least} to {most}"
            )
    for key in _EPSILONS:
        value = raw.get(key)
        if isinstance(value, (int, float)) and not 0 < value <= 1:
            raise InputError(
                f"{folder}: config.json has {key}={ascii(value)[:40]}, and it must be above 0 and at most 1"
            )
    for key in ("is_decoder", "causal"):
        if not isinstance(raw.get(key, False), bool | None):
            raise InputError(f"{folder}: config.json has {key}={ascii(raw[key])[:40]}, and it must be true or false")
    pad, vocab = raw.get("pad_token_id"), raw.get("vocab_size")
    if pad is not None and (type(pad) is not int or pad < -1 or (vocab is not None and pad >= vocab)):
        raise InputError(f"{folder}: config.json has pad_token_id={ascii(pad)[:40]}, not an id of its vocabulary")
    width, heads = first_of(raw, _WIDTH_KEYS), first_of(raw, _HEAD_KEYS)
    if width and heads and width % heads and not ({"head_dim", "d_head"} & raw.keys()):
        raise InputError(
            f"{folder}: config.json has a width of {width}, which is not a multiple of its {heads} attention heads"
        )


def layers_of(raw: Mapping[str, Any]) -> int | None:
    """Return the number of layers in config.json; None if it sets none, so that the library's default applies."""
    return first_of(raw, _LAYER_KEYS)


def first_of(raw: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """Return the value of the first of these keys that is set; None if none is set."""
    return next((raw[key] for key in keys if raw.get(key) is not None), None)
