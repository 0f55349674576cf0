"""The first steps of several objectives, computed by one of the processes of a run; a script of test_ranks.

    python -m tests.helpers.steps_of_ranks INDEX COUNT PORT FOLDER STEPS PARTS [sharded] [poisoned] [cuda] [only NAMES]

One process alone takes the rows of a step in PARTS micro-batches. Rows leave out areas under the curve, which are of a
micro-batch. NAMES are cases with commas between them.
With `poisoned`, the loss of the last process is NaN from step 3 on, and rows say which weights each step changed.
With `cuda`, each process has a GPU of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from tests.helpers import users_means
from workbench import objectives
from workbench.bench.turns import made_up
from workbench.data.corpus import corpus_of
from workbench.data.prepare import bind
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.training.distributed import ALONE, Ranks, group, key_store
from workbench.training.loop import _on_device
from workbench.training.optimizer import make_optimizer, set_rate
from workbench.training.steps import Steps

TINY = {
    "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60, "encoder.init": 0.05,
    "data.length": 16, "batch.size": 8, "budget.steps": 100, "generator.width": 0.5,
}  # fmt: skip
WIDE = {"objective": "rtd", "encoder.layers": 2, "generator.width": 1.0}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"objective": name} for name in objectives.names()},
    "a user's means": {"objective": users_means.__file__},
    "nothing shared": {"objective": "rtd", "tying": "none"},
    "everything shared": {"objective": "rtd", "tying": "all", "generator.width": 1.0},
    "gdes": {"objective": "rtd", "tying": "gdes", "generator.width": 1.0},
    "micro-batches": {"objective": "rtd", "micro": 2},
    "dropout": {"objective": "rtd", "micro": 2, "encoder.dropout": 0.1, "encoder.attention_dropout": 0.1},
    "a pooling layer without a gradient": {"objective": "bert-mlm", "encoder.family": "bert"},
    "layers that are called": WIDE | {"encoder.family": "modernbert", "tying": "tokens"},
    "layers of two passes": WIDE | {"encoder.family": "deberta-v2", "tying": "all"},
    "layers whose weights our kernels read": {"objective": "rtd", "encoder.family": "albert", "encoder.layers": 2},
    "layers of GPT-2": {"objective": "causal-lm", "encoder.family": "gpt2", "encoder.layers": 2},
}


POISONED = 3  # the first step with a loss that is NaN


def losses(name: str, folder: Path, ranks: Ranks, steps: int, parts: int, poisoned: bool) -> list[list[float]]:
    """Return gradient norm, losses and metrics of each step of a case, as this process has them.

    If `poisoned`, return for each step whether it changed the weights, whether it was found to be bad, and its norm.
    """
    given = dict(CASES[name])
    micro = given.pop("micro", TINY["batch.size"] // parts)
    given["objective"], source = objectives.find(given["objective"])
    spec = objectives.with_options(resolve("nano", TINY | given).replace(source=source))
    prepared = made_up(folder / f"{name} {ranks.index} of {ranks.count}", spec, tokens=20_000)
    spec = bind(spec, prepared)
    corpus = corpus_of(prepared, spec)
    device_name = f"cuda:{ranks.index}" if "cuda" in sys.argv else "cpu"
    host = Host(device=device_name, precision="fp32", threads=1, devices=ranks.count, micro_batch=micro)
    device, model, autocast = _on_device(spec, corpus, host)
    optimizer = make_optimizer(model, spec.optim)
    taken = Steps(spec, corpus, host, device, autocast, model, optimizer, ranks)
    assert all(isinstance(weight, DTensor) == ranks.sharded for weight in model.parameters())
    rows = []
    for step in range(1, steps + 1):
        set_rate(optimizer, spec.optim, 1e-3, step)
        if not poisoned:
            sums, numbers = taken.take(step)
            names = ["norm", *sums.values, *(name for name in sums.ratios for _ in range(2))]
            rows.append([n for name, n in zip(names, numbers.tolist(), strict=True) if not name.endswith("_auc")])
            continue
        if step == POISONED and ranks.index == ranks.count - 1:
            model.register_forward_hook(lambda _, __, loss: replace(loss, total=loss.total * float("nan")))
        before = [local(weight).clone() for weight in model.parameters()]
        norm = float(taken.take(step)[1][0])
        changed = any(not torch.equal(one, local(two)) for one, two in zip(before, model.parameters(), strict=True))
        rows.append([float(changed), float(taken.bad), norm if math.isfinite(norm) else -1.0])
    return rows


def local(weight: torch.Tensor) -> torch.Tensor:
    """Return the part of a weight that this process has."""
    return weight.detach().to_local() if isinstance(weight, DTensor) else weight.detach()


def main() -> None:
    """Write the rows of all cases to a file of this process."""
    index, count, port, steps, parts = (int(word) for word in [*sys.argv[1:4], *sys.argv[5:7]])
    folder = Path(sys.argv[4])
    store = key_store("127.0.0.1", port, index == 0, 120)
    alone = contextlib.nullcontext(ALONE)
    device = f"cuda:{index}" if "cuda" in sys.argv else "cpu"
    with group(store, index, count, device, 120, "sharded" in sys.argv) if count > 1 else alone as ranks:
        names = sys.argv[sys.argv.index("only") + 1].split(",") if "only" in sys.argv else list(CASES)
        rows = {name: losses(name, folder, ranks, steps, parts, "poisoned" in sys.argv) for name in names}
    (folder / f"rows-{index}-of-{count}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
