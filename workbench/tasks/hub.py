"""Data sets of the Hugging Face hub, for tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import InputError


def fetch(name: str, patterns: Sequence[str], option: str, folder: str) -> Path | str:
    """Return the local copy of those files of a data set that match the patterns, or a sentence that says why not.

    `option` and `folder` say which option named it, and what else that may name. Raises InputError for a name that can
    be neither.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    neither = f"{option.removeprefix('--set ')}={name!r} is no folder here"
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise InputError(f"{neither}, nor a name on the hub; give {folder}")
    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        return f"{neither}, and the hub gave none ({type(error).__name__}); name a folder with {option}=DIR"
