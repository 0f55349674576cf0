"""Errors of a person's own code: whose line it is, what passes as it is, and what becomes one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import DamagedRun, Diverged, InputError, Interrupted
from workbench.spec.experiment import blaming


def loaded(path: Path, text: str) -> Callable[[], Any]:
    """Return the function `f` of a file of a person's own."""
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    found: Callable[[], Any] = names["f"]
    return found


def said(act: Callable[[], Any], *words: str) -> str:
    with pytest.raises(InputError) as caught, blaming(*words):
        act()
    assert type(caught.value) is InputError and caught.value.__cause__ is not None
    return str(caught.value)


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_the_last_line_of_the_file_itself_is_named(tmp_path: Path) -> None:
    """Neither that of the caller, nor that of a library which the file called, nor an outer line of the file."""
    path = tmp_path / "größe.py"
    f = loaded(path, "import json\n\ndef g():\n    return json.loads('no')\n\ndef f():\n    return g()\n")
    text = said(f, str(path), "cost(spec) raised", "objective")
    assert text.startswith(f"objective {path}, line 4: cost(spec) raised JSONDecodeError: ")
    assert "\n" not in text


def test_a_relative_path_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    f = loaded(tmp_path / "mine.py", "\n\ndef f():\n    raise LookupError('x')\n")
    assert said(f, "mine.py") == "mine.py, line 4: LookupError: x"


def test_the_line_of_a_syntax_error_is_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert f"{path}, line 3: SyntaxError" in said(lambda: compile("a = 1\n\nb = = 2\n", str(path), "exec"), str(path))


def test_an_error_from_elsewhere_has_no_line() -> None:
    assert said(raising(ValueError("no")), "nowhere.py") == "nowhere.py: ValueError: no"


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), BaseException("x"), Diverged("nan"), OSError(2, "gone")]
)
def test_whatever_else_is_raised_ends_in_a_sentence(error: BaseException) -> None:
    assert type(error).__name__ in said(raising(error), "a.py", "f() raised")


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(), Interrupted(15), MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("doing", ["", "cost(spec) raised"])
def test_stops_and_lack_of_memory_pass_as_they_are(error: BaseException, doing: str) -> None:
    with pytest.raises(type(error)) as caught, blaming("a.py", doing):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [InputError("give --budget"), DamagedRun("move that folder")])
def test_a_refusal_passes_while_the_code_does_something_and_is_named_while_it_loads(error: InputError) -> None:
    with pytest.raises(type(error)) as caught, blaming("a.py", "cost(spec) raised"):
        raise error
    assert caught.value is error
    assert str(error) in said(raising(error), "a.py")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def test_a_message_of_many_lines_or_none_is_one_line() -> None:
    text = said(raising(ValueError("first\n\tsecond " + "x" * 5000)), "a.py")
    assert "first second" in text and "\n" not in text and len(text) < 300
    assert said(raising(Unprintable()), "a.py") == "a.py: Unprintable"


def test_what_raises_nothing_is_left_alone() -> None:
    with blaming("a.py", "f() raised", "objective"):
        found = 3
    assert found == 3
