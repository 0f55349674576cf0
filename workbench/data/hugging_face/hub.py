"""The Hugging Face hub: data sets and published models that are read, and models uploaded for others.

Of published models that can be compared with runs, it is recorded what is known of their training, each value with its
source. A value that no source states is None, and nothing is guessed. `flops` are training FLOPs in the paper's
convention; a generator and a discriminator that were trained together have those of the pair. Where the source says "by
formula", they follow from the stated steps, batch, length and sizes (`workbench.models.flops`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.data.hugging_face import MODEL_FILES, PICKLED_FILE
from workbench.errors import InputError, message_of
from workbench.spec.published import PAPER
from workbench.store.atomic import user_path

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def fetch(name: str, patterns: Sequence[str], option: str, folder: str) -> Path | str:
    """Return the local copy of a data set's files that match the patterns, or a sentence on why there is none.

    `option` is the option that gave the name, and `folder` describes the folder that may be given instead. Raises
    InputError if the name is neither a folder nor a valid name of a data set.
    """
    no_folder = f"{option.removeprefix('--set ')}={name!r} is not a folder here"
    if not NAME.fullmatch(name):
        raise InputError(f"{no_folder}, nor a valid name of a data set on the hub; give {folder}")
    snapshot = _snapshot(name, "dataset", patterns)
    if isinstance(snapshot, Path):
        return snapshot
    return f"{no_folder}, and its download from the hub failed ({snapshot}); give a folder with {option}=DIR"


def model_folder(name: str, allow_bin: bool = False) -> Path:
    """Return the folder of a model: `name` itself if it is a folder, else its snapshot in the cache of the hub.

    A model that is not in the cache is downloaded, its pickled weights only with `allow_bin` and if it has no others. A
    name that cannot be one on the hub is returned as a path, which the caller checks. Raises InputError if the download
    fails.
    """
    path = user_path(name, "model")
    if path.exists() or not NAME.fullmatch(name) or "/" not in name:
        return path
    copy = _snapshot(name, "model", MODEL_FILES)
    if isinstance(copy, Path) and allow_bin and not any(copy.glob("*.safetensors")):
        copy = _snapshot(name, "model", (*MODEL_FILES, PICKLED_FILE))
    if isinstance(copy, Path):
        return copy
    raise InputError(
        f"{name} is not a folder here, and its download from the hub failed ({copy}); give the folder of an encoder, "
        f"or put the model into the hub's cache"
    )


def check_new(name: str) -> None:
    """Raise InputError if no model can be published under this name."""
    if not NAME.fullmatch(name) or "/" not in name:
        raise InputError(f"{name!r} is not a name on the hub; give OWNER/NAME, of letters, digits, '.', '_' and '-'")


def upload(folder: Path, name: str, private: bool) -> str:
    """Upload a folder as the model of this name, which is created if it is new, and return its address.

    Raises InputError if the hub refuses it or cannot be reached.
    """
    from huggingface_hub import HfApi, errors

    # The client's HTTP library differs between versions; its errors have one base, from which HfHubHTTPError is made.
    http: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"Upload {name} with workbench")
    except (http, errors.HFValidationError, errors.LocalTokenNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise InputError(
            f"{name} could not be uploaded ({_reason(error)}); log in with: hf auth login, or set "
            f"HF_TOKEN to a token that may write"
        ) from None
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # raised by the client if a field is missing or wrong
        raise InputError(
            f"{name}: {api.endpoint} gave an answer that is not a model hub's ({_reason(error)}), so it is not known "
            f"what was uploaded; look there, check HF_ENDPOINT, and push again"
        ) from None
    return f"{api.endpoint}/{name}"


def _reason(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {message_of(error).strip().partition(chr(10))[0][:200]}"


def _snapshot(name: str, kind: str, patterns: Sequence[str]) -> Path | str:
    """Return the folder of a snapshot in the cache of the hub, or the kind of the error that its download raised."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        return type(error).__name__


HUB = "https://huggingface.co/"
GOOGLE = "README of google-research/electra"
WORDPIECE, JAPANESE = "WordPiece", "MeCab with the IPA dictionary, then WordPiece (BertJapaneseTokenizer)"
SENTENCEPIECE = "SentencePiece (unigram), as tokenizer.json"
MECAB = ("fugashi", "ipadic")  # the packages of `pip install encoder-workbench[japanese]`
BOOKS = "English text of XLNet's training (Wikipedia, books, Giga5, ClueWeb, Common Crawl), uncased"
DAGW = "Danish Gigaword, 13 GB"
DANISH = "README of the model; notebooks of MalteHB/-l-ctra"


@dataclass(frozen=True)
class PublishedModel:
    """A published checkpoint. `packages` are needed besides those of workbench, and `weights` is the kind of file;
    pytorch_model.bin needs --allow-bin.

    `parameters` include the head of pre-training; `batch` and `length` are rows of a step and tokens of a row.
    """

    name: str
    model_class: str
    tokenizer: str
    licence: str | None
    parameters: float | None
    corpus: str | None
    source: str
    steps: int | None = None
    batch: int | None = None
    length: int | None = None
    flops: float | None = None
    flops_source: str | None = None
    packages: tuple[str, ...] = ()
    weights: str | None = None
    note: str = ""

    def row(self) -> dict[str, Any]:
        """Return the fields as plain data for a table; a value that is unknown is None."""
        packages = ", ".join(self.packages) or "none"
        return {"name": self.name} | asdict(self) | {"packages": packages, "page": HUB + self.name}


