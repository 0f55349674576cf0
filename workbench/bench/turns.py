"""The child process of `workbench bench`: the real training loop, which pauses after each turn until the next request.

It reads requests as JSON lines from stdin, writes one JSON line to stdout for each turn, and ends when stdin is
closed.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optim_hooks

from workbench import objectives, tensors
from workbench.bench.machine import ceiling
from workbench.data.corpus import Corpus, corpus_of
from workbench.data.prepare import Prepared, bind
from workbench.data.preprocessing import SHARD, token_type
from workbench.errors import InputError
from workbench.models import corruption
from workbench.process import peak_memory
from workbench.spec.host import Host
from workbench.spec.parts import Special
from workbench.spec.run_spec import RunSpec, parse
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.run_store import RunStore
from workbench.tensors import Batch
from workbench.training.loop import train
from workbench.training.plan import EFFICIENCY, plan
from workbench.training.steps import is_recordable

# ----------------------------------------
# A child process that measures: it reads requests for turns from stdin and writes results to stdout, as JSON lines.


# Not `-m`: the package has imported this module by then, of which Python warns.
PROGRAM = ("-c", "from workbench.bench.turns import child; child()")


class Worker:
    """A child process that runs `workbench.bench.turns`, or another program with the same protocol."""

    def __init__(self, first_message: dict[str, Any], *program: str) -> None:
        self.name = str(first_message.get("name", "the ceiling"))
        self.speeds: list[float] = []
        command = [sys.executable, *(program or PROGRAM)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
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
        files = {  # so that the child loads them
            name: str(path) for name, path in objectives.source_files(spec).items()
        }
        return cls({
            "name": f"{spec.objective} at {spec.scale}", "host": asdict(host), "spec": spec.model_dump(mode="json"),
            "files": files, "seconds": seconds, "steps": steps,
        })  # fmt: skip

    def turn(self, what: str) -> dict[str, Any]:
        """Return the results of a turn: of kind "time", or "parts" of a step.

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


TOKENS = 2_000_000  # tokens of the made-up text


class Enough(Exception):
    """The signal that no further turn is requested."""


class Turns:
    """The callback of the trainer after each window of steps; the first window warms up and is not counted.

    Time is counted from the request of a turn to the end of its last window, including the writing of the log.
    """

    def __init__(self, spec: RunSpec, host: Host, seconds: float, parts: Parts | None = None) -> None:
        self.tokens = spec.batch.size * spec.data.length
        self.device, self.seconds, self.parts = host.device, seconds, parts
        self.what, self.began, self.used, self.begin = "", 0.0, 0.0, 0

    def __call__(self, step: int, steps: int, row: dict[str, Any]) -> None:
        now = time.perf_counter()
        if self.what and now - self.began < self.seconds:
            return
        if not self.what:
            send({"ready": True})
        elif self.what == "time":
            each = (now - self.began) / (step - self.begin)
            send({
                "steps": step - self.begin, "seconds_per_step": each, "tokens_per_second": self.tokens / each,
                "processor_seconds_per_step": (time.process_time() - self.used) / (step - self.begin),
                "peak_memory_bytes": peak_memory(self.device),
            })  # fmt: skip
        elif self.parts is not None:
            send({"shares": self.parts.stop()})
        self.what, self.begin = next_turn(), step
        if self.what == "parts" and self.parts is not None:
            self.parts.start()
        self.began, self.used = time.perf_counter(), time.process_time()


def next_turn() -> str:
    """Return the kind of the next turn. Raises Enough at the end of stdin."""
    line = sys.stdin.readline()
    if not line:
        raise Enough
    return str(json.loads(line)["do"])


def send(result: dict[str, Any]) -> None:
    """Write a result to the stdout of the process as one JSON line."""
    assert sys.__stdout__ is not None
    sys.__stdout__.write(json.dumps(result) + "\n")
    sys.__stdout__.flush()


