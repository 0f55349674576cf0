"""How fast is fine-tuning, next to Hugging Face's Trainer on the same rows? Writes one JSON file.

    python experiments/benchmarks/finetune.py OUT.json --glue FOLDER [--encoder FOLDER] [--rows 2000] [--task MRPC] ...

Both sides take turns with the same encoder, rows, epochs, batch, learning rate and warm-up. The other side is
`AutoModelForSequenceClassification` trained by the `Trainer` with its defaults, as in the example `run_glue` of
transformers, which is not part of the package and so followed here. `hf-trainer` pads every row to the maximum length,
as the example does unless told otherwise; `hf-trainer-dynamic` pads to the longest of each batch. Its head has a layer
more than ours, which is that of the released code. Ours counts everything from loading the encoder to its scores; the
Trainer no tokenizing. Both outputs are scored by the same functions, and `value` is the task's headline metric.
Without `--encoder` it is an untrained one of 4 layers of width 128, or with `--size small` of ELECTRA-Small.
`processor_ratio` compares processor time. Each turn has its own seed: `by_seed` are the scores of the turns, and
`beyond` the difference of their means.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import here
from side_by_side import add_options, encoder_name, host_of, measured, trainer_arguments, untrained, write

from workbench import cpu
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import glue
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Task
from workbench.tasks.common.metrics import judged


def trainer(encoder: Path, task: Task, spec: TasksSpec, host: Host, dynamic: bool) -> Callable[[int], float]:
    """Training and predicting with transformers' own parts, texts encoded beforehand. Called with a seed: accuracy."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
    )

    words = AutoTokenizer.from_pretrained(encoder)

    def encoded(part: Any) -> list[dict[str, Any]]:
        padding = False if dynamic else "max_length"
        rows = words(part.first, part.second, truncation=True, max_length=spec.length, padding=padding)
        return [{**{k: rows[k][i] for k in rows}, "labels": part.targets[i]} for i in range(len(part))]

    test = next(iter(task.tests.values()))
    train, rows = encoded(task.train), encoded(test)

    def work(seed: int) -> float:
        cpu.prepare(host.threads, plain=True)  # tiny numbers are computed with, as where nobody asked for other
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=task.outputs)
        with tempfile.TemporaryDirectory() as folder:
            arguments = trainer_arguments(folder, spec, host, seed, spec.epochs or task.epochs)
            made = Trainer(
                model=model, args=arguments, train_dataset=train, data_collator=DataCollatorWithPadding(words)
            )
            made.train()
            outputs = made.predict(rows).predictions  # type: ignore[arg-type]  # a list of rows will do
        return 100 * judged(task.kind, [task.metric], np.asarray(outputs), task.array(test), test.groups)[task.metric]

    return work


def measure(task: Task, encoder: Path, spec: TasksSpec, host: Host, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each side."""
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: take(task, Model(encoder, spec, seed), host).value,
        "hf-trainer": trainer(encoder, task, spec, host, dynamic=False),
        "hf-trainer-dynamic": trainer(encoder, task, spec, host, dynamic=True),
    }
    facts = {"precision": host.resolved_precision(), "rows": len(task.train), "metric": task.metric}
    return measured(task.name, sides, chosen, "value", facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--glue", required=True, help="folder of GLUE's tasks")
    parser.add_argument("--task", action="append", help="MRPC and SST-2 by default")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    add_options(parser)
    chosen = parser.parse_args()
    host = host_of(chosen)
    names = tuple(chosen.task or ["MRPC", "SST-2"])
    spec = TasksSpec(
        names=names, glue=chosen.glue, rows=chosen.rows, epochs=chosen.epochs, lr=chosen.lr, batch=chosen.batch,
        layer_decay=1.0,
    )  # fmt: skip
    result = here(host.resolved_device(), chosen.threads) | {
        "encoder": encoder_name(chosen),
        "rows": [],
    }
    for task in glue.read(names, chosen.glue, chosen.rows)[0]:
        assert isinstance(task, Task)
        with tempfile.TemporaryDirectory() as folder:
            texts = task.train.first + (task.train.second or [])
            encoder = chosen.encoder or untrained(Path(folder), texts, spec.length, chosen.size)
            result["rows"] += measure(task, encoder, spec, host, chosen)
    write(chosen.out, result)


if __name__ == "__main__":
    main()
