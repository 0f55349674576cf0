import re

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.cli.help import FEW, SECTIONS


def sections_of(command):
    """The help's sections with the names of their options, read from what a user sees."""
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"}).output
    parts = re.split(r"^([A-Z][a-z ]+):$", shown, flags=re.MULTILINE)
    return {
        title: re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def options_of(command):
    """The names of a command's options, read from its function."""
    (found,) = [each for each in app.registered_commands if each.name == command]
    names = {name.removeprefix("as_").strip("_").replace("_", "-") for name in found.callback.__annotations__}
    return {f"--{name}" for name in names - {"return", "experiment", "axis", "encoder"}} | {"--help"}


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_every_option_of_a_long_command_is_shown_once_in_a_section_of_its_kind(command):
    shown = sections_of(command)
    assert list(shown) == ["Arguments", *SECTIONS]
    names = [name for names in shown.values() for name in names]
    assert sorted(names) == sorted(options_of(command))
    assert shown["What is measured"] == ["--tasks", "--evaluate-at"]


def test_a_short_command_has_one_list_of_options():
    shown = sections_of("evaluate")
    assert list(shown) == ["Arguments", "Options"]
    assert set(shown["Options"]) == options_of("evaluate")
    assert len(shown["Options"]) < FEW
