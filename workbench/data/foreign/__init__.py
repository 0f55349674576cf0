"""Folders that others made, in the Hugging Face layout, checked before a library opens anything in them.

What is checked: that every file is a regular one inside the folder, that weights are safetensors whose headers fit
their files, that config.json describes sizes that can be built, and that nothing asks for code or for a download. What
a library then reads is a `view`: a temporary folder with checked settings and links to checked files, and no more.
"""

from __future__ import annotations

from workbench.data.foreign.configuration import CAUSAL, LAST, check_configuration
from workbench.data.foreign.encoder_folder import EncoderFiles, check_encoder_folder
from workbench.data.foreign.patience import in_time
from workbench.data.foreign.tokenizer_folder import (
    TOKENIZER_FILES,
    check_tokenizer_folder,
    kind_of_tokenizer,
    longest_text,
)
from workbench.data.foreign.view import refusing, view

__all__ = [
    "CAUSAL", "LAST", "TOKENIZER_FILES", "EncoderFiles", "check_configuration", "check_encoder_folder",
    "check_tokenizer_folder", "in_time", "kind_of_tokenizer", "longest_text", "refusing", "view",
]  # fmt: skip
