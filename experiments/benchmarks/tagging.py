"""How fast is tagging, next to Hugging Face's example `run_ner` on the same sentences? Writes one JSON file.

    python experiments/benchmarks/tagging.py OUT.json PATH ... [--encoder FOLDER] [--rows 2000] [--epochs 3]

PATH is what `--tasks tag:PATH` takes. Both sides take turns with the same encoder, sentences, epochs, batch, learning
rate and schedule. The peer is written as the example `run_ner_no_trainer` of transformers is: a fast tokenizer's
`word_ids`, -100 at all pieces but the first, `AutoModelForTokenClassification`, and padding to the longest row of a
batch; gradients are clipped, as in `run_ner` itself. Its rows are tokenized beforehand, and it cuts off what is
longer than a row; ours counts everything from loading the encoder to the scores. Both are scored by the same function,
the peer on the words that it did not cut off. Without `--encoder` it is an untrained one of 4 layers of width 128,
or with `--size small` of ELECTRA-Small. `processor_ratio` compares processor time.
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
from side_by_side import add_options, encoder_name, host_of, measured, rates, untrained, write

from workbench import cpu, tasks
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Tagged
from workbench.tasks.tagging import Tagging, points

NO_LABEL = -100


def encoded(words: Any, rows: Tagged, length: int) -> list[dict[str, Any]]:
    """Rows of token ids with the label of each word at its first piece."""
    made = words(rows.words, truncation=True, max_length=length, is_split_into_words=True)
    result = []
    for number, targets in enumerate(rows.targets):
        labels, before = [], None
        for word in made.word_ids(number):
            labels.append(NO_LABEL if word is None or word == before else targets[word])
            before = word
        result.append({"input_ids": made["input_ids"][number], "attention_mask": made["attention_mask"][number],
                       "labels": labels})  # fmt: skip
    return result


def plain(encoder: Path, task: Tagging, spec: TasksSpec, host: Host) -> Callable[[int], float]:
    """Training and predicting with transformers' own parts. Calling it with a seed gives the headline metric."""
    from torch.utils.data import DataLoader
    from transformers import (
        AutoModelForTokenClassification,
        AutoTokenizer,
        DataCollatorForTokenClassification,
        get_scheduler,
    )

    words, test = AutoTokenizer.from_pretrained(encoder), next(iter(task.tests.values()))
    train, rows = (encoded(words, part, spec.length) for part in (task.train, test))
    collate, device = DataCollatorForTokenClassification(words), host.resolved_device()

    def batches(part: list[dict[str, Any]], shuffle: bool) -> Any:
        return DataLoader(part, batch_size=spec.batch, shuffle=shuffle, collate_fn=collate)  # type: ignore[arg-type]

    def work(seed: int) -> float:
        cpu.prepare(
            host.threads, plain=True
        )  # tiny numbers are computed with, as they are where nobody asked for other
        torch.manual_seed(seed)
        model = AutoModelForTokenClassification.from_pretrained(encoder, num_labels=len(task.labels)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, weight_decay=spec.weight_decay)
        order = batches(train, True)
        epochs = round(task.settings(spec)["epochs"])
        steps = epochs * len(order)
        schedule = get_scheduler("linear", optimizer, round(spec.warmup * steps), steps)
        half = torch.autocast(device.partition(":")[0], torch.bfloat16, host.resolved_precision() == "bf16")
        model.train()
        for _ in range(epochs):
            for batch in order:
                with half:
                    loss = model(**batch.to(device)).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        model.eval()
        found = []
        with torch.no_grad(), half:
            for batch in batches(rows, False):
                guesses = model(**batch.to(device)).logits.argmax(-1).cpu().numpy()
                masks = batch["labels"].cpu().numpy() != NO_LABEL
                found += [guess[mask] for guess, mask in zip(guesses, masks, strict=True)]
        kept = Tagged([w[: len(g)] for w, g in zip(test.words, found, strict=True)],
                      [t[: len(g)] for t, g in zip(test.targets, found, strict=True)])  # fmt: skip
        return points(task, kept, np.concatenate(found))[task.metric]

    return work


def measure(
    task: Tagging, encoder: Path, spec: TasksSpec, host: Host, chosen: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each side."""
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: take(task, Model(encoder, spec, seed), host).value,
        "run_ner": plain(encoder, task, spec, host),
    }
    sentences = len(task.train) * task.settings(spec)["epochs"]
    facts = {"precision": host.resolved_precision(), "sentences": len(task.train), "metric": task.metric}
    return rates(measured(task.name, sides, chosen, "value", facts), "sentences", sentences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    add_options(parser)
    chosen = parser.parse_args()
    host = host_of(chosen)
    names = tuple(f"tag:{path}" for path in chosen.paths)
    spec = TasksSpec(
        names=names, rows=chosen.rows, epochs=chosen.epochs, lr=chosen.lr, batch=chosen.batch, layer_decay=1.0,
        bias_correction=True,
    )  # fmt: skip
    result = here(host.resolved_device(), chosen.threads) | {
        "encoder": encoder_name(chosen),
        "rows": [],
    }
    for task in tasks.load(spec).tasks:
        assert isinstance(task, Tagging)
        with tempfile.TemporaryDirectory() as folder:
            texts = [" ".join(words) for words in task.train.words]
            encoder = chosen.encoder or untrained(Path(folder), texts, spec.length, chosen.size)
            result["rows"] += measure(task, encoder, spec, host, chosen)
    write(chosen.out, result)


if __name__ == "__main__":
    main()
