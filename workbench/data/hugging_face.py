"""Folders that others made, in the Hugging Face layout, checked before a library opens a file; and the model hub.

Files must be regular, weights safetensors with true headers, sizes such that they can be built, and no setting may
request code or a download. A library reads a `view`: a temporary folder of checked settings and links to checked files.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.data import model_files
from workbench.data.model_files import INDEX, LARGEST_VOCABULARY, SINGLE, TOKENIZER_FILES, read_settings
from workbench.errors import InputError, one_line
from workbench.store.atomic import loads, read_bytes, user_path

# The files of a model that are read, as patterns for a download; pickled weights are apart.
MODEL_FILES = ("config.json", SINGLE, INDEX, "model-*.safetensors", *TOKENIZER_FILES)


# ----------------------------------------
# Checks of encoder folders that others made: config.json, tokenizer, weights, and whether their sizes agree.

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
OWN = "workbench"  # our own layout, of families that are defined in a file
LAST = frozenset({"xlnet"})  # attends to both sides; the last position of a row is read
KINDS = FIRST | CAUSAL | LAST | {OWN}

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
    """Return the model type by config.json, or else by names of weights or of the class; None if unknown."""
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
    def must(key: str, holds: bool, be: str) -> None:
        if not holds:
            raise InputError(f"{folder}: config.json has {key}={ascii(raw[key])[:40]}, and it must be {be}")

    for key, (least, most) in SIZES.items():
        value = raw.get(key)
        fits = value is None or (type(value) is int and least <= value <= most)
        must(key, fits, f"a whole number from {least} to {most}")
    for key in _EPSILONS:
        value = raw.get(key)
        must(key, not isinstance(value, (int, float)) or 0 < value <= 1, "above 0 and at most 1")
    for key in ("is_decoder", "causal"):
        must(key, isinstance(raw.get(key, False), bool | None), "true or false")
    pad, vocab = raw.get("pad_token_id"), raw.get("vocab_size")
    is_id = type(pad) is int and pad >= -1 and (vocab is None or pad < vocab)
    must("pad_token_id", pad is None or is_id, "an id of its vocabulary")
    width, heads = first_of(raw, _WIDTH_KEYS), first_of(raw, _HEAD_KEYS)
    if width and heads and width % heads and not ({"head_dim", "d_head"} & raw.keys()):
        raise InputError(
            f"{folder}: config.json has a width of {width}, which is not a multiple of its {heads} attention heads"
        )


def first_of(raw: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """Return the value of the first of these keys that is set; None if none is set."""
    return next((raw[key] for key in keys if raw.get(key) is not None), None)


MOST_GROWTH = 100  # characters that a normaliser may write for one; usual ones write 1 to 3
NO_LIMIT = 1 << 24  # tokens; a larger model_max_length means none (transformers writes 1e30)
JAPANESE, DICTIONARIES = "BertJapaneseTokenizer", ("ipadic", "unidic", "unidic_lite")
CLASS = re.compile(r"[A-Za-z0-9]{1,60}(Tokenizer|TokenizerFast|Backend)")


def check_tokenizer_folder(folder: Path) -> dict[str, Path]:
    """Return the files of the tokenizer in a folder by name. Raises InputError if a library must not read them."""
    files = {name: path for name, path in model_files.regular_files(folder).items() if name in TOKENIZER_FILES}
    if not any(name in files for name in model_files.VOCABULARIES):  # transformers would make an empty vocabulary
        raise InputError(f"{folder} holds no tokenizer: there is no tokenizer.json")
    for name, path in files.items():
        if path.stat().st_size > LARGEST_VOCABULARY:
            raise InputError(f"{folder}: {name} has {path.stat().st_size} bytes, more than the largest vocabulary")
    settings = {name: read_settings(folder, name, files[name]) for name in model_files.SETTINGS if name in files}
    _check_settings(folder, settings.get("tokenizer_config.json", {}))
    if "tokenizer.json" in files:
        raw = read_settings(folder, "tokenizer.json", files["tokenizer.json"], LARGEST_VOCABULARY)
        if (growth := _growth(raw.get("normalizer"))) > MOST_GROWTH:
            raise InputError(
                f"{folder}: tokenizer.json has a normalizer that may write {growth:.3g} characters for one; "
                f"at most {MOST_GROWTH} are allowed"
            )
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


def _growth(normalizer: Any) -> float:
    """Return how many characters a normaliser may write for one character; for a sequence of steps, their product.

    Ten replacements of a letter by a thousand would fill any memory before a time limit is reached.
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
    """Return the settings of config.json that name a tokenizer's type, which old ones need; None for none.

    A tokenizer of words (MeCab) is Japanese BERT's, whatever its model's type: some of these folders do not say so.
    """
    files = model_files.regular_files(folder)
    raw = read_settings(folder, "config.json", files["config.json"]) if "config.json" in files else {}
    kind, name = raw.get("model_type"), raw.get("tokenizer_class")
    if raw and kind is None and (SINGLE in files or INDEX in files):
        kind = kind_of(raw, model_files.check_weights(folder, files)[1])
    own = files.get("tokenizer_config.json")
    if own and name is None and "word_tokenizer_type" in read_settings(folder, "tokenizer_config.json", own):
        kind, name = kind or "bert", JAPANESE
    settings = {"model_type": kind} if isinstance(kind, str) and re.fullmatch(r"[a-z0-9_-]{1,60}", kind) else {}
    if settings and isinstance(name, str) and CLASS.fullmatch(name):
        settings["tokenizer_class"] = name
    return settings or None


