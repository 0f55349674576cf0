"""Checks of a tokenizer's files, before a library reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.data.hugging_face.configuration import kind_of
from workbench.data.hugging_face.entries import LARGEST_VOCABULARY, read_settings, regular_files
from workbench.data.hugging_face.weights import INDEX, SINGLE, check_weights
from workbench.errors import InputError
from workbench.store.atomic import loads, read_bytes

VOCABULARIES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = (*VOCABULARIES, "merges.txt", *SETTINGS)
MOST_GROWTH = 100  # characters that a normaliser may write for one; usual ones write 1 to 3
NO_LIMIT = 1 << 24  # transformers writes 1e30 if there is no limit
JAPANESE, DICTIONARIES = "BertJapaneseTokenizer", ("ipadic", "unidic", "unidic_lite")
CLASS = re.compile(r"[A-Za-z0-9]{1,60}(Tokenizer|TokenizerFast|Backend)")


def check_tokenizer_folder(folder: Path) -> dict[str, Path]:
    """Return the files of the tokenizer in a folder by name. Raises InputError if a library must not read them."""
    files = {name: path for name, path in regular_files(folder).items() if name in TOKENIZER_FILES}
    if not any(name in files for name in VOCABULARIES):  # transformers would make an empty vocabulary
        raise InputError(f"{folder} holds no tokenizer: there is no tokenizer.json")
    for name, path in files.items():
        if path.stat().st_size > LARGEST_VOCABULARY:
            raise InputError(f"{folder}: {name} has {path.stat().st_size} bytes, more than the largest vocabulary")
    settings = {name: read_settings(folder, name, files[name]) for name in SETTINGS if name in files}
    _check_settings(folder, settings.get("tokenizer_config.json", {}))
    if "tokenizer.json" in files:
        raw = read_settings(folder, "tokenizer.json", files["tokenizer.json"], LARGEST_VOCABULARY)
        _check_vocabulary(folder, raw)
        if (growth := _growth(raw.get("normalizer"))) > MOST_GROWTH:
            raise InputError(
                f"{folder}: tokenizer.json has a normalizer that may write {growth:.3g} characters for one; "
                f"at most {MOST_GROWTH} are allowed"
            )
    elif "vocab.json" in files and not read_settings(folder, "vocab.json", files["vocab.json"], LARGEST_VOCABULARY):
        raise InputError(f"{folder}: vocab.json holds no tokens")
    elif "vocab.txt" in files and not files["vocab.txt"].stat().st_size:
        raise InputError(f"{folder}: vocab.txt holds no tokens")
    return files


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    kind = settings.get("tokenizer_class")
    if kind is not None and not (isinstance(kind, str) and CLASS.fullmatch(kind)):
        raise InputError(f"{folder}: tokenizer_config.json has tokenizer_class={ascii(kind)[:60]}, not a tokenizer")
    words = settings.get("mecab_kwargs")
    if words and not (isinstance(words, dict) and words.keys() == {"mecab_dic"} and words["mecab_dic"] in DICTIONARIES):
        raise InputError(
            f"{folder}: tokenizer_config.json has mecab_kwargs={ascii(words)[:60]}; only a dictionary "
            f"(mecab_dic) that is one of {', '.join(DICTIONARIES)} can be named there"
        )
    length = settings.get("model_max_length")
    if length is not None and (not isinstance(length, (int, float)) or isinstance(length, bool) or length < 8):
        raise InputError(
            f"{folder}: tokenizer_config.json has model_max_length={ascii(length)[:40]}, and it must be at least 8"
        )


def _check_vocabulary(folder: Path, raw: Mapping[str, Any]) -> None:
    """Raise InputError if tokenizer.json has no tokens besides special ones."""
    model = raw.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, (dict, list)):
        raise InputError(f"{folder}: tokenizer.json holds no tokenizer that can be loaded: its model has no vocabulary")
    added = raw.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise InputError(f"{folder}: tokenizer.json has added_tokens that are not a list of objects")
    special = {ascii(token.get("content")) for token in added}
    first = (entry[0] if isinstance(entry, list) and entry else entry for entry in vocabulary)
    if all(ascii(token) in special for token in first):
        raise InputError(f"{folder}: tokenizer.json holds no tokens besides special ones, so it encodes no text")


def _growth(normalizer: Any) -> float:
    """Return how many characters a normaliser may write for one character; for a sequence of steps, their product.

    Ten successive replacements of a letter by a thousand would fill any memory before a time limit is reached. The
    result is 1 for what is not a normaliser, since the library refuses it.
    """
    if not isinstance(normalizer, dict):
        return 1
    if normalizer.get("type") == "Sequence" and isinstance(steps := normalizer.get("normalizers"), list):
        return math.prod(map(_growth, steps), start=1.0)
    written = normalizer.get("content", normalizer.get("prepend"))
    return max(1, len(written)) if isinstance(written, str) else 1


def kind_in(path: Path) -> str | None:
    """Return the kind of model in a tokenizer.json that was checked, such as Unigram; None if old files name none."""
    kind = loads(read_bytes(path, LARGEST_VOCABULARY))["model"].get("type")
    return str(kind) if kind else None


def longest_text(folder: Path) -> int | None:
    """Return how many tokens a folder's tokenizer allows in a text (model_max_length); None if it has no limit."""
    path = check_tokenizer_folder(folder).get("tokenizer_config.json")
    length = read_settings(folder, "tokenizer_config.json", path).get("model_max_length") if path else None
    return int(length) if length is not None and length < NO_LIMIT else None


def kind_of_tokenizer(folder: Path) -> dict[str, str] | None:
    """Return the settings of config.json that name a tokenizer's type, which old ones need; None if there are none.

    A tokenizer whose settings name a tokenizer of words (MeCab) is Japanese BERT's, whatever the type of its model is:
    some of these folders do not say so, and another tokenizer would read whole sentences as one word.
    """
    files = regular_files(folder)
    raw = read_settings(folder, "config.json", files["config.json"]) if "config.json" in files else {}
    kind, name = raw.get("model_type"), raw.get("tokenizer_class")
    if raw and kind is None and (SINGLE in files or INDEX in files):
        kind = kind_of(raw, check_weights(folder, files)[1])
    own = files.get("tokenizer_config.json")
    if own and name is None and "word_tokenizer_type" in read_settings(folder, "tokenizer_config.json", own):
        kind, name = kind or "bert", JAPANESE
    settings = {"model_type": kind} if isinstance(kind, str) and re.fullmatch(r"[a-z0-9_-]{1,60}", kind) else {}
    if settings and isinstance(name, str) and CLASS.fullmatch(name):
        settings["tokenizer_class"] = name
    return settings or None
