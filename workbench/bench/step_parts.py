"""Where the time of a training step goes, measured by hooks that exist only while they are needed.

data            reading rows from the shards
generator       its forward pass, output layer and loss with the gradient of the loss, and sampling of its tokens
sampling        picking, masking and writing tokens
discriminator   the main encoder's forward pass, for every objective
heads           the main model's heads and losses with the gradients of the losses, and the metrics
backward        all other gradients
optimizer       clipping and AdamW
logging         reading numbers back from the device, and appending them to metrics.jsonl

Under torch.compile the whole forward pass is one part, `discriminator`; of a step that is launched as a whole on a GPU
(`training/cuda_graph.py`), all but its data is. In other steps on a GPU every hook waits for the device, so that a
measured step is slower than a timed one.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optim_hooks

from workbench import tensors
from workbench.data.corpus import Corpus
from workbench.models import corruption
from workbench.spec.host import Host
from workbench.tensors import Batch

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
