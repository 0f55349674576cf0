"""Options of jobs: what a usable value looks like, in its type, and the sentence where there is none."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.spec.host import OPTIONS, Launch, checked, seconds


def test_every_option_is_a_field_of_a_launch_or_names_the_file_of_several() -> None:
    assert OPTIONS.keys() - {"profile"} == {field.name for field in dataclasses.fields(Launch)}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "profile"])
def test_a_checked_value_has_the_type_of_its_field(name: str) -> None:
    [value] = checked({name: OPTIONS[name][1]}, "--set").values()
    default = getattr(Launch(), name)
    assert str(value) == OPTIONS[name][1]
    assert isinstance(value, int) == (name in ("gpus", "cpus", "seconds_before"))
    assert default is None or type(value) is type(default)


@settings(max_examples=50)
@example("partition", True)
@given(st.sampled_from(sorted(OPTIONS)), st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text()))
def test_any_value_is_taken_or_refused_in_a_line(name: str, value: object) -> None:
    """What is taken has no line end, which would begin a line of its own in a job's script."""
    try:
        [found] = checked({name: value}, "profile.toml").values()
    except InputError as error:
        assert str(error).startswith(f"profile.toml: launch.{name}=") and "\n" not in str(error)
    else:
        assert not isinstance(value, bool) and str(found) and "\n" not in str(found) and "\x00" not in str(found)


@pytest.mark.parametrize("value", ["a\x00", "\x1b[2J", "a b"])
def test_a_name_has_no_control_characters_and_no_blanks(value: str) -> None:
    with pytest.raises(InputError, match=r"launch\.account="):
        checked({"account": value}, "profile.toml")


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"unknown key 'launch.tiem' in --set; did you mean 'launch.time'"):
        checked({"tiem": "1"}, "--set")


@pytest.mark.parametrize(
    ("time", "length"),
    [
        ("0", 0), ("90", 5400), ("90:30", 5430), ("04:00:00", 14400), ("100:00:59", 360059), ("1-0", 86400),
        ("2-23", 255600), ("1-2:30", 95400), ("1-02:30:05", 95405),
    ],
)  # fmt: skip
def test_a_time_is_taken_as_sbatch_takes_it(time: str, length: int) -> None:
    assert checked({"time": time}, "--set") == {"time": time} and seconds(time) == length


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "99:99:99"), ("time", "1:60"), ("time", "1-24"), ("time", "1-2:60"), ("time", "99999999"),
        ("time", "\u0663:\u0663"), ("time", "1-2-3"), ("time", "1:2:3:4"), ("memory", "\u0663G"), ("memory", "1e3"),
        ("memory", "99999T"), ("gpus", "1\u0663"), ("cpus", "0"),
    ],
)  # fmt: skip
def test_a_time_or_an_amount_that_no_job_has_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=rf"^--set: launch\.{name}=.* cannot be used; a usable value is '"):
        checked({name: value}, "--set")
