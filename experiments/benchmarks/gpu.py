"""How fast does training go on one GPU, beside Hugging Face's models? Writes one JSON file and prints a table.

    python experiments/benchmarks/gpu.py OUT.json [--part small] [--part micro] ... [--seconds 240]

Every contender is a whole optimizer step in a process of its own, as in `peers.py`. The processes of a part start
together, and then take turns, so that each has the GPU to itself while it is measured. `ratio` is the speed over that
of `hf bf16`, the pair of Hugging Face models in a plain loop under autocast, in the same turns; `of_ceiling` is the
share of the fastest bf16 matrix product, or of the fastest fp32 one for contenders in fp32. Parts:

small, base     ELECTRA-Small (128 rows of 128) and ELECTRA-Base (32 rows of 512): objectives, eager and compiled
micro, mini     RTD at these scales, by 1, 4, 8 and 12 processes at once: the sum of their speeds

What fails, or is left out because the time is up, is recorded as text. OUT is written after each measurement.
`--device cpu --tiny` tries the script out on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from record import here

from workbench import objectives
from workbench.bench.turns import Worker
from workbench.cli.terminal import table
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.stages import ResolvedSpec
from workbench.training.plan import plan

HERE = Path(__file__).parent
PARTS: dict[str, dict[str, Any]] = {"small": {}, "base": {"batch.size": 32}, "micro": {}, "mini": {}}
TINY = {
    "encoder.hidden": 64, "encoder.layers": 2, "encoder.embedding": 64, "encoder.vocab": 1000, "encoder.positions": 64,
    "data.length": 32, "batch.size": 8,
}  # fmt: skip
AT_ONCE = (1, 4, 8, 12)
START = 0.65  # largest share of the time of a part in which its processes may get ready
BASE = "hf bf16"
DETERMINISTIC = (
    "import runpy, torch, warnings; warnings.simplefilter('ignore'); "
    "torch.use_deterministic_algorithms(True, warn_only=True); "
    "torch.utils.deterministic.fill_uninitialized_memory = False; "
    "runpy.run_module('workbench.bench.turns', run_name='__main__')"
)


@dataclass(frozen=True)
class Contender:
    """One process: an objective of ours, or a peer of `peer_models.py`; how it computes.

    `deterministic` says whether torch is told to use algorithms whose sums always have the same order, where it can.
    """

    name: str
    objective: str
    precision: str = "bf16"
    compile: bool = False
    peer: str = ""
    deterministic: bool = False


SIDE_BY_SIDE = (
    Contender(BASE, "rtd", peer="hf-naive"),
    Contender("rtd", "rtd"),
    Contender("rtd compiled", "rtd", compile=True),
    Contender("rtd deterministic", "rtd", deterministic=True),
    Contender("hf fp32", "rtd", "fp32", peer="hf-naive"),
    Contender("rtd fp32", "rtd", "fp32"),
    Contender("all-tokens-mlm", "all-tokens-mlm"),
    Contender("all-tokens-mlm compiled", "all-tokens-mlm", compile=True),
    Contender("bert-mlm", "bert-mlm"),
    Contender("bert-mlm compiled", "bert-mlm", compile=True),
    Contender("causal-lm", "causal-lm"),
)


class Clock:
    """The time that is left of `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.ends = time.monotonic() + seconds

    def left(self, share: float = 1.0) -> float:
        """Return the seconds in a share of the time that is left."""
        return max(0.0, share * (self.ends - time.monotonic()))


class Results:
    """The rows so far, which are written to `out` after each change."""

    def __init__(self, out: Path, device: str) -> None:
        self.out = out
        self.found: dict[str, Any] = here(device) | {"ceiling": {}, "rows": []}
        self.write()

    def add(self, **row: Any) -> None:
        self.found["rows"].append(row)
        print(json.dumps({k: v for k, v in row.items() if k != "turns"}), file=sys.stderr, flush=True)
        self.write()

    def write(self) -> None:
        self.out.write_text(json.dumps(self.found, indent=1) + "\n")


def spec_of(part: str, objective: str, tiny: bool) -> ResolvedSpec:
    keys = PARTS[part] | (TINY if tiny else {}) | {"budget.steps": 10**6}
    return objectives.with_options(resolve(part, keys).replace(objective=objective))


def start(contender: Contender, spec: ResolvedSpec, device: str, turn: float) -> Worker:
    """Return the process of a contender, which has warmed up. Raises InputError if it ended instead."""
    host = Host(device=device, precision=contender.precision, threads=1, compile=contender.compile)  # type: ignore[arg-type]
    hello = {"name": contender.peer or contender.name, "spec": spec.model_dump(mode="json"), "host": asdict(host),
             "files": {}, "seconds": turn, "steps": None, "every": 10}  # fmt: skip
    if contender.peer:
        return Worker(hello, str(HERE / "peer_models.py"))
    return Worker(hello, *(("-c", DETERMINISTIC) if contender.deterministic else ()))


def within(seconds: float, work: Callable[[], Any], otherwise: Callable[[], None]) -> Any:
    """Return the result of `work`; after so many seconds, `otherwise` is called, which makes it fail."""
    timer = threading.Timer(seconds, otherwise)
    timer.start()
    try:
        return work()
    finally:
        timer.cancel()


def started(
    contenders: list[Contender], specs: list[ResolvedSpec], device: str, turn: float, clock: Clock
) -> list[Worker | str]:
    """Start all processes at once; in place of one that fails, or is not ready in time, is the reason.

    They may take START of the time that is left.
    """
    ends = Clock(clock.left(START))
    pool = ThreadPoolExecutor(len(contenders))
    futures = [pool.submit(start, c, s, device, turn) for c, s in zip(contenders, specs, strict=True)]
    found: list[Worker | str] = []
    for future in futures:
        try:
            found.append(future.result(timeout=ends.left()))
        except TimeoutError:
            found.append("it was not ready in time")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def taken(worker: Worker, clock: Clock) -> dict[str, Any]:
    """Return the results of one turn. Raises InputError if the process ended, or was ended as the time was up."""
    found: dict[str, Any] = within(clock.left(), lambda: worker.turn("time"), worker.close)
    return found


def side_by_side(part: str, results: Results, clock: Clock, chosen: argparse.Namespace) -> None:
    """Measure the contenders of a part in turns A B C A B C, and add a row for each."""
    contenders = [c for c in SIDE_BY_SIDE if not chosen.only or c.name in chosen.only]
    specs = [spec_of(part, c.objective, chosen.tiny) for c in contenders]
    workers = started(contenders, specs, chosen.device, chosen.turn, clock)
    turns: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contenders}
    why = {c.name: w for c, w in zip(contenders, workers, strict=True) if isinstance(w, str)}
    for _ in range(chosen.repeats):
        for contender, worker in zip(contenders, workers, strict=True):
            if contender.name in why or isinstance(worker, str) or clock.left() < chosen.turn:
                continue
            try:
                turns[contender.name].append(taken(worker, clock))
            except Exception as error:
                why[contender.name] = f"{type(error).__name__}: {error}"
    for worker in workers:
        if isinstance(worker, Worker):
            worker.close()
    base = middle(turns.get(BASE, []))
    for contender, spec in zip(contenders, specs, strict=True):
        of = turns[contender.name]
        speed = middle(of)
        row: dict[str, Any] = {"part": part, "contender": contender.name, "precision": contender.precision}
        if speed is None:
            results.add(**row, left_out=why.get(contender.name, "the time was up"))
            continue
        ceiling = results.found["ceiling"].get(contender.precision)
        work = speed * float(plan(spec).flops_per_step["matmul"]) / spec.batch.size / spec.data.length
        results.add(
            **row, rows=spec.batch.size, length=spec.data.length, tokens_per_second=round(speed),
            ratio=round(speed / base, 3) if base else None, matmul_flops_per_second=work,
            of_ceiling=round(work / ceiling, 3) if ceiling else None, peak_memory_bytes=of[-1]["peak_memory_bytes"],
            turns=[round(turn["tokens_per_second"]) for turn in of],
            processor_seconds_per_step=of[-1]["processor_seconds_per_step"],
            seconds_per_step=of[-1]["seconds_per_step"],
        )  # fmt: skip


def middle(turns: list[dict[str, Any]]) -> float | None:
    """Return the median speed of the turns, in tokens a second; None without any."""
    return statistics.median(turn["tokens_per_second"] for turn in turns) if turns else None


def at_once(part: str, results: Results, clock: Clock, chosen: argparse.Namespace) -> None:
    """Measure the sum of the speeds of several processes, each of which trains RTD, eager and compiled."""
    together(part, Contender("rtd", "rtd"), results, Clock(clock.left(0.4)), chosen)
    together(part, Contender("rtd compiled", "rtd", compile=True), results, clock, chosen)


def together(part: str, one: Contender, results: Results, clock: Clock, chosen: argparse.Namespace) -> None:
    """Add a row for each number of processes that measure the contender `one` at the same time."""
    spec, most = spec_of(part, one.objective, chosen.tiny), max(chosen.at_once)
    # The first one alone fills the cache of compiled code for the others.
    workers = started([one], [spec], chosen.device, chosen.turn, clock)
    if isinstance(workers[0], Worker) and most > 1:
        workers += started([one] * (most - 1), [spec] * (most - 1), chosen.device, chosen.turn, clock)
    ready = [worker for worker in workers if isinstance(worker, Worker)]
    why = next((worker for worker in workers if isinstance(worker, str)), "")
    for many in chosen.at_once:
        row: dict[str, Any] = {"part": part, "contender": one.name, "precision": one.precision, "processes": many}
        if len(ready) < many or clock.left() < chosen.turn:
            results.add(**row, left_out=why or "the time was up")
            continue
        try:
            with ThreadPoolExecutor(many) as pool:
                turns = list(pool.map(lambda worker: taken(worker, clock), ready[:many]))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            results.add(**row, left_out=why)
            continue
        results.add(
            **row, rows=spec.batch.size, length=spec.data.length,
            tokens_per_second=round(sum(turn["tokens_per_second"] for turn in turns)),
            peak_memory_bytes=sum(turn["peak_memory_bytes"] for turn in turns),
            turns=[round(turn["tokens_per_second"]) for turn in turns],
        )  # fmt: skip
    for worker in ready:
        worker.close()


def ceilings(results: Results, clock: Clock, chosen: argparse.Namespace) -> None:
    """Measure the fastest matrix products in bf16 and fp32."""
    for precision in ("bf16", "fp32"):
        try:
            with Worker.ceiling(Host(device=chosen.device, precision=precision, threads=chosen.threads)) as worker:
                for _ in range(2):
                    taken(worker, clock)
                results.found["ceiling"][precision] = max(worker.speeds)
        except Exception as error:
            results.found["ceiling_failed"] = f"{type(error).__name__}: {error}"
        results.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--only", action="append", choices=[c.name for c in SIDE_BY_SIDE])
    parser.add_argument("--seconds", type=float, default=240.0, help="after which no measurement begins")
    parser.add_argument("--turn", type=float, default=3.0, help="seconds of one measurement of one contender")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--at-once", type=int, action="append")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tiny", action="store_true", help="tiny models instead, to try this script out")
    chosen = parser.parse_args()
    chosen.device = Host(device=chosen.device).resolved_device()
    chosen.at_once = chosen.at_once or list(AT_ONCE)
    # Every process would start as many compilers as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which cuBLAS is not deterministic
    clock, results = Clock(chosen.seconds), Results(chosen.out, chosen.device)
    ceilings(results, clock, chosen)
    parts = chosen.part or list(PARTS)
    for number, part in enumerate(parts):
        measure = side_by_side if part in ("small", "base") else at_once
        try:
            measure(part, results, Clock(clock.left(1 / (len(parts) - number))), chosen)
        except Exception as error:
            results.add(part=part, contender="all", left_out=f"{type(error).__name__}: {error}")
    shown = ("part", "contender", "processes", "tokens_per_second", "ratio", "of_ceiling", "left_out")
    rows = [{key: row.get(key) for key in shown} for row in results.found["rows"]]
    print(table([{**row, "left_out": (row["left_out"] or "")[:60]} for row in rows]))
    print({name: f"{value / 1e12:.1f} TFLOP/s" for name, value in results.found["ceiling"].items()})


if __name__ == "__main__":
    main()
    for child in psutil.Process().children(recursive=True):  # such as never became ready
        child.kill()
    sys.stdout.flush()
    os._exit(0)  # without waiting for the threads that wait for these
