"""The keyword arguments of the Python interface: the options of the commands, with the types that they take."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from workbench.api.arguments import WHOLE, EvaluateArguments, RunArguments, SweepArguments, checked
from workbench.cli import train
from workbench.errors import InputError

NAMES = {"objective": "objectives", "set_": "settings", "runs": "store"}  # of options that have another name here
PRINTED = {"dry_run", "as_json"}  # what a command prints; `plan` returns it


@pytest.mark.parametrize(
    ("command", "positional", "arguments"),
    [(train.run, {"experiment"}, RunArguments), (train.sweep_, {"axis", "over"}, SweepArguments)],
)
def test_the_arguments_are_the_options_of_the_command(command: Any, positional: set[str], arguments: Any) -> None:
    options = set(inspect.signature(command).parameters) - PRINTED - positional
    assert set(arguments.__annotations__) == {NAMES.get(option, option) for option in options}


def test_whole_numbers_have_the_bounds_of_the_options() -> None:
    options = get_type_hints(train.run, include_extras=True)
    bounds = {name: next(each for each in options[name].__metadata__ if hasattr(each, "max")) for name in WHOLE}
    assert {name: (option.min, option.max) for name, option in bounds.items()} == WHOLE


def test_values_of_every_type_are_taken() -> None:
    given = {
        "objectives": ("rtd",), "corpus": "docs", "settings": {"optim.lr": 1e-3}, "budget": None, "seeds": 3,
        "workers": 2, "most_epochs": 10, "tasks": "pairs", "threads": None,
    }  # fmt: skip
    assert checked(given, RunArguments) == given


def test_paths_and_numbers_of_numpy_are_taken() -> None:
    given = {"objectives": Path("idea.py"), "corpus": [Path("a.txt"), "docs"], "workers": np.int64(2)}
    assert checked(given, RunArguments) == {"objectives": "idea.py", "corpus": ("a.txt", "docs"), "workers": 2}
    assert type(checked(given, RunArguments)["workers"]) is int


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": "two"}, "workers='two' is not a whole number from 1 to 1,024"),
        ({"workers": 0}, "workers=0 is not"),
        ({"threads": True}, "threads=True is not"),
        ({"most_seeds": 1}, "most_seeds=1 is not a whole number from 2 to 1,000"),
        ({"save_every": 0.5}, "save_every=0.5 is not"),
        ({"most_epochs": "ten"}, "most_epochs='ten' is not a number above 0"),
        ({"most_epochs": 0}, "most_epochs=0 is not a number above 0"),
        ({"most_epochs": float("nan")}, "most_epochs=nan is not a number above 0"),
        ({"budget": 100}, "budget=100 is not a text"),
        ({"tasks": ["pairs", "glue"]}, r"tasks=\['pairs', 'glue'\] is not a text; give it as 'pairs,glue'"),
        ({"objectives": 3}, "objectives=3 is neither a name nor a list of names"),
        ({"corpus": [3]}, r"corpus=\[3\] is neither a name nor a list of names"),
        ({"settings": "optim.lr=1"}, "settings='optim.lr=1' is not a mapping"),
    ],
)
def test_a_value_of_another_type_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        checked(given, RunArguments)


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (RunArguments, "objective", "did you mean 'objectives'?"),
        (SweepArguments, "trial", "did you mean 'trials'?"),
        (EvaluateArguments, "presicion", "did you mean 'precision'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(kind: type, name: str, advice: str) -> None:
    with pytest.raises(InputError, match=rf"unknown argument '{name}'; {re.escape(advice)}"):
        checked({name: 1}, kind)


@pytest.mark.parametrize(
    "given",
    [{"corpus": ["docs", "https://h/x?sig=Pl4nted"]}, {"settings": {"tasks.glue": "s3://me:Pl4nted@b/k"}}],
)
def test_an_address_with_a_secret_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="an address may hold no ") as caught:
        checked(given, RunArguments)
    assert "Pl4nted" not in str(caught.value)
