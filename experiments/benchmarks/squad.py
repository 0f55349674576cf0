"""How fast is fine-tuning on SQuAD, next to a plain loop with the parts of Hugging Face's `run_qa`? Writes a JSON file.

    python experiments/benchmarks/squad.py OUT.json --squad FOLDER [--encoder FOLDER] [--rows 400] [--tests 200] ...

Both sides take turns with the same encoder, questions, epochs, batch, learning rate and precision, and predict start
and end independently. The other side is `AutoModelForQuestionAnswering` with torch's AdamW: windows of up to 384 tokens
that overlap by 128, each padded to 384 as run_qa does unless told otherwise (`hf-run-qa`), or to the longest of its
batch (`hf-run-qa-dynamic`). Ours has windows of that length with about that overlap, and an answerability head, which
run_qa lacks. `--length` and `--overlap` are for encoders of fewer positions. Texts are encoded beforehand there and
within the time here; both count training, predicting and the search for the best answers. Without `--encoder` it is an
untrained one of 4 layers of width 128. `questions_per_second` counts training questions once an epoch, and test
questions; `processor_ratio` compares processor time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import here
from side_by_side import add_options, compared, host_of, turns, write

from workbench import cpu, tasks
from workbench.data import subwords, tokenizer
from workbench.models.encoder import build_encoder
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.tasks.squad.answering import answer
from workbench.tasks.squad.official_metrics import answerable_metrics
from workbench.tasks.squad.questions import Questions, Squad

BEST, LONGEST = 20, 30  # the defaults of run_qa
QUERY = 24  # tokens of a question, as a rough mean, by which our stride gets the same overlap


def untrained(folder: Path, task: Squad, length: int) -> Path:
    """An encoder with its initial weights, and a vocabulary of the task's own paragraphs."""
    trained = subwords.train(task.train.paragraphs, 4096)
    tokenizer.save(trained, folder, True)
    sizes = {"encoder.hidden": 128, "encoder.layers": 4, "encoder.embedding": 128, "encoder.positions": length,
             "encoder.vocab": tokenizer.size(trained), "encoder.init": 0.05}  # fmt: skip
    build_encoder(resolve("small", sizes)).save(folder)
    return folder


def run_qa(encoder: Path, task: Squad, spec: TasksSpec, host: Host, dynamic: bool) -> Callable[[int], float]:
    """Training and predicting as in run_qa, with texts encoded beforehand. Calling it with a seed gives F1."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer, get_linear_schedule_with_warmup

    words = AutoTokenizer.from_pretrained(encoder)
    overlap = (spec.squad_length or 0) - (spec.squad_stride or 0) - QUERY

    def encoded(part: Questions) -> list[dict[str, Any]]:
        padding = False if dynamic else "max_length"
        pairs = [row.text for row in part.rows], [part.paragraphs[row.paragraph] for row in part.rows]
        rows = words(
            *pairs, truncation="only_second", max_length=spec.squad_length, stride=overlap, padding=padding,
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        windows = []
        for number, question in enumerate(rows["overflow_to_sample_mapping"]):
            inside = [owner == 1 for owner in rows.sequence_ids(number)]
            spans = [span if own else None for span, own in zip(rows["offset_mapping"][number], inside, strict=True)]
            text, start = part.rows[question].answers[0]
            first = next((i for i, s in enumerate(spans) if s and s[0] <= start < s[1]), 0)
            last = next((i for i, s in enumerate(spans) if s and s[0] < start + len(text) <= s[1]), 0)
            whole = (first, last) if first and last else (0, 0)
            inputs = {key: rows[key][number] for key in words.model_input_names}
            windows.append(inputs | {"start_positions": whole[0], "end_positions": whole[1], "at": (question, spans)})
        return windows

    test = task.tests["dev"]
    train, windows = encoded(task.train), encoded(test)
    device, half = host.resolved_device(), host.resolved_precision() == "bf16"

    def outputs_of(model: Any, rows: list[dict[str, Any]], *names: str) -> Any:
        inputs = [{key: row[key] for key in words.model_input_names} for row in rows]
        padded = words.pad(inputs, return_tensors="pt").to(device)
        spans = {name: torch.tensor([row[name] for row in rows], device=device) for name in names}
        with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=half):
            return model(**padded, **spans)

    def work(seed: int) -> float:
        cpu.prepare(None, plain=True)
        torch.manual_seed(seed)
        model = AutoModelForQuestionAnswering.from_pretrained(encoder).to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, weight_decay=0.0)
        epochs = int(spec.epochs or 2)
        steps = epochs * -(-len(train) // spec.batch)
        schedule = get_linear_schedule_with_warmup(optimizer, round(spec.warmup * steps), steps)
        for _ in range(epochs):
            order = torch.randperm(len(train)).tolist()
            for begin in range(0, len(train), spec.batch):
                rows = [train[i] for i in order[begin : begin + spec.batch]]
                outputs_of(model, rows, "start_positions", "end_positions").loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        model.eval()
        starts, ends = list[Any](), list[Any]()
        with torch.inference_mode():
            for begin in range(0, len(windows), spec.batch):
                made = outputs_of(model, windows[begin : begin + spec.batch])
                starts += made.start_logits.float().cpu().numpy().tolist()
                ends += made.end_logits.float().cpu().numpy().tolist()
        return answerable_metrics(test, searched(test, windows, starts, ends))["f1"]

    return work


def searched(test: Questions, windows: list[dict[str, Any]], starts: Any, ends: Any) -> dict[str, str]:
    """The best text of each question by the sum of logits, as in run_qa's post-processing."""
    best: dict[str, tuple[float, str]] = {}
    for window, start, end in zip(windows, starts, ends, strict=True):
        number, spans = window["at"]
        row = test.rows[number]
        for one in np.argsort(start)[-1 : -BEST - 1 : -1]:
            for two in np.argsort(end)[-1 : -BEST - 1 : -1]:
                if one >= len(spans) or two >= len(spans) or not spans[one] or not spans[two]:
                    continue
                if one <= two < one + LONGEST and start[one] + end[two] > best.get(row.id, (-np.inf, ""))[0]:
                    text = test.paragraphs[row.paragraph][spans[one][0] : spans[two][1]]
                    best[row.id] = (float(start[one] + end[two]), text)
    return {id: text for id, (_, text) in best.items()}