def made_up(folder: Path, spec: RunSpec, tokens: int = TOKENS, sparse: bool = False) -> Prepared:
    """Write token shards to `folder`, and return them as a prepared corpus.

    Token frequencies are proportional to the reciprocal of the rank. If `sparse`, all tokens are 0, in files that
    take no space on disk; special tokens then have other ids, so that token 0 can be masked.
    """
    folder.mkdir(parents=True)
    dtype, shards = token_type(spec.encoder.vocab), []
    for number, start in enumerate(range(0, tokens, SHARD)):
        count = min(SHARD, tokens - start)
        shards.append({"name": f"tokens-{number:05d}.bin", "tokens": count})
        with open(folder / f"tokens-{number:05d}.bin", "wb") as file:
            if sparse:
                file.truncate(count * dtype.itemsize)
            else:
                ranks = spec.encoder.vocab ** np.random.default_rng(number).random(count)
                file.write((ranks.astype(np.int64) % spec.encoder.vocab).astype(dtype).tobytes())
    (folder / "manifest.json").write_text(json.dumps({"dtype": dtype.str, "shards": shards}), encoding="utf-8")
    special = spec.data.special if spec.encoder.vocab > Special().mask else Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    if sparse:
        special = Special(pad=1, unk=2, cls=3, sep=4, mask=5)
    return Prepared(folder, "", tokens, 1, 0, spec.encoder.vocab, special, folder)


def window(spec: ResolvedSpec, host: Host, seconds: float) -> int:
    """Return the steps of one window: the trainer's `log_every`, or fewer if a turn is too short for it."""
    each = float(plan(spec).flops_per_step["matmul"]) / (ceiling(host, 0.1) * EFFICIENCY)
    return max(1, min(host.log_every, round(seconds / 2 / each)))


def main() -> None:
    """Read the settings of this process from stdin, then run turns until stdin is closed."""
    first_message = json.loads(sys.stdin.readline())
    host = Host(**first_message["host"])
    if "spec" not in first_message:
        ceiling(host, 0.1)
        send({"ready": True})
        with suppress(Enough):
            while next_turn():
                send({"flops_per_second": ceiling(host)})
        return
    for name, file in first_message["files"].items():
        objectives.find_file(name, file)
    spec = ResolvedSpec(parse(first_message["spec"]))
    steps, seconds = first_message["steps"], 0.0 if first_message["steps"] else first_message["seconds"]
    host = replace(host, log_every=steps or window(spec, host, seconds), save_seconds=float("inf"))
    parts = Parts(host, is_recordable(spec, host))
    with tempfile.TemporaryDirectory() as folder:
        prepared = made_up(Path(folder) / "data", spec)
        spec = bind(spec, prepared)
        run = RunStore(Path(folder) / "runs").open(BoundRun(spec))
        corpus = corpus_of(prepared, spec)
        with run.lease(), suppress(Enough):
            train(run, spec, plan(spec), Watched(corpus, parts), host, run.check, Turns(spec, host, seconds, parts))


# ----------------------------------------
# Where the time of a training step goes, measured by hooks that exist only while they are needed.
#
# data            reading rows from the shards
# generator       its forward pass, output layer and loss with the gradient of the loss, and sampling of its tokens
# sampling        picking, masking and writing tokens
# discriminator   the main encoder's forward pass, for every objective
# heads           the main model's heads and losses with the gradients of the losses, and the metrics
# backward        all other gradients
# optimizer       clipping and AdamW
# logging         reading numbers back from the device, and appending them to metrics.jsonl
#
# Under torch.compile the whole forward pass is one part, `discriminator`; of a step that is launched as a whole on a
# GPU (`training/steps.py`), all but its data is. In other steps on a GPU every hook waits for the device, so that a
# measured step is slower than a timed one.

NAMES = ("data", "generator", "sampling", "discriminator", "heads", "backward", "optimizer", "logging")
SAMPLING: dict[ModuleType, tuple[str, ...]] = {
    corruption: (
        "pick_positions", "mask_tokens", "sample_tokens", "replace_tokens", "pick_spans", "visible_in_order",
    ),
    tensors: ("sample",),
}  # fmt: skip


