"""A command line that is carried out in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from workbench.cli import main


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`ended(*words)` carries out a command line and returns its exit code."""

    def carry_out(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["workbench", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return int(str(end.value.code))

    return carry_out
