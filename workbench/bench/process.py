"""One measured process: it is told to take a turn, and answers with what it found, as lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any

from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec


class Worker:
    """A child process that runs `workbench.bench.turns`, or another program that speaks as it does."""

    def __init__(self, hello: dict[str, Any], *program: str) -> None:
        self.name = str(hello.get("name", "the ceiling"))
        self.speeds: list[float] = []
        command = [sys.executable, *(program or ("-m", "workbench.bench.turns"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell(hello)
        self._heard()  # it is warm: from here on it only waits

    @classmethod
    def ceiling(cls, host: Host) -> Worker:
        """One that measures matrix products."""
        return cls({"host": asdict(host)})

    @classmethod
    def cell(cls, spec: RunSpec, host: Host, seconds: float, steps: int | None) -> Worker:
        """One that trains `spec`: turns of `seconds`, or of exactly `steps`."""
        return cls({
            "name": f"{spec.objective} at {spec.scale}", "host": asdict(host), "spec": spec.model_dump(mode="json"),
            "source": source(spec), "seconds": seconds, "steps": steps,
        })  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def turn(self, what: str) -> dict[str, Any]:
        """The findings of one turn: "time", or "parts" of a step. Raises InputError where the process has ended."""
        self._tell({"do": what})
        found = self._heard()
        if "flops_per_second" in found:
            self.speeds.append(float(found["flops_per_second"]))
        return found

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise InputError(
                f"measuring {self.name} ended with exit code {code}"
                + ("; there may be too little memory, leave the scale out with --scale" if code == -9 else "")
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # said by `turn`, with the exit code


def source(spec: RunSpec) -> str | None:
    """The file of an objective given as a path, which the child has to find again."""
    from workbench import objectives

    path = objectives.source_file(spec)
    return str(path) if path else None
