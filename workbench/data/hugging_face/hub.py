"""The Hugging Face hub: data sets and published models that are read, and models uploaded for others."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.data.hugging_face import MODEL_FILES, PICKLED_FILE
from workbench.errors import InputError, message_of
from workbench.store.atomic import user_path

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def fetch(name: str, patterns: Sequence[str], option: str, folder: str) -> Path | str:
    """Return the local copy of a data set's files that match the patterns, or a sentence on why there is none.

    `option` gave the name, and `folder` describes what may be given instead. Raises InputError for an impossible name.
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
        copy = _snapshot(name, "model", (*MODEL_FILES, PICKLED_FILE))
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
            f"{name} could not be uploaded ({_reason(error)}); log in with: hf auth login, or set "
            f"HF_TOKEN to a token that may write"
        ) from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a field of the answer is missing or wrong
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
    PUBLISHED = tuple(PublishedModel(**model) for model in tomllib.load(_table)["model"])


def known_model(name: str) -> PublishedModel | None:
    """Return the published checkpoint of this name on the hub, or None if the table has none."""
    return next((model for model in PUBLISHED if model.name.lower() == name.lower()), None)
