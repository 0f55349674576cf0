"""The encoder alone, as anybody's Hugging Face model: weights, tokenizer and a card that says where it comes from."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from workbench import __version__
from workbench.models.encoder import Encoder
from workbench.spec import RunSpec

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "spiece.model", "sentencepiece.bpe.model", "spm.model",
)  # fmt: skip


def export(encoder: Encoder, tokenizer: Path, folder: Path, spec: RunSpec, facts: dict[str, Any]) -> None:
    """Fill `folder`, which the caller puts in place whole. `facts` are the run's steps, tokens and FLOPs."""
    try:
        encoder.save(folder)
    except SafetensorError as error:  # it wraps what the system says
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(folder)) from None
        raise
    for file in tokenizer.iterdir():
        if file.name in TOKENIZER_FILES:
            shutil.copyfile(file, folder / file.name)
    (folder / "README.md").write_text(card(spec, facts), encoding="utf-8")


def card(spec: RunSpec, facts: dict[str, Any]) -> str:
    """A model card: what was trained, on what, for how long, and how to load it."""
    trained = (
        f"It was pre-trained with the objective `{spec.objective}` ({spec.recipe} recipe) for "
        f"{facts['steps']:,} steps, {facts['tokens']:,} tokens, "
        f"{float(facts['flops']['paper']):.4g} training FLOPs in the paper's convention."
        if facts["steps"]
        else "It holds the initial weights of its seed and was not trained: a baseline."
    )
    return f"""---
library_name: transformers
tags: [fill-mask, encoder, {spec.encoder.family}]
---
# {spec.run_id}

A text encoder of {spec.encoder.layers} layers x {spec.encoder.hidden} ({spec.encoder.family}), seed {spec.seed}.
{trained}

- corpus: {", ".join(spec.data.corpus)} (fingerprint `{spec.data.fingerprint}`), rows of {spec.data.length} tokens
- tokenizer: {spec.data.tokenizer}, {spec.encoder.vocab} entries
- made by workbench {__version__}, after Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators
  Rather Than Generators"

```python
from transformers import AutoModel, AutoTokenizer

encoder, tokenizer = AutoModel.from_pretrained("."), AutoTokenizer.from_pretrained(".")
hidden = encoder(**tokenizer("Some text.", return_tensors="pt")).last_hidden_state
```
"""