WIDTHS = ("embedding_size", "hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim")
SHARED_LAYERS = ("albert", OWN)  # all layers may share the weights of one


@dataclass(frozen=True)
class EncoderFiles:
    """The checked files of an encoder: settings, weights by name, their float count, and names of integer tensors."""

    folder: Path
    config: Mapping[str, Any]
    weights: Mapping[str, Path]
    elements: int
    whole_numbers: frozenset[str]


def check_encoder_folder(folder: Path) -> EncoderFiles:
    """Return an encoder's files, checked by settings and headers alone. Raises InputError naming the faulty file."""
    files = model_files.regular_files(folder)
    if "config.json" not in files:
        raise InputError(f"{folder} holds no encoder: it has no config.json")
    raw = read_settings(folder, "config.json", files["config.json"])
    if raw.get("model_type") is None:
        raw["model_type"] = kind_of(raw, model_files.check_weights(folder, files)[1])
    config = check_configuration(folder, raw)
    weights, elements, whole_numbers = model_files.check_weights(folder, files)
    _check_fit(folder, config, elements)
    return EncoderFiles(folder, config, weights, sum(elements.values()), whole_numbers)


def _check_fit(folder: Path, config: Mapping[str, Any], elements: Mapping[str, int]) -> None:
    """Raise InputError if config.json describes a larger model than the weights, so that no such model is built."""
    layers, elements_held = first_of(config, _LAYER_KEYS), sum(elements.values())
    if layers and layers > len(elements) and config["model_type"] not in SHARED_LAYERS:
        raise InputError(
            f"{folder}: config.json has {layers} layers, and the weights have {len(elements)} tensors, fewer than "
            f"one for each layer"
        )
    width, vocab = min((config[key] for key in WIDTHS if config.get(key)), default=1), config.get("vocab_size") or 0
    positions = config.get("n_positions") or 0
    if width * max(vocab, positions) > elements_held:
        raise InputError(
            f"{folder}: config.json has a table of {max(vocab, positions):,} rows of width {width}, and all weights "
            f"together have {elements_held:,} numbers"
        )


