from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose files are written again for each of many examples."""
    return tmp_path_factory.mktemp("shared")
