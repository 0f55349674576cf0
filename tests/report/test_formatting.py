"""Numbers as readers see them: rounding never changes what a number means."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report import formatting as fmt


@given(st.floats(-100, 100), st.floats(1e-3, 50))
def test_rounding_keeps_what_an_interval_says_of_zero(mean: float, half: float) -> None:
    text = fmt.interval(mean, half, sign=True).replace("−", "-")
    shown, reach = (float(part) for part in text.split(" ± "))
    if abs(abs(mean) - half) > 1e-4:
        assert (abs(shown) > reach) == (abs(mean) > half)
    assert shown == pytest.approx(mean, abs=0.051) and reach == pytest.approx(half, abs=0.051) and reach > 0


def test_intervals() -> None:
    assert fmt.interval(68.24, 0.91) == "68.2 ± 0.9"
    assert fmt.interval(-1.26, 0.5, sign=True) == "−1.3 ± 0.5"
    assert fmt.interval(0.04, 0.03, sign=True) == "+0.04 ± 0.03"
    assert fmt.interval(70.0, None) == "70.0" and fmt.interval(70.0, 0.0) == "70.0 ± 0.0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.293743798272e18, "1.29×10¹⁸"), (9.996e17, "1.00×10¹⁸"), (42, "42"), (0, "0"), (math.nan, "–"),
        (1e4, "1.00×10⁴"),
    ],
)  # fmt: skip
def test_powers(value: float, text: str) -> None:
    assert fmt.power(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.25, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (3 * 86400 + 4 * 3600, "3 d 4 h"),
        (3599.7, "1 h 00 min"),
    ],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert fmt.duration(value) == text


def test_counts_and_listings() -> None:
    assert [fmt.count(v) for v in (0, 15625, 99_999, 999_499, 999_500, 1.02e6, 16.4e9, 9.999e14, 2e15, math.nan)] == [
        "0", "15,625", "99,999", "999 k", "1 M", "1.02 M", "16.4 G", "1,000 T", "2,000 T", "–",
    ]  # fmt: skip
    assert [fmt.listing(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert fmt.seeds([1, 1]) == "1 seed" and fmt.seeds([3, 5]) == "3 to 5 seeds"


def test_degrees_of_freedom() -> None:
    said = {1: "1 degree", 5.98: "6 degrees", 4.24: "4.2 degrees", 120.4: "120 degrees"}
    assert {df: fmt.freedom(df) for df in said} == {df: f"{text} of freedom" for df, text in said.items()}


@given(st.text())
def test_cleaned_text_can_be_written_anywhere(text: str) -> None:
    cleaned = fmt.clean(text)
    cleaned.encode("utf-8")
    assert not any(ord(c) < 32 or c in "\u202e\u200f\x7f" for c in cleaned) and len(cleaned) == len(text)


@pytest.mark.parametrize("value", [-0.04, -0.0, 0.0])
def test_nothing_is_a_negative_zero(value: float) -> None:
    assert fmt.points(value) == "0.0" and fmt.points(value, sign=True) == "+0.0"
    assert fmt.points(-0.06) == "\u22120.1"