# ----------------------------------------
# The Hugging Face hub: data sets and published models that are read, and models uploaded for others.

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def fetch(name: str, patterns: Sequence[str], option: str, folder: str) -> Path | str:
    """Download files of a data set from the hub; return their folder, or an error message if the download failed.

    Messages name `option`, the command-line option that holds the name, and suggest `folder`, a description of a local
    folder, instead. Raises InputError for a name that is not valid on the hub.
    """
    no_folder = f"{option.removeprefix('--set ')}={name!r} is not a folder here"
    if not NAME.fullmatch(name):
        raise InputError(f"{no_folder}, nor a valid name of a data set on the hub; give {folder}")
    snapshot = _snapshot(name, "dataset", patterns)
    if isinstance(snapshot, Path):
        return snapshot
    return f"{no_folder}, and its download from the hub failed ({snapshot}); give a folder with {option}=DIR"


def model_folder(name: str, allow_bin: bool = False) -> Path:
    """Return the folder of a model: `name` itself if it is one, or cannot be a name on the hub, else a download.

    Pickled weights are downloaded only with `allow_bin`, if there are no others. Raises InputError if that fails.
    """
    path = user_path(name, "model")
    if path.exists() or not NAME.fullmatch(name) or "/" not in name:
        return path
    copy = _snapshot(name, "model", MODEL_FILES)
    if isinstance(copy, Path) and allow_bin and not any(copy.glob("*.safetensors")):
        copy = _snapshot(name, "model", (*MODEL_FILES, model_files.PICKLED_FILE))
    if isinstance(copy, Path):
        return copy
    raise InputError(
        f"{name} is not a folder here, and its download from the hub failed ({copy}); give the folder of an encoder, "
        f"or put the model into the hub's cache"
    )


def check_new(name: str) -> None:
    """Raise InputError if a model cannot be published under this name."""
    if not NAME.fullmatch(name) or "/" not in name:
        raise InputError(f"{name!r} is not a name on the hub; give OWNER/NAME, of letters, digits, '.', '_' and '-'")


def upload(folder: Path, name: str, private: bool) -> str:
    """Upload a folder as a model of the hub, new or not, and return its address. Raises InputError if it fails."""
    from huggingface_hub import HfApi, errors

    # The client's HTTP library differs between versions; its errors have one base, from which HfHubHTTPError is made.
    http: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"Upload {name} with workbench")
    except (http, errors.HFValidationError, errors.LocalTokenNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise InputError(
            f"{name} could not be uploaded ({one_line(error)}); log in with: hf auth login, or set "
            f"HF_TOKEN to a token that may write"
        ) from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a field of the answer is missing or wrong
        raise InputError(
            f"{name}: {api.endpoint} gave an answer that is not a model hub's ({one_line(error)}), so it is not known "
            f"what was uploaded; look there, check HF_ENDPOINT, and push again"
        ) from None
    return f"{api.endpoint}/{name}"


def _snapshot(name: str, kind: str, patterns: Sequence[str]) -> Path | str:
    """Return the folder of a snapshot in the cache of the hub, or the kind of the error that its download raised."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        return type(error).__name__


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A published checkpoint, described in `published_models.toml`; a value that no source states is None."""

    name: str
    model_class: str
    tokenizer: str
    licence: str | None = None
    parameters: float | None = None
    corpus: str | None = None
    source: str
    steps: int | None = None
    batch: int | None = None
    length: int | None = None
    flops: float | None = None
    flops_source: str | None = None
    packages: Sequence[str] = ()
    weights: str | None = None
    note: str = ""

    def row(self) -> dict[str, Any]:
        """Return the fields as plain data for a table; a value that is unknown is None."""
        packages, page = ", ".join(self.packages) or "none", f"https://huggingface.co/{self.name}"
        return asdict(self) | {"packages": packages, "page": page}


with Path(__file__).with_name("published_models.toml").open("rb") as _table:
    _published = list[PublishedModel]()
    for _model in tomllib.load(_table)["model"]:
        _published.append(PublishedModel(**_model))
PUBLISHED = tuple(_published)


def known_model(name: str) -> PublishedModel | None:
    """Return the published checkpoint of this name on the hub, or None if the table has none."""
    return next((model for model in PUBLISHED if model.name.lower() == name.lower()), None)
