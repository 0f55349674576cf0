"""The process that is measured: its made-up text, and its turns."""

from __future__ import annotations

import io
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import CPU, small

from workbench.bench import turns
from workbench.data.corpus import Corpus
from workbench.training.plan import EFFICIENCY, plan


def test_ten_billion_tokens_take_no_more_memory_than_a_million(tmp_path: Path) -> None:
    spec, peaks = small(), []
    for tokens in (10**6, 10**10):
        corpus = Corpus(turns.made_up(tmp_path / str(tokens), spec, tokens, sparse=True), spec.data.length, 0)
        assert corpus.rows == tokens // (spec.data.length - 2)
        corpus.batch(0, 32)
        tracemalloc.start()
        for place in range(0, 20 * 32, 32):
            assert corpus.batch(place, 32).ids.shape == (32, spec.data.length)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_token_frequencies_of_made_up_text_fall_with_the_rank(tmp_path: Path) -> None:
    """The share of the tokens 1 to m is log(m + 1) / log(V), since that of each is as the reciprocal of its rank."""
    spec = small()
    prepared = turns.made_up(tmp_path / "text", spec, 100_000)
    ids = np.fromfile(tmp_path / "text" / "tokens-00000.bin", dtype="<u2")
    assert len(ids) == prepared.tokens == 100_000 and ids.max() < spec.encoder.vocab
    for most in (1, 10, 100):
        expected = math.log(most + 1) / math.log(spec.encoder.vocab)
        assert ((ids >= 1) & (ids <= most)).mean() == pytest.approx(expected, abs=0.01)


def test_turns_are_read_until_the_end_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"do": "time"}\n{"do": "parts"}\n'))
    assert [turns.next_turn(), turns.next_turn()] == ["time", "parts"]
    with pytest.raises(turns.Enough):
        turns.next_turn()


@pytest.mark.parametrize(("speed", "steps"), [(1e3, 1), (1e30, 17)])
def test_a_window_has_a_step_at_least_and_no_more_than_the_trainer_logs(
    speed: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ceiling", lambda host, seconds: speed)
    assert turns.window(small(), replace(CPU, log_every=17), 3.0) == steps


def test_two_windows_fill_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small()
    monkeypatch.setattr(turns, "ceiling", lambda host, seconds: plan(spec).flops_per_step["matmul"] / EFFICIENCY)
    assert turns.window(spec, replace(CPU, log_every=1000), 60.0) == 30  # a step takes a second