def _google(size: str, kind: str, parameters: float, **facts: Any) -> PublishedModel:
    classes = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
    note = facts.pop("note", "")
    return PublishedModel(
        f"google/electra-{size}-{kind}", classes[kind], f"{WORDPIECE}, lower case", "apache-2.0", parameters,
        BOOKS, GOOGLE, note=note, **facts,
    )  # fmt: skip


_SMALL = {
    "steps": 4_000_000,
    "note": "ELECTRA-Small++ of the paper, with a generator as large as the discriminator; batch and length not stated",
}
_BASE = {"note": "ELECTRA-Base++ of the paper; its steps are not stated"}
_LARGE = {
    "steps": 1_750_000, "flops": 3.1e21, "flops_source": f"{PAPER}, table 2", "note": "ELECTRA-1.75M of the paper",
}  # fmt: skip


def _danish(case: str, task: str = "") -> PublishedModel:
    trained: dict[str, Any] = {"steps": 1_000_000, "batch": 128, "length": 128}
    note = "texts are cut to 128 tokens (model_max_length)"
    if task:
        note = f"fine-tuned on DaNE from the model without {task}; its FLOPs are those before fine-tuning, and {note}"
    return PublishedModel(
        f"Maltehb/aelaectra-danish-electra-small-{case}{task}",
        "ElectraForTokenClassification" if task else "ElectraForPreTraining",
        f"{WORDPIECE}, {'lower case' if case == 'uncased' else 'cased'}", "mit", 13.7e6, DAGW, DANISH, **trained,
        flops=1.32e18, flops_source="by formula", note=note,
    )  # fmt: skip


def _czech_lab(name: str, corpus: str, parameters: float, weights: str, note: str = "") -> PublishedModel:
    return PublishedModel(
        f"AILabTUL/{name}", "ElectraForPreTraining", f"{SENTENCEPIECE} and m.model; lower case",
        "cc-by-4.0" if name == "mELECTRA" else None, parameters, corpus, "page of the model",
        weights=weights, note=note,
    )  # fmt: skip


def _japanese(name: str, model_class: str, parameters: float, corpus: str, note: str, **trained: Any) -> PublishedModel:
    return PublishedModel(
        f"izumi-lab/{name}", model_class, JAPANESE, "cc-by-sa-4.0", parameters, corpus,
        "README of the model; retarfi/language-pretraining", flops_source="by formula", packages=MECAB,
        weights="pytorch_model.bin", note=note, **trained,
    )  # fmt: skip


_WIKIPEDIA = "Japanese Wikipedia of June 2021, 2.9 GB"
_BERT_SMALL: dict[str, Any] = {"steps": 1_450_000, "batch": 128, "length": 128, "flops": 1.9e18}
_EMBEDDING = "embeddings as wide as the layers, 256, by the size of the file"

PUBLISHED: tuple[PublishedModel, ...] = (
    _google("small", "discriminator", 13.55e6, **_SMALL, weights="pytorch_model.bin"),
    _google("small", "generator", 13.5e6, **_SMALL),
    _google("base", "discriminator", 109.5e6, **_BASE),
    _google("base", "generator", 33.7e6, **_BASE),
    _google("large", "discriminator", 335.1e6, **_LARGE),
    _google("large", "generator", 51.3e6, **_LARGE),
    _czech_lab("mELECTRA", "13 European languages", 14.3e6, "safetensors"),
    _czech_lab(
        "BiELECTRA-czech-slovak",
        "Czech and Slovak",
        14.3e6,
        "pytorch_model.bin",
        note="parameters by the size of the file, 57.2 MB",
    ),
    _danish("cased"),
    _danish("uncased"),
    _danish("cased", "-ner-dane"),
    _danish("uncased", "-ner-dane"),
    PublishedModel(
        "Seznam/small-e-czech",
        "ElectraForPreTraining",
        f"{WORDPIECE}, lower case, accents kept",
        "cc-by-4.0",
        13.55e6,
        "Czech web pages, 250 GB",
        "README of seznam/small-e-czech",
        weights="pytorch_model.bin",
        note="about 20 days on one GPU; its steps are not stated",
    ),
    _japanese("bert-small-japanese", "BertForMaskedLM", 18.1e6, _WIKIPEDIA, _EMBEDDING, **_BERT_SMALL),
    _japanese(
        "bert-small-japanese-fin",
        "BertForMaskedLM",
        18.1e6,
        f"{_WIKIPEDIA}, and financial reports, 5.2 GB",
        _EMBEDDING,
        **_BERT_SMALL,
    ),
    _japanese(
        "electra-base-japanese-discriminator",
        "ElectraForPreTraining",
        111e6,
        _WIKIPEDIA,
        "generator of a third of the width; parameters by the size of the file, 445 MB",
        steps=766_000,
        batch=256,
        length=512,
        flops=6.57e19,
    ),
)


def known_model(name: str) -> PublishedModel | None:
    """Return the published checkpoint of this name on the hub, or None if the table has none."""
    return next((model for model in PUBLISHED if model.name.lower() == name.lower()), None)
