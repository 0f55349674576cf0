"""A child process that measures: it reads requests for turns from stdin and writes results to stdout, as JSON lines."""

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
    """A child process that runs `workbench.bench.turns`, or another program with the same protocol."""

    def __init__(self, first_message: dict[str, Any], *program: str) -> None:
        self.name = str(first_message.get("name", "the ceiling"))
        self.speeds: list[float] = []
        command = [sys.executable, *(program or ("-m", "workbench.bench.turns"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._send(first_message)
            self._receive()  # it has warmed up, and waits for turns
        except BaseException:
            self.close()
            raise

    @classmethod
    def ceiling(cls, host: Host) -> Worker:
        """Return a worker that measures matrix products."""
        return cls({"host": asdict(host)})

    @classmethod
    def cell(cls, spec: RunSpec, host: Host, seconds: float, steps: int | None) -> Worker:
        """Return a worker that trains `spec`, in turns of `seconds`, or of exactly `steps`."""
        return cls({
            "name": f"{spec.objective} at {spec.scale}", "host": asdict(host), "spec": spec.model_dump(mode="json"),
            "source": source(spec), "seconds": seconds, "steps": steps,
        })  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def turn(self, what: str) -> dict[str, Any]:
        """Return the results of one turn: of kind "time", or "parts" of a step.

        Raises InputError if the process has ended.
        """
        self._send({"do": what})
        results = self._receive()
        if "flops_per_second" in results:
            self.speeds.append(float(results["flops_per_second"]))
        return results

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise InputError(
                f"the process that measures {self.name} ended with exit code {code}"
                + ("; memory may be too small for this scale: choose others with --scale" if code == -9 else "")
            )
        results: dict[str, Any] = json.loads(line)
        return results

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _send(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `turn` reports it, with the exit code


def source(spec: RunSpec) -> str | None:
    """Return the file of an objective that was given as a path, so that the child process can load it."""
    from workbench import objectives

    path = objectives.source_file(spec)
    return str(path) if path else None
