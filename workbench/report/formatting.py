"""Numbers and names as text for the sentences, tables and figures of a report.

Numbers are rounded here; the CSV files and the `data` elements of the page have full precision.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from workbench.errors import plural

MINUS, PLUS_MINUS, TIMES = "\u2212", "\u00b1", "\u00d7"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_PREFIX = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def clean(text: object) -> str:
    """Return printable text on one line: control, format and lone surrogate characters become U+FFFD."""
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") else c for c in str(text))


def cut(text: str, most: int) -> str:
    """Return the text, cut to `most` characters with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short(text: object, most: int = 28) -> str:
    """Return a name as printable text, cut if it is too long for a figure."""
    return cut(clean(text), most)


def capital(text: str) -> str:
    """Return the text with a capital first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


def points(value: float | None, places: int = 1, sign: bool = False) -> str:
    """Return a score or a difference of scores as text: `68.2`, `+1.3`, `−0.4`; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    value = round(value, places) + 0.0  # no negative zero
    text = f"{value:+.{places}f}" if sign else f"{value:.{places}f}"
    return text.replace("-", MINUS)


def places_for(mean: float, half: float) -> int:
    """Return the decimals (1 to 4) that keep an interval wide and do not change whether it contains 0."""
    for places in (1, 2, 3):
        m, h = round(abs(mean), places), round(half, places)
        if h > 0 and (m > h) == (abs(mean) > half):
            return places
    return 4 if half else 1


def interval(mean: float, half: float | None, sign: bool = False) -> str:
    """Return `68.2 ± 0.9`, or the mean alone if there is no interval."""
    if half is None:
        return points(mean, 1, sign)
    places = places_for(mean, half)
    return f"{points(mean, places, sign)} {PLUS_MINUS} {half:.{places}f}"


def power(value: float, digits: int = 3) -> str:
    """Return a number as `1.29×10¹⁸`, or without a power of ten if it is below 10,000; a dash for NaN."""
    if math.isnan(value):
        return "–"
    if abs(value) < 1e4:
        return f"{value:.{digits}g}"
    exponent = math.floor(math.log10(abs(value)))
    mantissa = f"{value / 10**exponent:.{digits - 1}f}"
    if mantissa.startswith("10"):
        mantissa, exponent = f"{1:.{digits - 1}f}", exponent + 1
    return f"{mantissa}{TIMES}{ten_to(exponent)}"


def ten_to(exponent: int) -> str:
    """Return a power of ten as text: `10¹⁸`."""
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def count(value: float) -> str:
    """Return a count as `1.02 M` or `15,625`; a dash for NaN."""
    if math.isnan(value):
        return "–"
    if value < 1e5:
        return f"{value:,.0f}"
    scaled, letter = in_units(value)
    return f"{scaled:.3g} {letter}" if scaled < 1000 else f"{value / 1e12:,.0f} {letter}"


def in_units(value: float) -> tuple[float, str]:
    """Return a value of at least 1,000 to three digits in the largest unit that it reaches: (1.0, "M") for 999,990."""
    rounded = float(f"{value:.3g}")
    return next((rounded / size, letter) for size, letter in _PREFIX if rounded >= size)


def duration(seconds: float) -> str:
    """Return a time as `4.2 s`, `3 min 20 s`, `2 h 05 min` or `3 d 4 h`; a dash for NaN."""
    if math.isnan(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def listing(items: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def freedom(df: float) -> str:
    """Return `1 degree of freedom` or `4.2 degrees of freedom`."""
    text = f"{df:.{int(df < 9.95)}f}".removesuffix(".0")
    return f"{text} degree{'s' * (text != '1')} of freedom"


def seeds(numbers: Sequence[int]) -> str:
    """Return `1 seed` or `5 seeds`, or the range if the numbers differ: `3 to 5 seeds`."""
    low, high = min(numbers), max(numbers)
    return plural(low, "seed") if low == high else f"{low} to {high} seeds"
