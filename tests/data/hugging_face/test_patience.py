"""Tokenizers of others have a limit of time, and their faults end in a sentence."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from refused import refused_sentence

from workbench.data.hugging_face import folders


def test_a_tokenizer_that_takes_minutes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LEAST", 0.05)
    given_up = threading.Event()

    def endless() -> None:
        while not given_up.is_set():
            hashlib.sha256(bytes(100_000))

    try:
        said = refused_sentence(lambda: folders.in_time(endless, 1000, "mine"))
    finally:
        given_up.set()
    assert said.startswith("mine: its tokenizer took more than") and "1,000 characters" in said
    assert folders.in_time(lambda: 7, 1000, "mine") == 7


def test_time_in_which_the_process_does_not_compute_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while it is stopped, or as other processes have all processors."""
    monkeypatch.setattr(folders, "LEAST", 0.2)

    def waiting() -> str:
        time.sleep(1.0)
        return "ids"

    assert folders.in_time(waiting, 1000, "mine") == "ids"


def test_the_limit_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for so many characters, after the time that any call has."""
    limits: list[float] = []
    monkeypatch.setattr(folders, "interruptible", lambda work, limit: limits.append(limit))
    for characters in (0, 20_000, 2_000_000):
        folders.in_time(lambda: None, characters, "mine")
    assert limits == [30, 31, 130]


def test_a_fault_of_a_tokenizer_is_a_sentence_with_its_name() -> None:
    def failing() -> None:
        raise ValueError("no such model\nand more")

    said = refused_sentence(lambda: folders.in_time(failing, 10, "mine"))
    assert said.startswith("mine") and "holds a tokenizer that cannot encode these texts" in said
    assert "no such model" in said
