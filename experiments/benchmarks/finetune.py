"""How fast is fine-tuning, next to Hugging Face's Trainer on the same rows? Writes one JSON file.

    python experiments/benchmarks/finetune.py OUT.json --glue FOLDER [--encoder FOLDER] [--rows 2000] [--task MRPC] ...

Both sides take turns with the same encoder, rows, epochs, batch and learning rate. `hf-trainer` pads every row to the
maximum length, as the GLUE example of transformers does unless told otherwise; `hf-trainer-dynamic` pads to the longest
of each batch. Ours counts everything from loading the encoder to its scores; the Trainer only training and predicting.
Without `--encoder` it is an untrained one of 4 layers of width 128. `processor_ratio` compares processor time.
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
from side_by_side import add_options, compared, host_of, turns, write

from workbench import cpu
from workbench.data import subwords, tokenizer
from workbench.models.encoder import build_encoder
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.tasks.finetuning import glue
from workbench.tasks.finetuning.finetune import finetune
from workbench.tasks.task import Task

PEERS = ("ours", "hf-trainer", "hf-trainer-dynamic")


def untrained(folder: Path, texts: list[str]) -> Path:
    """An encoder with its initial weights, and a vocabulary of the task's own texts."""
    trained = subwords.train(texts, 4096)
    tokenizer.save(trained, folder, True)
    sizes = {"encoder.hidden": 128, "encoder.layers": 4, "encoder.embedding": 128, "encoder.positions": 128,
             "encoder.vocab": tokenizer.size(trained), "encoder.init": 0.05}  # fmt: skip
    spec = resolve("small", sizes)
    build_encoder(spec).save(folder)
    return folder


def trainer(encoder: Path, task: Task, spec: TasksSpec, host: Host, dynamic: bool) -> Callable[[int], float]:
    """Training and predicting with transformers' own parts, texts encoded beforehand. Called with a seed: accuracy."""
    from transformers import (
        AutoTokenizer,
        DataCollatorWithPadding,
        ElectraForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    words = AutoTokenizer.from_pretrained(encoder)

    def encoded(part: Any) -> list[dict[str, Any]]:
        padding = False if dynamic else "max_length"
        rows = words(part.first, part.second, truncation=True, max_length=spec.length, padding=padding)
        return [{**{k: rows[k][i] for k in rows}, "labels": part.targets[i]} for i in range(len(part))]

    train, dev = encoded(task.train), encoded(next(iter(task.tests.values())))

    def work(seed: int) -> float:
        cpu.prepare(None, plain=True)  # tiny numbers are computed with, as they are where nobody asked for other
        torch.manual_seed(seed)
        model = ElectraForSequenceClassification.from_pretrained(encoder, num_labels=len(task.labels))
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder, num_train_epochs=spec.epochs or task.epochs, per_device_train_batch_size=spec.batch,
                per_device_eval_batch_size=spec.batch, learning_rate=spec.lr, warmup_steps=spec.warmup, report_to=[],
                save_strategy="no", disable_tqdm=True, bf16=host.resolved_precision() == "bf16", log_level="error",
                use_cpu=host.resolved_device() == "cpu", logging_strategy="no", seed=seed,
            )  # fmt: skip
            made = Trainer(
                model=model, args=arguments, train_dataset=train, data_collator=DataCollatorWithPadding(words)
            )
            made.train()
            said = made.predict(dev)  # type: ignore[arg-type]  # a list of rows will do
        return 100 * float((np.asarray(said.predictions).argmax(1) == said.label_ids).mean())

    return work


def measure(task: Task, encoder: Path, spec: TasksSpec, host: Host, repeats: int) -> list[dict[str, Any]]:
    """A row for each side, after turns A B C A B C."""
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: float(next(iter(finetune(encoder, task, spec, seed, host).values.values()))["accuracy"]),
        "hf-trainer": trainer(encoder, task, spec, host, dynamic=False),
        "hf-trainer-dynamic": trainer(encoder, task, spec, host, dynamic=True),
    }
    found, notes = turns(task.name, sides, repeats)
    facts = {"task": task.name, "precision": host.resolved_precision(), "rows": len(task.train), "noise": notes}
    return [{"peer": name, **facts, **row} for name, row in compared(found, "hf-trainer", "accuracy").items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--glue", required=True, help="folder of GLUE's tasks")
    parser.add_argument("--task", action="append", choices=["MRPC", "SST-2"])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    add_options(parser)
    chosen = parser.parse_args()
    host = host_of(chosen)
    names = tuple(chosen.task or ["MRPC", "SST-2"])
    spec = TasksSpec(
        names=names,
        glue=chosen.glue,
        rows=chosen.rows,
        epochs=chosen.epochs,
        lr=chosen.lr,
        layer_decay=1.0,
    )
    result = here(host.resolved_device(), chosen.threads) | {
        "encoder": chosen.encoder.name if chosen.encoder else "untrained",
        "rows": [],
    }
    for task in glue.load(names, chosen.glue, chosen.rows).tasks:
        assert isinstance(task, Task)
        with tempfile.TemporaryDirectory() as folder:
            encoder = chosen.encoder or untrained(Path(folder), task.train.first + (task.train.second or []))
            result["rows"] += measure(task, encoder, spec, host, chosen.repeats)
    write(chosen.out, result)


if __name__ == "__main__":
    main()
