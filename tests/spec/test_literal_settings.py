"""Every value of every setting that has a list of values, set through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.errors import InputError
from workbench.execution.study_options import base_spec
from workbench.options import SpecOptions
from workbench.spec.parts import COUNTS
from workbench.spec.run_spec import field_of, known_keys, split_settings, value_at

# What must be said with a value, because the two are checked together.
WITH = {
    "tying=all": ["generator.width=1"],
    "schedule.kind=wsd": ["schedule.overlap=false"],
    "schedule.kind=constant": ["schedule.overlap=false"],
    "start.take=generator": ["generator.width=1", "tying=none"],
    "start.freeze_generator=true": ["tying=none", "start.take=generator", "generator.width=1"],
}


def literals() -> Iterator[tuple[str, str, Any]]:
    """Key, value as typed, and value as read, of every field that is a list of words or a switch."""
    for key in known_keys():
        field = field_of(key)
        assert field is not None
        for kind in (field.annotation, *get_args(field.annotation)):
            if get_origin(kind) is Literal:
                yield from ((key, value, value) for value in get_args(kind))
            elif kind is bool:
                yield from ((key, str(value).lower(), value) for value in (True, False))


@pytest.mark.parametrize(("key", "text", "value"), list(literals()), ids=lambda each: str(each))
def test_a_literal_value_is_what_it_says(key: str, text: str, value: Any) -> None:
    given = [*WITH.get(f"{key}={text}", []), f"{key}={text}"]
    assert value_at(base_spec(SpecOptions(set=split_settings(given))), key) == value
    shown = CliRunner().invoke(app, ["flops", "--json", *(part for each in given for part in ("--set", each))])
    assert shown.exit_code == 0, shown.exception
    assert json.loads(shown.stdout)["steps"] > 0


def test_values_called_none_are_values_in_a_sweep_too() -> None:
    shown = CliRunner().invoke(app, ["sweep", "--over", "tying=none,tokens", "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.exception
    assert '"none"' in shown.stdout


@pytest.mark.parametrize("key", COUNTS)
def test_what_is_counted_in_the_text_cannot_be_set(key: str) -> None:
    for words in (["run", "ablation", "--set", f"{key}=5"], ["sweep", "--over", f"{key}=5,6"]):
        refused = CliRunner().invoke(app, [*words, "--dry-run"])
        assert isinstance(refused.exception, InputError)
        assert str(refused.exception).startswith(
            f"{words[-2]} {key}: this value is counted in the text and cannot be set"
        )


@pytest.mark.parametrize("key", ["source", "data.fingerprint", "data.special.pad"])
def test_what_is_read_from_the_text_or_the_objective_cannot_be_set(key: str) -> None:
    for words in (["run", "ablation", "--set", f"{key}=5"], ["sweep", "--over", f"{key}=5,6"]):
        refused = CliRunner().invoke(app, [*words, "--dry-run"])
        assert isinstance(refused.exception, InputError)
        assert f"{key}: this value is read from" in str(refused.exception)


@pytest.mark.parametrize("key", ["recipe", *(key for key in known_keys() if key.startswith("tasks."))])
def test_what_runs_of_a_command_share_is_no_axis(key: str, tmp_path: Path) -> None:
    """The runs would have other names and the same settings."""
    file = tmp_path / "mine.py"
    file.write_text(f"QUESTION = 'Which?'\nAXES = {{'objective': ('rtd',), {key!r}: (1,)}}\n")
    for words in (["sweep", "--over", f"{key}=1,2"], ["sweep", "--over", f"{key}=1..2", "--trials", "2"],
                  ["run", str(file)]):  # fmt: skip
        refused = CliRunner().invoke(app, [*words, "--dry-run"])
        assert isinstance(refused.exception, InputError)
        assert f"{key} cannot be an axis" in str(refused.exception)


@pytest.mark.parametrize("key", [key for key in known_keys() if type(None) in get_args(field_of(key).annotation)])  # type: ignore[union-attr]
def test_unset_clears_every_field_that_can_be_empty(key: str) -> None:
    if key.startswith("budget."):
        pytest.skip("one unit of a budget replaces another, and one has to stay")
    assert value_at(base_spec(SpecOptions(set={key: None})), key) is None
