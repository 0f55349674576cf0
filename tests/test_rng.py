"""Randomness by place: the right distribution, and always the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.rng import mixed, row_keys, seed_of, uniform

MASK = (1 << 64) - 1


def slow_mix(x: int) -> int:
    """The finaliser of SplitMix64 in plain integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def slow_key(seed: int, position: int) -> int:
    step = (position * 0x9E3779B97F4A7C15) & MASK
    return slow_mix(slow_mix(step) ^ seed_of(seed, "rows"))


def slow_uniform(key: int, stream: str, place: int) -> float:
    step = ((place + 1) * 0x9E3779B97F4A7C15) & MASK
    return (slow_mix((slow_mix(key ^ seed_of(0, stream)) + step) & MASK) >> 40) / 2**24


def numbers(seed: int, stream: str, rows: int, count: int) -> np.ndarray:
    return uniform(row_keys(seed, torch.arange(rows)), stream, count).double().numpy()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**50), st.sampled_from(["picks", "mask", "sample"]))
def test_equal_to_plain_integers(seed: int, position: int, stream: str) -> None:
    keys = row_keys(seed, torch.tensor([position]))
    assert int(keys) & MASK == slow_key(seed, position)
    assert uniform(keys, stream, 3)[0].tolist() == [slow_uniform(slow_key(seed, position), stream, i) for i in range(3)]


@given(st.lists(st.integers(0, MASK), min_size=1))
def test_words_of_numpy_are_mixed_as_plain_integers(words: list[int]) -> None:
    assert mixed(np.array(words, dtype=np.uint64)).tolist() == [slow_mix(word) for word in words]


def test_numbers_do_not_change() -> None:
    """Runs on disk were drawn with these; other numbers would make every resumed run another run."""
    keys = row_keys(0, torch.arange(3))
    drawn = uniform(keys, "picks", 4)
    assert seed_of(0, "rows") == 4537186741720085182
    assert keys.tolist() == [-425003267534600226, 4069286753099109627, 6231836258860691239]
    assert drawn.dtype == torch.float32
    assert (drawn * 2**24).long().tolist() == [
        [4710142, 13827839, 9428004, 12961601],
        [1620092, 9101626, 15554184, 10960370],
        [5393149, 1532275, 10000057, 11598785],
    ]


def test_seeds_are_stable_and_apart() -> None:
    assert seed_of(3, "init", 2) == int(hashlib.sha256(b"3/init/2").hexdigest()[:16], 16) >> 1
    seeds = [seed_of(seed, name, place) for seed in range(20) for name in ("a", "b") for place in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(1, 20), st.data())
def test_a_row_is_the_same_in_every_batch(seed: int, start: int, rows: int, data: st.DataObject) -> None:
    """Micro-batches and ranks cut the stream of rows anywhere; a row's numbers do not notice."""
    whole = uniform(row_keys(seed, torch.arange(start, start + rows)), "picks", 7)
    cut = data.draw(st.integers(0, rows))
    parts = [torch.arange(start, start + cut), torch.arange(start + cut, start + rows)]
    assert torch.equal(whole, torch.cat([uniform(row_keys(seed, part), "picks", 7) for part in parts]))
    assert torch.equal(whole[:, :3], uniform(row_keys(seed, torch.arange(start, start + rows)), "picks", 3))


@pytest.mark.parametrize("stream", ["picks", "sample"])
def test_evenly_spread(stream: str) -> None:
    drawn = numbers(1, stream, 1000, 200)
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, bins=256, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    low_bits = (drawn * 2**24).astype(int) % 64
    assert stats.chisquare(np.bincount(low_bits.ravel(), minlength=64)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (numbers(1, "picks", 1000, 100), numbers(1, "mask", 1000, 100)),
        (numbers(1, "picks", 1000, 100), numbers(2, "picks", 1000, 100)),
        (numbers(1, "picks", 1000, 100)[:-1], numbers(1, "picks", 1000, 100)[1:]),
        (numbers(1, "picks", 1000, 100)[:, :-1], numbers(1, "picks", 1000, 100)[:, 1:]),
    ],
    ids=["streams", "seeds", "rows", "places"],
)
def test_neighbours_know_nothing_of_each_other(one: np.ndarray, other: np.ndarray) -> None:
    pairs = np.histogram2d(one.ravel(), other.ravel(), bins=16, range=((0, 1), (0, 1)))[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(one.size)


def test_keys_do_not_meet() -> None:
    keys = torch.cat([row_keys(seed, torch.arange(200_000)) for seed in range(5)])
    assert len(torch.unique(keys)) == len(keys)


@pytest.mark.gpu
def test_a_gpu_draws_the_same_numbers() -> None:
    positions = torch.arange(2**40, 2**40 + 1000)
    here, there = (uniform(row_keys(5, positions.to(device)), "picks", 77).cpu() for device in ("cpu", "cuda"))
    assert torch.equal(here, there)


@pytest.mark.filterwarnings("ignore")  # warnings of torch's compiler
@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_compiled_code_draws_the_same_numbers(device: str) -> None:
    """By torch's own compiler, whose vectors of 64-bit numbers are reached from 16 columns on."""
    torch._dynamo.reset()
    keys = row_keys(5, torch.arange(2**40, 2**40 + 12)).to(device)
    compiled = torch.compile(uniform, fullgraph=True)
    for count in (7, 24, 77):
        assert torch.equal(compiled(keys, "picks", count), uniform(keys, "picks", count)), count
