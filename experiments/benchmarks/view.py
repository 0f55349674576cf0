"""What does `workbench view` cost with many runs? Time of each page, memory, delay of a change, and slowdown of a run.

    python experiments/benchmarks/view.py OUT.json [--runs 10000] [--store FOLDER] [--seconds 120]

The store has studies of five objectives and five seeds, each with a log of 60 rows and four scores; with --store it is
made there, or used if it is there already. Pages are timed from the request to the last byte, in a server that has
just been started and has not made the page before. The slowdown is that of the steps of a run on all cores: the server
answers a browser that follows the run's study and is stopped (SIGSTOP), in turns of five seconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

from record import here

from workbench.spec.presets import resolve
from workbench.spec.scoring import score_file
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store import manage
from workbench.store.atomic import sealed
from workbench.store.environment import environment
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore
from workbench.view.watched import LEAST

OBJECTIVES = ("rtd", "bert-mlm", "electra-15", "replace-mlm", "all-tokens-mlm")
TASKS = ("package", "order", "next", "signature")
STUDY = 25  # runs
TURN = 5.0  # seconds
STEPS = 60


def fill(root: Path, count: int) -> None:
    """Make a store of `count` runs, as training writes them."""
    os.fsync = lambda fd: None  # nothing is lost in a power cut that matters here
    store, specs = RunStore(root), []
    facts = environment(["workbench", "run", "bench"], device="cpu", threads=None)
    for number in range(count):
        lr = 1e-4 * (1 + number // STUDY)
        settings = {"objective": OBJECTIVES[number % 5], "seed": number // 5 % 5, "optim.lr": lr}
        spec = resolve("nano", settings | {"budget.steps": STEPS, "data.fingerprint": "f" * 16})
        specs.append(spec)
        finished(store.open(BoundRun(ResolvedSpec(spec))), number, facts)
        if len(specs) == STUDY:
            names = [one.name for one in specs]
            name, base = f"bench-nano-{number:08d}", spec.model_dump(mode="json")
            store.extend_experiment(ExperimentRecord(name, "bench", "Which objective?", base=base, runs=names))
            specs = []


def finished(run: RunDir, number: int, written: dict[str, Any]) -> None:
    """Write the files of a run that is over."""
    noise = random.Random(number)
    rows = [
        {"step": step, "tokens": 4096 * step, "seconds": 0.1 * step, "loss": 9 - 3 * step / STEPS + noise.random() / 5,
         "learning_rate": 1e-3, "gradient_norm": noise.random(), "tokens_per_second": 40_000.0,
         "flops": {"paper": 1e9 * step, "paper-sparse": 1e9 * step, "matmul": 1e9 * step}}
        for step in range(1, STEPS + 1)
    ]  # fmt: skip
    run.write_json("plan.json", {"steps": STEPS, "tokens": 4096 * STEPS, "flops": {}})
    run.write_json("env.json", written)
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.finish({"steps": STEPS, "tokens": 4096 * STEPS, "flops": rows[-1]["flops"]})
    (run.path / "scores").mkdir()
    for task in TASKS:
        value = 60 + number % 5 + noise.gauss(0, 1)
        score = {
            "format": 1, "task": task, "suite": "probes", "metric": "accuracy", "seed": 0, "value": value,
            "values": {"test": {"accuracy": value}}, "baselines": {"majority": 40.0}, "train_rows": 1000,
            "test_rows": 500, "steps": 90, "seconds": 1.5, "finetune": {"lr": 1e-3}, "data": "d" * 16,
            "digest": "ab12cd34", "code": "0.1.0", "encoder": run.weight_digests()["encoder"], "run_id": run.run_id,
        }  # fmt: skip
        (run.path / "scores" / score_file(task, "ab12cd34", 0)).write_bytes(sealed(score))


class Server:
    """The command, with a client that was let in."""

    def __init__(self, root: Path) -> None:
        self.begun = time.perf_counter()
        words = [sys.executable, "-m", "workbench", "view", "--runs", str(root), "--no-open"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        address = self.process.stderr.readline().strip()
        self.base = address.partition("/?")[0]
        self.client = build_opener(HTTPCookieProcessor(CookieJar()))
        self.client.open(address).read()

    def get(self, path: str) -> str:
        """Return a page."""
        return str(self.client.open(self.base + path).read().decode())

    def wait(self) -> float:
        """Wait until all runs are read, and return the seconds since the start of the command."""
        while "reading the store" in self.get("/compare"):
            time.sleep(0.5)
        return time.perf_counter() - self.begun

    def memory(self, key: str = "VmRSS") -> float:
        """Return the memory of the server in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{key}:\s+(\d+)", status)[0]) * 1024 / 1e6

    def cpu(self) -> float:
        """Return the processor time of the server in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    """Serve a store until the end of the block."""
    server = Server(root)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.process.send_signal(signal.SIGINT)
        server.process.wait()


def pages(root: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the time of each page, and the memory of the server: at the start, after all pages, and at its peak."""
    with serving(root) as server:
        started, store = server.wait(), RunStore.existing(root)
        at_start, runs = server.memory(), [run.run_id for run in store.runs()[:200]]
        names = [record.name for record in store.experiments()]
        time.sleep(20)  # in which pandas is loaded and answers are computed
        paths = {
            "studies": "/", "runs": "/runs", "runs, sorted and filtered": "/runs?where=seed%3C3&sort=-score",
            "means over seeds": "/runs?group=seeds&sort=-score", "a study": f"/study/{names[0]}/",
            "a comparison of 25 runs": f"/compare?run={','.join(runs[:25])}", "a run": f"/run/{runs[100]}",
        }  # fmt: skip
        rows = []
        for name, path in paths.items():
            begun, cpu = time.perf_counter(), server.cpu()
            size = len(server.get(path))
            row = {"page": name, "seconds": time.perf_counter() - begun, "cpu_seconds": server.cpu() - cpu}
            rows.append(row | {"bytes": size})
            print(row, flush=True)
        memory = {"start": at_start, "end": server.memory(), "peak": server.memory("VmHWM"), "seconds_to_read": started}
    return rows, memory


