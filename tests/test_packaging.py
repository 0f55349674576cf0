"""What is installed: pins that cover everything, and a wheel that carries its experiments and templates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    matches = [re.fullmatch(r"([a-z0-9-]+)==([\w.]+)", line) for line in lines]
    assert all(matches), f"not a plain pin: {[line for line, match in zip(lines, matches, strict=True) if not match]}"
    return {match[1]: match[2] for match in matches if match}


def declared() -> list[Requirement]:
    extras = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in (*PROJECT["dependencies"], *extras)]


def test_pins_are_sorted_and_of_this_torch() -> None:
    assert list(pins()) == sorted(pins())
    assert pins()["torch"] == "2.13.0"


def test_every_pin_is_within_its_range() -> None:
    for wanted in declared():
        assert wanted.specifier.contains(pins()[canonical(wanted.name)], prereleases=True), wanted


def test_every_pin_is_for_the_oldest_python_too() -> None:
    """Distributions of Linux stay at the first releases of a Python, where pip refuses a pin that needs a later one."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    installed = {canonical(each.metadata["Name"]): each for each in distributions()}
    pinned = [
        installed[name] for name, version in pins().items() if name in installed and installed[name].version == version
    ]
    assert len(pinned) > 100
    wanted = {each.metadata["Name"]: each.metadata["Requires-Python"] or "" for each in pinned}
    assert not {name: python for name, python in wanted.items() if not SpecifierSet(python).contains(oldest)}


def test_everything_that_gets_installed_is_pinned() -> None:
    todo, done = [wanted for wanted in declared()], set[str]()
    while todo:
        wanted = todo.pop()
        if wanted.name in done or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        done.add(wanted.name)
        try:
            todo += [Requirement(text) for text in requires(wanted.name) or ()]
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
    # Packages that only a build of torch for GPUs brings are pinned by torch itself.
    missing = {canonical(name) for name in done} - set(pins())
    assert not {name for name in missing if not re.match(r"nvidia-|cuda-|triton", name)}


# An interpreter that logs what pip is to install, and fails where the install of the file FAIL's content is asked for.
PYTHON = """#!/bin/sh
case "$*" in
  *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo venv >> log ;;
  *" install "*) for last; do :; done; echo "$last" >> log; [ "$last" != "$(cat FAIL 2>/dev/null)" ] ;;
esac
"""


def test_make_installs_for_running_what_running_needs_and_for_tests_the_rest(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    log, torch = tmp_path / "log", f"torch=={pins()['torch']}"

    def installed(target: str, fails: str = "") -> list[str]:
        log.write_text("")
        (tmp_path / "FAIL").write_text(fails)
        command = ["make", target, "PYTHON=./python"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode == 0) == (not fails), done.stderr
        return log.read_text().splitlines()

    ready, development = ".venv/.ready", ".[dev]"
    assert installed(ready) == ["venv", torch, "."] and installed(ready) == []
    assert installed("test") == [development] and installed("lint") == installed(ready) == []
    os.utime(tmp_path / "pyproject.toml")
    assert installed(ready, fails=".") == [torch, "."]
    assert installed("test", fails=development) == ["venv", torch, ".", development]  # a torn install is made anew
    assert installed(ready) == ["venv", torch, "."] and installed("setup") == [development]
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    log, tmp_path = moved / "log", moved
    assert installed("test") == ["venv", torch, ".", development]


@pytest.mark.slow
def test_the_wheel_is_complete(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), str(ROOT),
    ]  # fmt: skip
    if subprocess.run([sys.executable, "-c", "import hatchling"], check=False, capture_output=True).returncode:
        command.remove("--no-build-isolation")
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "workbench").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    experiments = {f"workbench/{path.relative_to(ROOT)}" for path in (ROOT / "experiments").glob("*.py")}
    assert {".py", ".c", ".h", ".j2", ".js", ".css"} <= {Path(name).suffix for name in sources} and experiments
    assert sources | experiments <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not {name for name in names if name.startswith(("tests", "docs", "runs", "reports"))}
