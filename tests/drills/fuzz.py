"""Goal 18: random settings and random command lines, through the command's own `main`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from workbench.spec.run_spec import known_keys

from .small import environment, limit, preload

HANGS = 5.0  # seconds of processor time, which other programs on the machine do not change
ODD = [
    "", " ", "0", "-1", "1e999", "nan", "inf", "-inf", "none", "true", "[]", "{}", "1,2,3", "=", "==", "a=b", "\t",
    "\n", "\x00", "\x1b[31m", "ünï", "\ud800", "x" * 3000, "9" * 5000, "../..", "/dev/null", "/dev/zero", "~", "*",
    "%s", "{0}", "'; DROP TABLE runs;", "<script>", "$(id)", "!!python/object:os.system", "1e17", "2_000", "0x10",
    "１２", "1 2", "-",
]  # fmt: skip
COMMANDS = (
    "run report status flops list evaluate data worker sweep bench doctor runs note tag archive rm restore "
    "prune du gc cp mv import"
)
OPTIONS = (
    "--objective --set --scale --corpus --tasks --budget --seeds --runs --out --workers --device --precision "
    "--micro-batch --threads --save-every --track --json --record --run --sed -- -x --no-such-option"
)

OF_ITS_OWN = {"tasks.names": "--tasks", "data.corpus": "corpus"}  # keys that have an option of their own

words = st.sampled_from(ODD) | st.text(max_size=30)
keys = st.sampled_from([*known_keys(), "options.copy_loss", "scale"])
near = keys.flatmap(lambda key: st.integers(0, len(key) - 1).map(lambda at: key[:at] + key[at + 1 :]))
numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(), st.integers(10**18, 10**30)).map(str)
usual = st.sampled_from(["1", "2", "4", "8", "64", "0.5", "1e-3", "true", "false", "none", "1e6", "10000000", "all"])
wild = st.tuples(keys | near | words, st.sampled_from(["=", "==", "", ":"]), words | numbers).map("".join)
setting = st.tuples(keys, usual).map("=".join) | wild


def called(arguments: list[str]) -> tuple[int, str, str, float]:
    """Exit code, output, errors and seconds of processor time of the command, in this process."""
    from workbench.cli import main

    out, err = io.StringIO(), io.StringIO()
    before, variables = sys.argv, dict(os.environ)
    begun = time.process_time()
    sys.argv = ["workbench", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        if "torch" in sys.modules:  # a plan times steps, with tiny numbers as zeros, which hypothesis will not have
            sys.modules["torch"].set_flush_denormal(False)
        sys.argv = before
        os.environ.clear()
        os.environ.update(variables)
    return int(code), out.getvalue(), err.getvalue(), time.process_time() - begun


def judge(arguments: list[str], code: int, errors: str, seconds: float) -> None:
    """Nothing but a clean end, or a refusal in one line."""
    assert seconds < limit(HANGS), f"{seconds:.0f} s: {arguments}"
    assert "Traceback" not in errors and "internal error" not in errors, (arguments, errors)
    assert code in (0, 2), (code, arguments, errors)
    if code == 2:
        lines = errors.strip().split("\n")
        assert lines[-1].startswith("workbench: "), (arguments, errors)
        assert len(errors) < 12_000, (arguments, len(errors))


def configurations(folder: Path, count: int) -> str:
    """Random `--set` of keys, near-misses and values, checked by pricing a run: refused by name, or taken."""
    preload()
    seen, took = {0: 0, 2: 0}, [0.0]

    @seed(18)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(setting, min_size=1, max_size=3))
    def attempt(given: list[str]) -> None:
        arguments = ["flops", "--json", *(part for text in given for part in ("--set", text))]
        code, _, errors, seconds = called(arguments)
        judge(arguments, code, errors, seconds)
        seen[code] += 1
        took.append(seconds)
        if code == 2:
            assert named(given, errors), (given, errors)

    with contextlib.chdir(folder):
        attempt()
    return f"{seen[2]} configurations refused by key and {seen[0]} taken, the slowest after {max(took):.1f} s"


def named(given: list[str], errors: str) -> bool:
    """Whether the message holds one of the keys that were set, or the part of the spec they belong to."""
    said = errors.lower()
    for text in given:
        key = text.partition("=")[0].strip()
        if key in OF_ITS_OWN and OF_ITS_OWN[key] in said:
            return True
        if not key or any(repr(part)[1:-1].lower()[:40] in said for part in (key, text)):
            return True
        if any(part and re.search(rf"\b{re.escape(part.lower())}\b", said) for part in re.split(r"[.:]", key)):
            return True
    return False


def command_lines(folder: Path, count: int) -> str:
    """Random commands, options and values. Whatever could begin to train asks for its plan only."""
    seen, took = {0: 0, 2: 0}, [0.0]
    option = st.tuples(st.sampled_from(OPTIONS.split()), words | numbers | setting).map(list) | words.map(lambda w: [w])

    @seed(18)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(COMMANDS.split()) | words, st.lists(option, max_size=4))
    def attempt(command: str, options: list[list[str]]) -> None:
        arguments = [command, *(word for part in options for word in part)]
        if command == "run":
            arguments[1:1] = ["ablation", "--dry-run"]
        if command in ("bench", "sweep"):  # those measure or train by themselves: a wrong option makes them stop
            arguments.append("--no-such-option")
        code, _, errors, seconds = called(arguments)
        judge(arguments, code, errors, seconds)
        seen[code] += 1
        took.append(seconds)

    with contextlib.chdir(folder):
        attempt()
        odd = [word for word in ODD[: max(2, count // 100)] if "\0" not in word]
        sampled = sample(folder, [["run", "ablation", "--set", word] for word in odd])
    found = f"{seen[2]} command lines refused and {seen[0]} taken, the slowest after {max(took):.1f} s"
    return f"{found}; {sampled} of them again as processes"


def as_typed(word: str) -> str:
    """The word as a process gets it: bytes that are not UTF-8, such as half a surrogate pair, are escaped by Python."""
    return word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def sample(folder: Path, lines: list[list[str]]) -> int:
    """The same through real processes."""
    for arguments in lines:
        arguments = [as_typed(word) for word in arguments]
        found = subprocess.run(
            [sys.executable, "-m", "workbench", *arguments], cwd=folder, env=environment(folder / "cache"),
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        judge([str(word) for word in arguments], found.returncode, found.stderr, 0.0)
        assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    return len(lines)
