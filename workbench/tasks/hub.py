"""Download of tasks' data sets from the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import InputError


def fetch(name: str, patterns: Sequence[str], option: str, folder: str) -> Path | str:
    """Return the local copy of a data set's files that match the patterns, or a sentence on why there is none.

    `option` is the option that gave the name, and `folder` describes the folder that may be given instead. Raises
    InputError if the name is neither a folder nor a valid name of a data set.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    no_folder = f"{option.removeprefix('--set ')}={name!r} is no folder here"
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise InputError(f"{no_folder}, nor a valid name of a data set on the hub; give {folder}")
    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        reason = type(error).__name__
        return f"{no_folder}, and its download from the hub failed ({reason}); give a folder with {option}=DIR"
