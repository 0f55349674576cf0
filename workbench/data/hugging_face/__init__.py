"""Checks of folders that others made, in the Hugging Face layout, before a library opens any file in them.

Files must be regular, weights safetensors with true headers, sizes such that they can be built, and no setting may
request code or a download. A library reads a `view`: a temporary folder of checked settings and links to checked files.
"""

from __future__ import annotations

from workbench.data.hugging_face.checks import (
    CAUSAL,
    LAST,
    OWN,
    EncoderFiles,
    check_configuration,
    check_encoder_folder,
    check_tokenizer_folder,
    kind_in,
    kind_of_tokenizer,
    longest_text,
)
from workbench.data.hugging_face.folders import INDEX, PICKLED_FILE, SINGLE, TOKENIZER_FILES, in_time, refusing, view
from workbench.data.hugging_face.weights import with_safetensors

# The files of a model that are read, as patterns for a download; pickled weights are apart.
MODEL_FILES = ("config.json", SINGLE, INDEX, "model-*.safetensors", *TOKENIZER_FILES)

__all__ = [
    "CAUSAL", "LAST", "MODEL_FILES", "OWN", "PICKLED_FILE", "TOKENIZER_FILES", "EncoderFiles", "check_configuration",
    "check_encoder_folder", "check_tokenizer_folder", "in_time", "kind_in", "kind_of_tokenizer", "longest_text",
    "refusing", "view", "with_safetensors",
]  # fmt: skip
