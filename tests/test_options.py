"""Options are declared once: the commands, the Python interface, their help and their values follow from that."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from typer.testing import CliRunner

import workbench as wb
from workbench.cli import app
from workbench.cli.command import _group
from workbench.cli.lists import LISTS, names_in
from workbench.errors import InputError
from workbench.options import (
    Computation,
    EvaluateOptions,
    RunOptions,
    StudyOptions,
    SubmitOptions,
    SweepOptions,
    checked,
    flag,
    kinds_of,
    options_of,
    words,
)
from workbench.spec.host import Host
from workbench.spec.run_spec import OTHER_NAMES, other_name, overrides_of, settable_keys

COMMANDS = {"run": RunOptions, "sweep": SweepOptions, "evaluate": EvaluateOptions, "submit": SubmitOptions}
PRINTED = {"--json", "--dry-run", "--help", "--help-all"}  # options of what a command prints


def options_in_help(command: str, which: str) -> list[str]:
    """Return the options that the help of a command names, in order."""
    shown = CliRunner().invoke(app, [command, which], env={"COLUMNS": "100"}).output
    return re.findall(r"^  (?:-h, )?(--[a-z-]+)(?= |$)", shown, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_and_function_have_the_declared_options_under_one_name(command: str) -> None:
    group = COMMANDS[command]
    declared = {name for name, each in options_of(group).items() if not each.positional}
    which = "--help-all" if "--help-all" in options_in_help(command, "--help") else "--help"
    shown = options_in_help(command, which)
    assert len(set(shown)) == len(shown) and set(shown) - PRINTED == set(map(flag, declared))
    parameters = inspect.signature(getattr(wb, command)).parameters
    assert list(parameters) == list(inspect.signature(group).parameters) and declared <= set(parameters)
    assert all(each.help in str(getattr(wb, command).__doc__) for each in options_of(group).values())


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_help_of_a_long_command_fits_a_screen_and_has_its_rest_elsewhere(command: str) -> None:
    short = CliRunner().invoke(app, [command, "-h"], env={"COLUMNS": "80"}).output
    assert short.count("\n") <= 45 and len(options_in_help(command, "--help")) <= 17
    whole = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "80"}).output
    titles = re.findall(r"^([A-Z][a-z ]+):$", whole, re.MULTILINE)
    assert titles[:3] == ["Arguments", "What is compared", "How much is trained"] and "How it is computed" in titles


@pytest.mark.parametrize("command", ["evaluate", "report", "flops", "verify", "list", "check", "rm"])
def test_the_help_of_a_command_names_each_argument_once_and_no_type_of_python(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "-h"], env={"COLUMNS": "80"}).output
    listed = re.findall(r"^  ([A-Z|]{2,})(?: <.*>)?(?=  )", shown, re.MULTILINE)
    assert not re.search(r" <\w", shown) and len(set(listed)) == len(listed)


def test_every_option_of_the_computation_is_a_field_of_the_host() -> None:
    assert set(options_of(Computation)) <= set(inspect.signature(Host).parameters)


def value_for(name: str, kind: Any) -> Any:
    """Return a value of an option that is not its default."""
    values = {bool: True, int: 7, float: 2.5, Sequence: ["a", "b"], Mapping: {"optim.lr": 1e-3, "tasks.rows": None}}
    for each in kinds_of(kind)[0]:
        if each in values and name not in ("budget", "most_compute"):
            return values[each]
    for each in (kind, *get_args(kind)):
        if get_origin(each) is Literal:
            return get_args(each)[-1]
    return "x"


@pytest.mark.parametrize("group", [StudyOptions, SweepOptions])
def test_options_written_as_words_are_read_as_the_same_options(group: type) -> None:
    """So a job of a cluster has the options of its command."""
    types = get_type_hints(group)
    given = {name: value_for(name, types[name]) for name, each in options_of(group).items() if not each.positional}
    options = checked(group, given)
    typed: dict[str, Any] = {name: None for name in given}
    spelled = iter(words(options))
    for word in spelled:
        name = word.removeprefix("--").replace("-", "_")
        declared = options_of(group)[name]
        if bool in kinds_of(types[name])[0]:
            typed[name] = True
        elif declared.repeated:
            typed[name] = [*(typed[name] or []), next(spelled)]
        else:
            text = next(spelled)
            typed[name] = float(text) if float in kinds_of(types[name])[0] else text
    again = _group(group, list(given), typed)
    assert words(again) == words(options) and again.workers == 7 and again.objective == ("a", "b")


def test_values_of_every_type_are_taken() -> None:
    given = {
        "objective": ("rtd",), "corpus": ("docs",), "set": {"optim.lr": 1e-3}, "budget": {"steps": 10}, "seeds": 3,
        "workers": 2, "most_epochs": 10.0, "tasks": ("pairs", "CoLA"), "out": Path("there"), "compile": True,
    }  # fmt: skip
    options = checked(StudyOptions, given | {"threads": None})
    assert {name: getattr(options, name) for name in given} == given and options.threads is None
    assert checked(StudyOptions, {"tasks": "pairs, CoLA", "corpus": "a,b.txt"}) == StudyOptions(
        tasks=("pairs", "CoLA"), corpus=("a,b.txt",)
    )


def test_paths_and_numbers_of_numpy_are_taken() -> None:
    options = checked(
        StudyOptions, {"objective": Path("idea.py"), "corpus": [Path("a.txt"), "docs"], "workers": np.int64(2)}
    )
    assert options == StudyOptions(objective=("idea.py",), corpus=("a.txt", "docs"), workers=2)
    assert type(options.workers) is int


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": "two"}, "workers='two' is not a whole number from 1 to 1,024"),
        ({"workers": 0}, "workers=0 is not"),
        ({"threads": True}, "threads=True is not"),
        ({"most_seeds": 1}, "most_seeds=1 is not a whole number from 2 to 1,000"),
        ({"save_every": 0.5}, "save_every=0.5 is not"),
        ({"most_epochs": "ten"}, "most_epochs='ten' is not a number from 1e-09 to 1,000,000,000"),
        ({"most_epochs": 0}, "most_epochs=0 is not a number from"),
        ({"most_epochs": float("nan")}, "most_epochs=nan is not a number from"),
        ({"seeds": 0}, "seeds=0 is not a whole number from 1 to 1,000 or auto"),
        ({"seeds": "many"}, "seeds='many' is not a whole number from 1 to 1,000 or auto"),
        ({"precision": "fp16"}, "precision='fp16' is not auto or fp32 or bf16"),
        ({"launcher": "pbs"}, "launcher='pbs' is not local or slurm"),
        ({"track": 3}, "track=3 is not a path"),
        ({"budget": 100}, "budget=100 is not a text or a mapping, such as {'steps': 1000}"),
        ({"compile": 1}, "compile=1 is not True or False"),
        ({"runs": 3}, "runs=3 is not a path"),
        ({"objective": 3}, "objective=3 is not a name or a list of names"),
        ({"corpus": [3]}, r"corpus=\[3\] is not a name or a list of names"),
        ({"set": "optim.lr=1"}, "set='optim.lr=1' is not a mapping, such as {'optim.lr': 0.001}"),
        ({"set": {3: 4}}, "set={3: 4} is not a mapping"),
    ],
)
def test_a_value_of_another_type_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        checked(StudyOptions, given)


@pytest.mark.parametrize("given", [{}, {"experiment": None}])
def test_what_has_no_default_must_be_given(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^experiment= is missing: Name or file of an experiment"):
        wb.plan(**given)


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (RunOptions, "objectives", "did you mean 'objective'?"),
        (SweepOptions, "trial", "did you mean 'trials'?"),
        (EvaluateOptions, "presicion", "did you mean 'precision'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(kind: type, name: str, advice: str) -> None:
    with pytest.raises(InputError, match=rf"unknown argument '{name}'; {re.escape(advice)}"):
        checked(kind, {name: 1})


@pytest.mark.parametrize(
    "given", [{"corpus": ["docs", "https://h/x?sig=Pl4nted"]}, {"set": {"tasks.glue": "s3://me:Pl4nted@b/k"}}]
)
def test_an_address_with_a_secret_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="an address may hold no ") as caught:
        wb.run("ablation", **given)
    assert "Pl4nted" not in str(caught.value)


def test_every_setting_has_a_meaning_a_default_and_what_it_takes() -> None:
    rows = {row["key"]: row for row in LISTS["keys"]()}
    assert set(rows) == set(settable_keys())
    assert all(row["meaning"] and row["takes"] and row["default"] for row in rows.values())
    assert rows["optim.lr"]["takes"] == "number, above 0" and rows["optim.lr"]["default"] == "0.003"
    assert rows["encoder.positions"]["takes"] == "whole number, above 0, at most 1,048,576"
    assert rows["tying"]["takes"] == "none, tokens, embeddings, all, gdes"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_other_programs_lead_to_a_key_or_an_option_that_exists(name: str) -> None:
    other = other_name(f"--{name}".replace("_", "-"))
    declared = {*map(flag, options_of(SweepOptions))}
    assert other in settable_keys() or other.startswith("options.") or other.split()[0] in declared
    with pytest.raises(InputError, match=re.escape(other)):
        overrides_of({name: 1})


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("run abl", {"ablation"}), ("run ablation --objective bert", {"bert-mlm"}),
        ("run ablation --scale mini", {"mini"}), ("run ablation --tasks probes,bli", {"probes,blimp"}),
        ("run ablation --set optim.generator", {"optim.generator_lr="}),
        ("sweep --over batch.", {"batch.size="}), ("list obj", {"objectives"}), ("new enc", {"encoder"}),
        ("run ablation --set encoder.family=rob", {"encoder.family=roberta"}),
        ("sweep --over encoder.family=electra,alb", {"encoder.family=electra,albert"}),
        ("run ablation --precision bf", {"bf16"}),
        ("run ablation --set tying=em", {"tying=embeddings"}), ("check x.py --kind ta", {"task"}),
    ],
)  # fmt: skip
def test_a_shell_completes_names(typed: str, found: set[str]) -> None:
    words = typed.split()
    variables = {
        "COMP_WORDS": f"workbench {typed}",
        "COMP_CWORD": str(len(words)),
        "_WORKBENCH_COMPLETE": "complete_bash",
    }
    shown = CliRunner().invoke(app, [], env=variables, prog_name="workbench").output
    assert found <= set(shown.split())


def test_only_names_that_can_be_given_are_completed(tmp_path: Path) -> None:
    assert names_in("corpora", tmp_path) == ["docs", "python-code"]
    assert names_in("records", tmp_path) == []
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mask-rate-nano-1.json").touch()
    assert names_in("records", tmp_path) == ["mask-rate", "mask-rate-nano-1"]
