"""The package as a module: its names are there, and nothing heavy is loaded before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import workbench as wb


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = {"torch", "pandas", "pydantic", "typer", "transformers"}
    code = f"import sys, workbench; print(sorted({heavy} & set(sys.modules)), dir(workbench))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ") and "'run'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        wb.rum  # noqa: B018