class Parts:
    """A clock that divides the time between `start` and `stop` among NAMES.

    If steps are `recorded` as a CUDA graph, no hooks of modules are called within a step, so none are installed.
    """

    def __init__(self, host: Host, recorded: bool = False) -> None:
        self.device, self.compiled = host.device, host.compile or recorded
        self.stack = ["logging"]
        self.spent = dict.fromkeys(NAMES, 0.0)
        self.last = 0.0
        self.running = False
        self.open: list[nn.Module] = []  # modules with a part of their own that are being computed, outermost first
        self.encoder: nn.Module | None = None
        self.generator: set[nn.Module] = set()
        self.undo: list[Callable[[], Any]] = []
        self.parameters: list[nn.Parameter] = []

        def meet(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
            first.remove()

        first = optim_hooks.register_optimizer_step_pre_hook(meet)

    def start(self) -> None:
        """Install the hooks and start the clock."""
        self.spent = dict.fromkeys(NAMES, 0.0)
        self.stack, self.open = ["logging"], []
        handles = [p.register_post_accumulate_grad_hook(self._gradient) for p in self.parameters]
        handles.append(optim_hooks.register_optimizer_step_pre_hook(lambda *_: self.at("optimizer")))
        handles.append(optim_hooks.register_optimizer_step_post_hook(lambda *_: self.at("logging")))
        if not self.compiled:
            handles.append(hooks.register_module_forward_pre_hook(self._enter))
            handles.append(hooks.register_module_forward_hook(self._leave, always_call=True))
            self._time_sampling()
        self.undo += [handle.remove for handle in handles]
        self.running = True
        self.last = self.now()

    def stop(self) -> dict[str, float]:
        """Remove the hooks and return the share of each part; the shares add up to 1."""
        self.charge()
        self.running = False
        while self.undo:
            self.undo.pop()()
        total = sum(self.spent.values())
        return {name: seconds / total for name, seconds in self.spent.items()}

    def now(self) -> float:
        """Return the time in seconds, after the device has finished its work."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def charge(self, name: str | None = None) -> None:
        """Add the time since the last call to `name`, by default to the current part."""
        now = self.now()
        self.spent[name or self.stack[-1]] += now - self.last
        self.last = now

    def at(self, name: str) -> None:
        """Make `name` the current part outside of modules."""
        self.charge()
        self.stack[0] = name

    def push(self, name: str) -> None:
        """Begin a part inside of the current one."""
        self.charge()
        self.stack.append(name)

    def pop(self) -> None:
        """End the innermost part."""
        self.charge()
        self.stack.pop()

    def _gradient(self, _: torch.Tensor) -> None:
        """Add the time until this gradient to `backward`; after the last gradient comes clipping."""
        self.charge("backward")
        self.stack[0] = "optimizer"

    def _enter(self, module: nn.Module, _: Any) -> None:
        name = ""
        if not self.open:
            name = "heads"  # the objective itself
            self.encoder = getattr(module, "encoder", None)
            generator = getattr(module, "generator", None)
            self.generator = set(generator.modules()) if generator is not None else set()
        elif len(self.open) == 1 and module is self.encoder:
            name = "discriminator"
        elif len(self.open) == 1 and module in self.generator:  # all of it, or a module that the objective calls
            name = "generator"
        if name:
            self.open.append(module)
            self.push(name)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        if self.open and module is self.open[-1]:
            self.open.pop()
            self.pop()
            if not self.open:
                self.stack[0] = "backward"

    def _time_sampling(self) -> None:
        for home, name in [(home, name) for home, names in SAMPLING.items() for name in names]:
            plain = getattr(home, name)
            timed = self._timed(plain)
            for holder in [m for key, m in sys.modules.items() if key.startswith("workbench")]:
                if getattr(holder, name, None) is plain:
                    setattr(holder, name, timed)
                    self.undo.append(functools.partial(setattr, holder, name, plain))

    def _timed(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.push("sampling")
            try:
                return plain(*args, **kwargs)
            finally:
                self.pop()

        return timed


class Watched(Corpus):
    """A corpus that adds the time of its batches to the part `data`."""

    def __init__(self, corpus: Corpus, parts: Parts) -> None:
        self.__dict__.update(corpus.__dict__)
        self.parts = parts

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        if not self.parts.running:
            return super().batch(position, rows, device)
        self.parts.push("data")
        batch = super().batch(position, rows, device)
        self.parts.pop()
        self.parts.stack[0] = "discriminator" if self.parts.compiled else "heads"
        return batch


def child() -> None:
    """Carry out the child process, whose standard output holds its messages alone."""
    with redirect_stdout(sys.stderr):  # what an objective prints
        main()
