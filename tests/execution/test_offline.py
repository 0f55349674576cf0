"""When a command promises its libraries that the hub is not asked, and which text it refuses before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.data import sources
from workbench.errors import InputError
from workbench.execution.offline import stay_local
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

NAMES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without the variables, and leave them as they were."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "größe.txt"
    path.write_text("a b\n", encoding="utf-8")
    return str(path)


def spec(*corpus: str, **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return resolve("nano", {"data.corpus": ",".join(corpus)} | given)


def offline() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


@pytest.mark.parametrize("tasks", ["none", "probes", "linear", "order"])
def test_where_text_and_tasks_are_here_nothing_may_ask_the_hub(text: str, tasks: str) -> None:
    stay_local(spec(text, "docs", tasks__names=tasks), own_process=True)
    assert offline() == ["1", "1"] and sources.offline()


def test_the_variables_of_another_s_process_are_left_alone(text: str) -> None:
    stay_local(spec(text, tasks__names="none"), own_process=False)
    assert offline() == [None, None]


@pytest.mark.parametrize("tasks", ["glue", "CoLA", "linear:CoLA", "blimp", "none,RTE"])
def test_tasks_of_the_hub_may_be_downloaded(text: str, tasks: str, tmp_path: Path) -> None:
    stay_local(spec(text, tasks__names=tasks), own_process=True)
    assert offline() == [None, None]
    stay_local(spec(text, tasks__names=tasks, tasks__glue=str(tmp_path), tasks__blimp=str(tmp_path)), own_process=True)
    assert offline() == ["1", "1"], "they are in folders"


def test_a_data_set_of_the_hub_is_looked_up_without_the_built_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in text would be extracted at this point, which takes a while."""
    asked = []
    monkeypatch.setattr(sources, "resolve", lambda data: asked.append(data.corpus))
    stay_local(spec("docs", "someone/texts", tasks__names="none"), own_process=True)
    assert asked == [("someone/texts",)] and offline() == [None, None]


def test_a_tokenizer_of_the_hub_may_be_downloaded_for_text_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(sources, "resolve", lambda data: asked.append(data.corpus))
    stay_local(spec("docs", data__tokenizer="someone/words", tasks__names="none"), own_process=True)
    assert asked == [] and offline() == [None, None]


def test_text_that_is_neither_here_nor_on_the_hub_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="someone/texts"):
        stay_local(spec("docs", "someone/texts", tasks__names="none"), own_process=True)