def delays(root: Path, repeats: int = 5) -> list[float]:
    """Return the seconds from a change of a run until the page of runs shows it."""
    found = []
    with serving(root) as server:
        server.wait()
        run = RunStore.existing(root).runs()[0]
        for number in range(repeats):
            tag = f"changed-{number}-{os.getpid()}"
            manage.annotate(run, lambda notes, tag=tag: notes.tagged(add=(tag,)))  # type: ignore[misc]
            begun = time.perf_counter()
            while f"#{tag}" not in server.get(f"/runs?where=tags%3D{tag}"):
                time.sleep(0.05)
            found.append(time.perf_counter() - begun)
            time.sleep(1)
        manage.annotate(run, lambda notes: notes.tagged(remove=notes.tags))
    return found


def slowdown(root: Path, seconds: float) -> dict[str, Any]:
    """Return the steps a second of a run beside the server, while it answers and while it is stopped, in turns."""
    words = [sys.executable, "-m", "workbench", "run", "ablation", "--objective", "rtd", "--tasks", "none"]
    words += ["--budget", "steps=1000000", "--set", f"optim.lr={5e-4 + 1e-11 * os.getpid()}", "--runs", str(root)]
    before = {run.run_id for run in RunStore.existing(root).runs()}
    with serving(root) as server, subprocess.Popen(words, stderr=subprocess.DEVNULL) as training:
        server.wait()

        def place() -> tuple[int, float]:
            """Return the step and the seconds of the last row that the run has logged."""
            new = [run for run in RunStore.existing(root).folders() if run.name not in before]
            for entry in new:
                with suppress(OSError, ValueError, IndexError):
                    row = json.loads(Path(entry.path, "metrics.jsonl").read_bytes().splitlines()[-1])
                    return row["step"], row["seconds"]
            return 0, 0.0

        try:
            while place()[0] < 200:
                time.sleep(1)
            study = RunStore.existing(root).experiments()
            name = max(study, key=lambda each: each.updated).name
            over, answering = threading.Event(), threading.Event()

            def follow() -> None:
                while not over.is_set():
                    answering.wait()
                    begun = time.perf_counter()
                    with suppress(OSError, http.client.HTTPException):
                        server.get(f"/study/{name}/")
                    # As a browser: after each look of the server, or later if a page takes long.
                    time.sleep(max(LEAST, 20 * (time.perf_counter() - begun)))

            threading.Thread(target=follow, daemon=True).start()
            rates: dict[bool, list[float]] = {True: [], False: []}
            cpu, begun = server.cpu(), time.perf_counter()
            for turn in range(max(4, int(seconds / TURN))):
                on = turn % 4 in (0, 3)  # on, off, off, on: a drift of the speed cancels out
                server.process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
                (answering.set if on else answering.clear)()
                time.sleep(1)
                first, start = place()
                time.sleep(TURN)
                last, end = place()
                rates[on].append((last - first) / (end - start))
            over.set()
            answering.set()
            share = (server.cpu() - cpu) / (time.perf_counter() - begun)
        finally:
            training.terminate()
            training.wait()
    with_server, alone = (statistics.fmean(rates[on]) for on in (True, False))
    return {
        "steps_per_second": {"with": with_server, "alone": alone}, "ratio": alone / with_server,
        "turns": {"with": rates[True], "alone": rates[False]}, "server_cpu_share_of_a_core": share,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args()
    result = here()
    with tempfile.TemporaryDirectory() as folder:
        root = chosen.store or Path(folder) / "runs"
        if not root.exists():
            fill(root, chosen.runs)
        result["runs"] = len(RunStore.existing(root).runs())
        with serving(root) as server:
            result["first_reading_seconds"] = server.wait()
        result["pages"], result["memory_mb"] = pages(root)
        result["delay_seconds"] = delays(root)
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")
        result["slowdown"] = slowdown(root, chosen.seconds)
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("pages", "memory_mb", "delay_seconds", "slowdown")}, indent=1))


if __name__ == "__main__":
    main()
