"""Folders that others made, in the Hugging Face layout: why one of them cannot be used. Code in it is never run."""

from __future__ import annotations

from pathlib import Path

from workbench.files import read_object

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
SETTINGS = ("config.json", "tokenizer_config.json")


def why(folder: Path, error: Exception) -> str:
    """What a person can do something about, else the first line of what the library said."""
    for name in SETTINGS:
        try:
            if "auto_map" in read_object(folder / name):
                return f"{name} asks for code of its own (auto_map), which is never run; take one without"
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as damage:
            return str(damage)
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled and not any(folder.glob("*.safetensors")):
        return f"{pickled[0]} holds pickled weights, which can run code when read; convert them to safetensors"
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
