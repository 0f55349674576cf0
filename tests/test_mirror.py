"""`tests/` has the folders of `workbench/`, with a file for each module that holds logic."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
MODULES = {
    str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
}

# Modules that hold no logic: they call, re-export or name what others do.
NO_LOGIC = {
    "__main__",
    "objectives/_former_names",
}


def mirrored(module: str) -> Path:
    """Return where the tests of a module belong."""
    path = ROOT / "tests" / module
    return path.with_name(f"test_{path.name.strip('_')}.py")


@pytest.mark.parametrize("module", sorted(MODULES - NO_LOGIC))
def test_a_module_with_logic_has_tests_in_the_mirrored_folder(module: str) -> None:
    wanted = mirrored(module)
    assert wanted.is_file(), f"{wanted.relative_to(ROOT)} is missing; modules without logic are listed in NO_LOGIC"


def test_the_list_of_exceptions_names_modules_that_have_no_tests_of_their_own() -> None:
    assert NO_LOGIC <= MODULES, f"no such module: {sorted(NO_LOGIC - MODULES)}"
    found = sorted(module for module in NO_LOGIC if mirrored(module).is_file())
    assert not found, f"these have tests now, take them off the list: {found}"
