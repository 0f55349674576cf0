"""Write the weights of a published BERT encoder under the names of ELECTRA, whose layers compute the same.

    python experiments/benchmarks/as_electra.py BERT_FOLDER OUT_FOLDER

So the benchmarks of fine-tuning have an encoder that has learnt, and both sides its fast code for ELECTRA, where no
trained ELECTRA is at hand. Checks on a few tokens that both folders give the same states. The pooler is left out.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
UNUSED = ("pooler.", "embeddings.position_ids")


def convert(source: Path, out: Path) -> None:
    """Write the encoder and its tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    if config["model_type"] != "bert":
        raise SystemExit(f"{source} holds {config['model_type']!r} and not a BERT encoder")
    sizes = {"model_type": "electra", "architectures": ["ElectraModel"], "embedding_size": config["hidden_size"]}
    (out / "config.json").write_text(json.dumps(config | sizes, indent=2) + "\n")
    weights = {name.removeprefix("bert."): each for name, each in load_file(source / "model.safetensors").items()}
    save_file(
        {f"electra.{name}": each for name, each in weights.items() if not name.startswith(UNUSED)},
        out / "model.safetensors",
        {"format": "pt"},
    )
    for name in TOKENIZER:
        if (source / name).is_file():
            shutil.copy(source / name, out / name)


def check(source: Path, out: Path) -> None:
    """Exit if the two encoders give different states of random tokens."""
    from transformers import AutoModel

    ids = torch.randint(0, 1000, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        one, other = (AutoModel.from_pretrained(folder).eval()(ids).last_hidden_state for folder in (source, out))
    if not torch.allclose(one, other, atol=1e-5):
        raise SystemExit(f"{out} does not compute what {source} does: {(one - other).abs().max():g}")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
    check(Path(sys.argv[1]), Path(sys.argv[2]))
