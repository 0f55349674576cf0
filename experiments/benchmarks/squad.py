"""How fast is fine-tuning on SQuAD, next to Hugging Face's `run_qa`, and as good? Writes a JSON file.

    python experiments/benchmarks/squad.py OUT.json --squad FOLDER [--encoder FOLDER] [--rows 400] [--tests 200] ...

Both sides take turns with the same encoder, questions, epochs, batch, learning rate, warm-up and precision, and predict
start and end independently. The other side is `AutoModelForQuestionAnswering` trained by the `Trainer` with its
defaults, as in the example `run_qa` of transformers, which is not part of the package and so followed here: windows of
up to 384 tokens that overlap by 128, each padded to 384 as run_qa does unless told otherwise (`hf-run-qa`), or to the
longest of its batch (`hf-run-qa-dynamic`), or so and with the head of our side (`hf-run-qa-our-head`): its initial
weights are Glorot's, and logits count only where an answer can begin or end, as in the released code. The answer is the
span of at most 30 tokens among the 20 best starts and ends with the largest sum of logits. Ours has windows of that
length with about that overlap, and an answerability head, which run_qa lacks. `--length` and `--overlap` are for
encoders of fewer positions. Texts are encoded beforehand there and within the time here; both count loading, training,
predicting and the search for the best answers. Without `--encoder` it is an untrained one of 4 layers of width 128, or
with `--size small` of ELECTRA-Small.
`questions_per_second` counts training questions once an epoch, and test questions; `processor_ratio` compares processor
time. Each turn has its own seed: `by_seed` are F1 of the turns, and `beyond` the difference of their means.
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
from side_by_side import add_options, encoder_name, host_of, measured, rates, trainer_arguments, untrained, write
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench import cpu, tasks
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks._squad_answers import answer, answerable_metrics
from workbench.tasks._squad_model import NEVER
from workbench.tasks.common.contract import Model, take
from workbench.tasks.squad import EPOCHS, Questions, Squad

BEST, LONGEST = 20, 30  # the defaults of run_qa
QUERY = 24  # tokens of a question, as a rough mean, by which our stride gets the same overlap


def run_qa(
    encoder: Path, task: Squad, spec: TasksSpec, host: Host, dynamic: bool, our_head: bool = False
) -> Callable[[int], float]:
    """Training and predicting by the Trainer as in run_qa, texts encoded beforehand. Called with a seed: F1."""
    from transformers import (
        AutoModelForQuestionAnswering,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        default_data_collator,
    )

    words, test = AutoTokenizer.from_pretrained(encoder), task.tests["dev"]
    (train, _), (windows, places) = (encoded(words, part, spec, dynamic) for part in (task.train, test))
    collate = DataCollatorWithPadding(words) if dynamic else default_data_collator

    def work(seed: int) -> float:
        cpu.prepare(host.threads, plain=True)
        torch.manual_seed(seed)
        model: nn.Module = AutoModelForQuestionAnswering.from_pretrained(encoder)
        model = OurHead(model, words.sep_token_id) if our_head else model
        with tempfile.TemporaryDirectory() as folder:
            arguments = trainer_arguments(folder, spec, host, seed, spec.epochs or EPOCHS)
            made = Trainer(model=model, args=arguments, train_dataset=train, data_collator=collate)
            made.train()
            logits: Any = made.predict(windows).predictions[-2:]  # type: ignore[arg-type]  # a list of rows will do
        return answerable_metrics(test, searched(test, places, *logits))["f1"]

    return work


class OurHead(nn.Module):
    """A model for question answering with Glorot's initial weights for each logit, counted where answers can be.

    These are the tokens of the paragraph, whose segment is 1, and [CLS] for windows without the answer. Segments and
    separators are those of BERT.
    """

    def __init__(self, model: Any, separator: int) -> None:
        super().__init__()
        self.model, self.separator = model, separator
        for side in range(2):
            nn.init.xavier_uniform_(model.qa_outputs.weight.data[side : side + 1])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor,
        start_positions: Tensor | None = None, end_positions: Tensor | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Return the logits (B, L) and, with positions (B,), the loss () of windows (B, L)."""
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        allowed = (token_type_ids == 1) & (input_ids != self.separator)
        allowed[:, 0] = True
        starts, ends = (logits.float().masked_fill(~allowed, NEVER) for logits in (out.start_logits, out.end_logits))
        loss = {}
        if start_positions is not None and end_positions is not None:
            loss = {"loss": (F.cross_entropy(starts, start_positions) + F.cross_entropy(ends, end_positions)) / 2}
        return loss | {"start_logits": starts, "end_logits": ends}