def measure(task: Squad, encoder: Path, spec: TasksSpec, host: Host, repeats: int) -> list[dict[str, Any]]:
    """A row for each side, after turns A B C A B C."""
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: answer(encoder, task, spec, seed, host).value,
        "hf-run-qa": run_qa(encoder, task, spec, host, dynamic=False),
        "hf-run-qa-dynamic": run_qa(encoder, task, spec, host, dynamic=True),
    }
    one = task.train.take([0])
    answer(encoder, replace(task, train=one, tests={"dev": one}), spec, 0, host)  # what is done on first use alone
    found, notes = turns(task.name, sides, repeats)
    questions = (spec.epochs or 2) * len(task.train) + len(task.tests["dev"])
    facts = {"task": task.name, "precision": host.resolved_precision(), "rows": len(task.train),
             "tests": len(task.tests["dev"]), "noise": notes}  # fmt: skip
    rows = compared(found, "hf-run-qa", "f1").items()
    each = {name: round(questions / side.seconds, 1) for name, side in found.items()}
    return [{"peer": name, **facts, **row, "questions_per_second": each[name]} for name, row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--squad", required=True, help="folder of SQuAD's files")
    parser.add_argument("--task", choices=["squad1", "squad1-devsplit"], default="squad1-devsplit")
    parser.add_argument("--rows", type=int, default=400, help="questions to train on")
    parser.add_argument("--tests", type=int, default=200, help="questions to test on")
    parser.add_argument("--length", type=int, default=384, help="tokens of a window")
    parser.add_argument("--overlap", type=int, default=128, help="tokens of a paragraph that windows share")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=3e-4)
    add_options(parser)
    chosen = parser.parse_args()
    host = host_of(chosen)
    spec = TasksSpec(
        names=(chosen.task,), squad=chosen.squad, rows=chosen.rows, epochs=chosen.epochs, lr=chosen.lr,
        layer_decay=1.0, squad_head="independent", squad_length=chosen.length,
        squad_stride=chosen.length - QUERY - chosen.overlap,
    )  # fmt: skip
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Squad)
    some = task.tests["dev"].take(
        list(range(0, len(task.tests["dev"]), max(1, len(task.tests["dev"]) // chosen.tests)))
    )
    task = replace(task, tests={"dev": some.take(list(range(min(chosen.tests, len(some)))))})
    with tempfile.TemporaryDirectory() as folder:
        encoder = chosen.encoder or untrained(Path(folder), task, chosen.length)
        result = here(host.resolved_device(), chosen.threads) | {
            "encoder": chosen.encoder.name if chosen.encoder else "untrained",
            "rows": measure(task, encoder, spec, host, chosen.repeats),
        }
    write(chosen.out, result)


if __name__ == "__main__":
    main()
