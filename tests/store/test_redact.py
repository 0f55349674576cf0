"""Removal of passwords and keys from texts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.store.redact import redact, redact_words


@pytest.mark.parametrize(
    ("words", "clean"),
    [
        (["--api-key", "planted", "x"], ["--api-key", "***", "x"]),
        (["--api-key=planted"], ["--api-key=***"]),
        (["--storage", "postgresql://me:planted@db:5432/x"], ["--storage", "postgresql://***@db:5432/x"]),
        (["https://planted@host/a"], ["https://***@host/a"]),
        (["https://me:pl/an@ted@host/a"], ["https://***@host/a"]),
        (["https://host/a?token=planted&b=1"], ["https://host/a?token=***&b=1"]),
        (["hf_plantedplanted"], ["***"]),
        (["--set", "optim.lr=5e-4", "--corpus", "s.txt"], ["--set", "optim.lr=5e-4", "--corpus", "s.txt"]),
        (["--set", "data.tokenizer=wordpiece"], ["--set", "data.tokenizer=wordpiece"]),
        (["--budget", "tokens=2e6"], ["--budget", "tokens=2e6"]),
        (["--objective", "all-tokens-mlm", "./my_idea.py"], ["--objective", "all-tokens-mlm", "./my_idea.py"]),
        (["--set", "tying=tokens"], ["--set", "tying=tokens"]),
    ],
)
def test_words_of_a_command(words: list[str], clean: list[str]) -> None:
    assert redact_words(words) == clean


def test_what_the_machine_holds_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh1234")
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password planted-in-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert redact("a abcdefgh1234 b planted-in-netrc c") == "a *** b *** c"
    assert redact("Authorization: Bearer abc.def-123456").count("abc.def") == 0
    text = "loss nan at step 12 (rows 3 to 7); tokens: 4096, data.tokenizer='wordpiece', 5 tokens"
    assert redact(text) == text


@given(st.text(max_size=80))
def test_any_text_can_be_cleaned(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize("part", ["a", "a.", "--", "token", "x://", "a://b:", "-token", "_", "bearer ", "a.token="])
def test_long_texts_take_time_in_proportion(part: str) -> None:
    """A search that goes back over what it read would take minutes here, on any machine."""
    begin = time.process_time()
    redact(part * (100_000 // len(part)))
    assert time.process_time() - begin < 30