Place = tuple[int, list[tuple[int, int] | None]]  # a window's question, and the characters of its paragraph's tokens


def encoded(words: Any, part: Questions, spec: TasksSpec, dynamic: bool) -> tuple[list[dict[str, Any]], list[Place]]:
    """The windows of a part with their labels as in run_qa's features, and where the texts of each are found."""
    overlap = (spec.squad_length or 0) - (spec.squad_stride or 0) - QUERY
    padding = False if dynamic else "max_length"
    pairs = [row.text.lstrip() for row in part.rows], [part.paragraphs[row.paragraph] for row in part.rows]
    rows = words(
        *pairs, truncation="only_second", max_length=spec.squad_length, stride=overlap, padding=padding,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    windows, places = [], list[Place]()
    for number, question in enumerate(rows["overflow_to_sample_mapping"]):
        inside = [owner == 1 for owner in rows.sequence_ids(number)]
        spans = [span if own else None for span, own in zip(rows["offset_mapping"][number], inside, strict=True)]
        text, start = part.rows[question].answers[0]
        first = next((i for i, s in enumerate(spans) if s and s[0] <= start < s[1]), 0)
        last = next((i for i, s in enumerate(spans) if s and s[0] < start + len(text) <= s[1]), 0)
        whole = (first, last) if first and last else (0, 0)
        inputs = {key: rows[key][number] for key in words.model_input_names}
        windows.append(inputs | {"start_positions": whole[0], "end_positions": whole[1]})
        places.append((question, spans))
    return windows, places


def searched(test: Questions, places: list[Place], starts: Any, ends: Any) -> dict[str, str]:
    """The best text of each question by the sum of logits, as in run_qa's post-processing."""
    best: dict[str, tuple[float, str]] = {}
    for (number, spans), start, end in zip(places, starts, ends, strict=True):
        row = test.rows[number]
        for one in np.argsort(start)[-1 : -BEST - 1 : -1]:
            for two in np.argsort(end)[-1 : -BEST - 1 : -1]:
                begin, until = (spans[i] if i < len(spans) else None for i in (one, two))
                if begin is None or until is None or not one <= two < one + LONGEST:
                    continue
                if start[one] + end[two] > best.get(row.id, (-np.inf, ""))[0]:
                    text = test.paragraphs[row.paragraph][begin[0] : until[1]]
                    best[row.id] = (float(start[one] + end[two]), text)
    return {id: text for id, (_, text) in best.items()}


def measure(
    task: Squad, encoder: Path, spec: TasksSpec, host: Host, chosen: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each side."""
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: take(task, Model(encoder, spec, seed), host).value,
        "hf-run-qa": run_qa(encoder, task, spec, host, dynamic=False),
        "hf-run-qa-dynamic": run_qa(encoder, task, spec, host, dynamic=True),
        "hf-run-qa-our-head": run_qa(encoder, task, spec, host, dynamic=True, our_head=True),
    }
    one = replace(task.train, rows=task.train.rows[:1])
    answer(replace(task, train=one, tests={"dev": one}), Model(encoder, spec), host)  # what is done on first use alone
    questions = (spec.epochs or EPOCHS) * len(task.train) + len(task.tests["dev"])
    facts = {"precision": host.resolved_precision(), "rows": len(task.train), "tests": len(task.tests["dev"])}
    return rates(measured(task.name, sides, chosen, "f1", facts), "questions", questions)


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
        batch=chosen.batch, layer_decay=1.0, squad_head="independent", squad_length=chosen.length,
        squad_stride=chosen.length - QUERY - chosen.overlap,
    )  # fmt: skip
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Squad)
    dev = task.tests["dev"]
    some = dev.rows[:: max(1, len(dev) // chosen.tests)][: chosen.tests]
    task = replace(task, tests={"dev": replace(dev, rows=some)})
    with tempfile.TemporaryDirectory() as folder:
        encoder = chosen.encoder or untrained(Path(folder), task.train.paragraphs, chosen.length, chosen.size)
        result = here(host.resolved_device(), chosen.threads) | {
            "encoder": encoder_name(chosen),
            "rows": measure(task, encoder, spec, host, chosen),
        }
    write(chosen.out, result)


if __name__ == "__main__":
    main()
