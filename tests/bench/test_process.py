"""The child process that measures: what it is sent, what comes back, and how its end is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench import bench, objectives
from workbench.bench.turns import PROGRAM, Worker
from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, parse

ECHO = """
    import json, sys
    hello = json.loads(sys.stdin.readline())
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)["do"]
        if asked == "end":
            sys.exit(3)
        speed = {"flops_per_second": 2} if asked == "time" else {}
        print(json.dumps({"hello": hello, "asked": asked} | speed), flush=True)
"""


def test_the_child_begins_without_a_warning() -> None:
    begun = subprocess.run([sys.executable, *PROGRAM], input="", capture_output=True, text=True, check=False)
    assert "Warning" not in begun.stderr


def program(code: str) -> tuple[str, ...]:
    return "-S", "-c", textwrap.dedent(code)  # without site-packages it starts in a few milliseconds


class Echo(Worker):
    """A worker whose child repeats what it was sent, in place of the measuring program."""

    def __init__(self, hello: dict[str, Any], *rest: str) -> None:
        super().__init__(hello, *program(ECHO))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_turn_asks_once_and_speeds_are_kept_in_order() -> None:
    with Echo({"name": "größe at nano", "seconds": 0.5}) as worker:
        assert worker.name == "größe at nano" and not gone(worker.pid)
        first, parts, _ = (worker.turn(what) for what in ("time", "parts", "time"))
    assert first == {"hello": {"name": "größe at nano", "seconds": 0.5}, "asked": "time", "flops_per_second": 2}
    assert parts["asked"] == "parts" and worker.speeds == [2.0, 2.0]


def test_the_child_is_gone_when_the_block_ends_well_or_badly() -> None:
    with Echo({}) as worker:
        pass
    assert gone(worker.pid)
    with pytest.raises(KeyError), Echo({}) as worker:
        raise KeyError
    assert gone(worker.pid)


def test_a_turn_that_goes_on_is_not_waited_for(tmp_path: Path) -> None:
    late = tmp_path / "late"
    code = f"import time; print('{{}}', flush=True); time.sleep(2); open({str(late)!r}, 'w')"
    with Worker({}, "-S", "-c", code):
        pass
    assert not late.exists()


def test_a_child_that_ends_is_named_with_its_exit_code() -> None:
    with Echo({"name": "rtd at nano"}) as worker:
        with pytest.raises(InputError, match=r"rtd at nano\b.* 3\b") as caught:
            worker.turn("end")
        assert "--scale" not in str(caught.value)
        with pytest.raises(InputError, match=r"rtd at nano\b.* 3\b"):  # nobody reads what is sent now
            worker.turn("x" * 100_000)


def test_a_child_that_was_killed_may_have_lacked_memory() -> None:
    with Echo({"name": "rtd at large"}) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(InputError, match=r"rtd at large\b.* -9\b.*--scale"):
            worker.turn("time")


def test_a_child_that_ends_before_it_is_ready_is_an_error_at_once() -> None:
    with pytest.raises(InputError, match=r"rtd at nano\b.* 5\b"):
        Worker({"name": "rtd at nano"}, *program("import sys; sys.stdin.readline(); sys.exit(5)"))


class Stopped(Echo):
    """A worker that is interrupted while it waits for its child."""

    pids: list[int] = []  # noqa: RUF012

    def _receive(self) -> dict[str, Any]:
        self.pids.append(self.pid)
        raise KeyboardInterrupt


def test_no_child_outlives_a_start_that_was_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt):
        Stopped({})
    assert gone(Stopped.pids[-1])


def test_no_child_outlives_the_start_of_another_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cell does not fit into memory; the process of the first was waiting for its turn by then."""
    started: list[Worker] = []

    def cell(spec: RunSpec, *rest: Any) -> Worker:
        if started:
            raise InputError("memory may be too small")
        started.append(Echo({}))
        return started[0]

    monkeypatch.setattr(Worker, "ceiling", lambda host: Echo({}))
    monkeypatch.setattr(Worker, "cell", cell)
    specs = [objectives.with_options(resolve("nano", {"objective": name})) for name in ("rtd", "bert-mlm")]
    with pytest.raises(InputError, match="memory may be too small"):
        bench.bench(specs, Host(device="cpu", precision="fp32"), bench.Settings(), print)
    assert gone(started[0].pid)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """Return the spec of an objective in a file of a person's own."""
    path = tmp_path / "my_idea.py"
    path.write_text(Path(objectives.load(resolve("nano")).__file__ or "").read_text(encoding="utf-8"), encoding="utf-8")
    name, origin = objectives.find(str(path))
    return objectives.with_options(resolve("micro", {"seed": 7}).replace(objective=name, source=origin))


def test_a_cell_is_sent_whole(spec: RunSpec, tmp_path: Path) -> None:
    """The other process knows neither the options of this one, nor the file of its objective."""
    host = Host(device="cpu", precision="fp32", threads=3)
    with Echo.cell(spec, host, 1.5, None) as worker:
        hello = worker.turn("parts")["hello"]
    assert parse(hello["spec"]) == spec and replace(Host(**hello["host"]), command=()) == host
    assert (hello["seconds"], hello["steps"], hello["files"]) == (
        1.5, None, {"objective.py": str(tmp_path / "my_idea.py")},
    )  # fmt: skip
    assert spec.objective in worker.name and "micro" in worker.name


def test_what_measures_matrix_products_has_neither_cell_nor_source() -> None:
    host = Host(device="cpu", threads=2)
    with Echo.ceiling(host) as worker:
        hello = worker.turn("time")["hello"]
    assert hello.keys() == {"host"} and replace(Host(**hello["host"]), command=()) == host
