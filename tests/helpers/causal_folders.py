"""Folders of encoders of several families, some of which read their last token."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48}),
    "gpt2 with head": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48}),
    "electra decoder": ("electra", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "electra decoder with head": ("electra", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "bert decoder": ("bert", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "llama": ("llama", {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 48}),
    "xlnet": ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}),
    "bert": ("bert", {**SIZES, "max_position_embeddings": 48}),
}


def build_folder(encoder: Path, kind: str, folder: Path) -> Path:
    from tokenizers import processors
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

    model_type, sizes = KINDS[kind]
    head, unpadded = kind.endswith("head"), kind == "gpt2 with head"
    rows = json.loads((encoder / "config.json").read_text())["vocab_size"]
    special = {"vocab_size": rows, "pad_token_id": None if unpadded else 0, "bos_token_id": 2, "eos_token_id": 3}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, initializer_range=0.2, **special, **sizes)
        (AutoModelForCausalLM if head else AutoModel).from_config(config).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(encoder)
    templates = {"gpt2": ("$A", "$A $B"), "llama": ("[CLS] $A", "[CLS] $A $B"), "xlnet": ("$A [SEP] [CLS]",) * 2}
    if model_type in templates:
        single, pair = templates[model_type]
        inner = tokenizer.backend_tokenizer
        inner.post_processor = processors.TemplateProcessing(
            single=single, pair=pair if "$B" in pair else "$A [SEP] $B:1 [SEP]:1 [CLS]:2",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )  # fmt: skip
    tokenizer.eos_token = "[SEP]"
    if unpadded:
        tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    return folder
