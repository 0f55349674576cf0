"""The list of surviving mutants: what is listed is found again, and nothing is listed that is not in the code."""

from __future__ import annotations

import inspect
import pkgutil
import tomllib
from pathlib import Path

import pytest
from mutation.__main__ import LIST, Change, documented


@pytest.mark.parametrize("after", ["return a | b", "", "x = {'a': 1}", "return a ** 2 - [b][0]"])
def test_an_entry_is_read_as_it_is_printed(after: str) -> None:
    change = Change("workbench.models.flops.Flops.train", "return a + b", after)
    assert documented(f"# Page\n\n{change}: a reason that goes on\n  over `two` lines\n") == {change}


def test_only_the_strictness_of_a_zip_is_passed_over() -> None:
    line = "for a, b in zip(x, y, strict=True):"
    for other in ("zip(x, y, strict=False)", "zip(x, y, strict=None)", "zip(x, y, )"):
        assert Change("f", line, f"for a, b in {other}:").is_harmless
    for other in ("zip(x, strict=True)", "zip(y, x, strict=True)", "zip(x, y, z=True)"):
        assert not Change("f", line, f"for a, b in {other}:").is_harmless


def test_every_listed_function_still_has_the_lines_that_its_entry_changes() -> None:
    """Whole lines with their comments, as otherwise the entry is not that of the mutant."""
    for change in documented(LIST.read_text(encoding="utf-8")):
        lines = [line.strip() for line in inspect.getsource(pkgutil.resolve_name(change.function)).splitlines()]
        places = [(first, first + count) for first in range(len(lines)) for count in range(1, 13)]
        assert any(" ".join(lines[first:last]) == change.before for first, last in places), change


def test_every_selected_test_exists() -> None:
    """mutmut does not start if one of them was renamed."""
    root = Path(__file__).parents[1]
    selected = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    for path, _, name in (each.partition("::") for each in selected["pytest_add_cli_args_test_selection"]):
        assert f"\ndef {name}(" in (root / path).read_text(encoding="utf-8") if name else (root / path).is_file(), name
    assert all((root / path).is_file() for path in selected["only_mutate"])
