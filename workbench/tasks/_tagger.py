"""Fine-tuning of one encoder to tag words, and its scores.

A word is read at its first piece, as in the released code and BERT (Devlin et al. 2019, section 5.3), or at its last
piece in a causal encoder, whose first pieces do not see the rest of the word. The other pieces have no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.errors import Diverged
from workbench.spec.host import Host
from workbench.tasks.common.contract import Model, Scores
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.encoder_folders import WithHead, head_layer, is_causal, load_encoder, row_length
from workbench.tasks.common.fine_tuning import fit, setting
from workbench.tasks.common.token_rows import (
    Encoded,
    Splitter,
    by_length,
    check_ids,
    numbered,
    open_splitter,
    shuffled,
    windows,
    word_pieces,
)
from workbench.tasks.tagging import Tagging, by_type, columns, points
from workbench.tensors import to_device


class Tagger(WithHead):
    """An encoder with dropout and one linear layer on the state of each word, as in the released code."""

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__(encoder, dropout)
        self.head = head_layer(self.width, outputs)

    def forward(self, inputs: dict[str, Tensor], places: Tensor) -> Tensor:
        """Return outputs (words, labels) of the words at these places (words,) of all positions of inputs (B, L)."""
        outputs: Tensor = self.head(self.dropout(self.states(inputs).flatten(0, 1)[places]))
        return outputs


def tag(task: Tagging, trial: Model, host: Host) -> Scores:
    """Fine-tune a copy of an encoder on tagged sentences and score it, as `classification.finetune` does on texts."""
    encoder, spec = trial.folder, trial.options
    with setting(task.name, trial.seed, host, trial.unfinished) as where:
        model = Tagger(load_encoder(encoder, spec.dropout, where.device), task.known, spec.dropout).to(where.device)
        config = model.encoder.config
        splitter, last = open_splitter(encoder, row_length(encoder, config, spec.length), "tagging"), is_causal(config)
        sentences = {"train": task.train, **task.tests}
        parts = {part: word_windows(splitter, rows.words, last) for part, rows in sentences.items()}
        check_ids(encoder, (data.rows for data in parts.values()), model.encoder)
        train, targets = parts["train"], torch.tensor([t for each in task.train.targets for t in each])
        steps = step_count(len(train.rows), task.settings(spec)["epochs"], spec)

        def loss_of(rows: Any) -> Tensor:
            inputs, places, words = train.batch(rows, where.device)
            with where.autocast():
                outputs = model(inputs, places)
            wanted = targets[torch.from_numpy(words)].to(where.device)
            return nn.functional.cross_entropy(outputs.float(), wanted, reduction="sum" if spec.sum_loss else "mean")

        order = shuffled(train.rows.lengths, spec.batch, where.order)
        earlier = fit(model, loss_of, order, steps, spec, where, trial.progress)
        with where.autocast():
            predicted = {part: predict(model, parts[part], where.device, task.name) for part in task.tests}

    values = {part: points(task, task.tests[part], numbers) for part, numbers in predicted.items()}
    first = next(iter(values))
    rows = len(targets), parts[first].count
    files = {f".{part}.conll": columns(task, task.tests[part], numbers) for part, numbers in predicted.items()}
    details = _details(task, parts, predicted[first], last)
    return Scores(values, rows, details, files, **where.effort(steps, earlier))


def predict(model: Tagger, data: WordWindows, device: str, name: str) -> Any:
    """Return the most probable label of each word (words,). Raises Diverged if an output is NaN or infinite."""
    predicted = np.full(data.count, -1)
    with torch.inference_mode():
        for rows in by_length(data.rows.lengths):
            inputs, places, words = data.batch(rows, device)
            outputs = model(inputs, places).float()
            if not torch.isfinite(outputs).all():
                raise Diverged(f"the outputs after fine-tuning on {name} are not finite")
            predicted[words] = outputs.argmax(1).cpu().numpy()
    assert (predicted >= 0).all(), "a word was read in no window"
    return predicted


def _details(task: Tagging, parts: Mapping[str, WordWindows], predicted: Any, last: bool) -> dict[str, Any]:
    """Return what a score holds besides its metrics; `predicted` (words,) belongs to the first test part."""
    scorer = "accuracy over words"
    if task.scheme:
        files = "" if task.scheme == "IOB2" else f", which the files have in {task.scheme}"
        scorer = f"micro F1 of spans as conlleval and seqeval's default mode count them, from tags in IOB2{files}"
    empty = sum(data.empty for data in parts.values())
    without = f"{empty:,} of the words have no pieces in this tokenizer and are read as the unknown token"
    return {
        "scheme": task.scheme,
        "scorer": scorer,
        "types": by_type(task, task.tests[next(iter(task.tests))], predicted),
        "read_at": f"{'last' if last else 'first'} piece of each word",
        "sentences": {part: len(rows) for part, rows in {"train": task.train, **task.tests}.items()},
        "windows": {part: len(data.rows) for part, data in parts.items()},
        "words_without_pieces": {part: data.empty for part, data in parts.items()},
        "notes": [*task.notes, *([without] if empty else [])],
    }


# ---- sentences of words in windows ----


@dataclass(frozen=True)
class WordWindows:
    """R rows of token ids in which W words are read, each at one position of one row."""

    rows: Encoded
    # For each row the positions at which words are read, and the numbers of these words, 0 to W - 1 in order.
    places: list[tuple[Any, Any]]
    count: int  # W
    empty: int  # words without pieces, which are read as the unknown token

    def batch(self, rows: Any, device: str) -> tuple[dict[str, Tensor], Tensor, Any]:
        """Return the inputs (B, L) of the encoder by name, where the words of these rows are, and their numbers.

        The places are indices (words of the batch,) into the positions of all rows (B * L,), row after row.
        """
        inputs, _ = self.rows.batch(rows, device)
        width = inputs["input_ids"].shape[1]
        flat = np.concatenate([line * width + self.places[row][0] for line, row in enumerate(rows)])
        return inputs, to_device(torch.from_numpy(flat), device), np.concatenate([self.places[row][1] for row in rows])


def word_windows(splitter: Splitter, sentences: Sequence[Sequence[str]], last: bool) -> WordWindows:
    """Return sentences as rows. A word is read at its first piece, or with `last` at its last one."""
    rows, firsts, empty = word_pieces(splitter, sentences)
    picks = [np.append(first[1:], len(row)) - 1 for row, first in zip(rows, firsts, strict=True)] if last else firsts
    numbers, count = numbered(rows, picks)
    data, places = windows(splitter, rows, numbers)
    used = [row for row, (positions, _) in enumerate(places) if len(positions)]
    kept = Encoded([data.ids[row] for row in used], None, data.targets[used], data.pad)
    return WordWindows(kept, [places[row] for row in used], count, empty)
