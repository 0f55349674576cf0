"""Windows of a question and a part of its paragraph, as rows of token ids with the character offsets of the tokens.

A row is the question's tokens, at most QUERY of them, then a window of the paragraph's. Windows begin STRIDE tokens
apart, as in the released code (`finetune/qa/qa_tasks.py`). In rows of fewer than 256 tokens, the question has at most
a quarter of the row, and windows begin half a row apart. Answers are mapped by the tokenizer's character offsets.

Shapes: N windows, B windows of a batch, L tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from workbench.data import model_files
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.encoder_folders import WithHead, head_layer, reads_last, row_length
from workbench.tasks.common.examples import Examples
from workbench.tasks.common.token_rows import Encoded, pieces
from workbench.tasks.squad import ANSWERABLE, BEAM, LENGTH, QUERY, STRIDE, Question, Questions
from workbench.tensors import to_device

LENGTH_SHARE = 0.01  # of a window's length, which decides between windows with the same context
SHORTEST = 4  # tokens of a paragraph that a window must hold
TEXT = "a"  # in place of question and paragraph when the special tokens around them are looked up


class Limits(NamedTuple):
    """The most tokens of a row and of its question, and the tokens between the starts of windows."""

    length: int
    query: int
    stride: int


def limits(folder: Path, config: Any, spec: TasksSpec) -> Limits:
    """Return the limits for an encoder of this configuration."""
    length = row_length(folder, config, spec.squad_length or LENGTH)
    return Limits(length, min(QUERY, length // 4), spec.squad_stride or max(1, min(STRIDE, length // 2)))


@dataclass(frozen=True)
class Frame:
    """The special tokens before, between and after question and paragraph.

    `types` are the segment ids of these five parts in a row, each to be repeated to the part's length.
    """

    parts: tuple[Any, Any, Any]  # arrays (tokens,) int64
    types: list[Any] | None  # arrays int64
    pad: int
    last: bool  # whether the encoder reads a text at its last token, where "no answer" then is


@dataclass(frozen=True)
class Batch:
    """Rows for the model, and the labels of the loss."""

    inputs: dict[str, Tensor]  # (B, L) each
    allowed: Tensor  # (B, L), where answers may begin and end, "no answer" included
    none: Tensor  # (B,), the position of "no answer"
    spans: Tensor  # (B, 2), the first and last token of the answer, both at "no answer" if the window lacks it
    impossible: Tensor  # (B,), 1 for unanswerable questions


@dataclass(frozen=True)
class Windows:
    """All windows of the questions of one part, as arrays."""

    frame: Frame
    questions: Sequence[Any]  # (tokens,) of ids each
    paragraphs: Sequence[Any]  # (tokens,) of ids each
    offsets: Sequence[Any]  # of the paragraphs' tokens: (tokens, 2), the first character and the end of each
    rows: Any  # (N, 4), the question, the paragraph, the first token in the paragraph and the number of tokens
    spans: Any  # (N, 2), the first and the last token of the answer in the paragraph, -1 if the window lacks it
    impossible: Any  # (N,)

    def __len__(self) -> int:
        return len(self.rows)

    @functools.cached_property
    def first(self) -> Any:
        """The position of the paragraph's first token in each row, an array (N,)."""
        lengths = np.array([len(ids) for ids in self.questions])
        return len(self.frame.parts[0]) + lengths[self.rows[:, 0]] + len(self.frame.parts[1])

    @functools.cached_property
    def lengths(self) -> Any:
        """The number of tokens of each row, an array (N,)."""
        return self.first + self.rows[:, 3] + len(self.frame.parts[2])

    def _row(self, number: int) -> tuple[Any, Any]:
        """Return the ids and the segment ids of a row (length,)."""
        question, paragraph, start, count = self.rows[number]
        before, between, after = self.frame.parts
        parts = (before, self.questions[question], between, self.paragraphs[paragraph][start : start + count], after)
        each = self.frame.types or [0] * len(parts)
        types = [np.resize(types, len(part)) for types, part in zip(each, parts, strict=True)]
        return np.concatenate(parts), np.concatenate(types)

    def batch(self, rows: Any, device: str) -> Batch:
        """Return the windows of these row numbers, padded on the right to the longest."""
        ids, types = (list(each) for each in zip(*map(self._row, rows), strict=True))
        impossible = self.impossible[rows].astype(np.float32)
        made = Encoded(ids, types if self.frame.types is not None else None, impossible, self.frame.pad)
        inputs, targets = made.batch(np.arange(len(made)), device)
        columns = np.arange(made.lengths.max())
        none = made.lengths - 1 if self.frame.last else np.zeros_like(made.lengths)
        first, counts = self.first[rows], self.rows[rows, 3]
        allowed = (columns >= first[:, None]) & (columns < (first + counts)[:, None]) | (columns == none[:, None])
        held = self.spans[rows, 0] >= 0
        shifted = self.spans[rows] + (first - self.rows[rows, 2])[:, None]
        spans = np.where(held[:, None], shifted, none[:, None])
        allowed, none, spans = (to_device(torch.from_numpy(each), device) for each in (allowed, none, spans))
        return Batch(inputs, allowed, none, spans, targets)

    def begins(self, rows: Any, width: int) -> Tensor:
        """Return where in these rows an answer may begin (B, `width`): at tokens with the most context here."""
        mask = np.zeros((len(rows), width), dtype=bool)
        for place, row in enumerate(rows):
            mask[place, self.first[row] : self.first[row] + self.rows[row, 3]] = self._owned[row]
        return torch.from_numpy(mask)

    @functools.cached_property
    def _owned(self) -> list[Any]:
        """One mask (tokens,) a window: True for tokens that have more context in this window than in any other."""
        owned = []
        ends = np.searchsorted(self.rows[:, 0], np.arange(len(self.questions) + 1))
        for begin, end in pairwise(ends):
            cuts_of = [(int(start), int(count)) for start, count in self.rows[begin:end, 2:]]
            owner = most_context(cuts_of, len(self.paragraphs[self.rows[begin, 1]]))
            owned += [owner[start : start + count] == number for number, (start, count) in enumerate(cuts_of)]
        return owned


# ---- text to windows ----


def windows(folder: Path, config: Any, parts: dict[str, Questions], limit: Limits) -> dict[str, Windows]:
    """Return the windows of each part for the encoder in a folder. Raises InputError."""
    tokenizer = load_published_tokenizer(folder)
    if not tokenizer.is_fast:
        raise InputError(
            f"{folder}: its tokenizer gives no character offsets of its tokens, which SQuAD's answers need; "
            f"give a folder with a tokenizer.json"
        )
    frame = _frame(folder, tokenizer, config)
    if limit.length - sum(map(len, frame.parts)) - limit.query < SHORTEST:
        raise InputError(
            f"{folder}: rows of {limit.length} tokens hold too little of a paragraph beside a question of up to "
            f"{limit.query}; SQuAD needs an encoder with more positions, or a larger tasks.squad_length"
        )
    return {part: _windows(folder, tokenizer, frame, questions, limit) for part, questions in parts.items()}


def _frame(folder: Path, tokenizer: Any, config: Any) -> Frame:
    """Return the special tokens that a tokenizer puts around a pair of texts, or its end-of-text token."""
    with model_files.refusing(folder, "holds a tokenizer that cannot encode pairs of texts"):
        encoding = tokenizer(TEXT, TEXT)
        ids, owners = np.array(encoding["input_ids"], dtype=np.int64), encoding.sequence_ids()
        question, paragraph = ([i for i, owner in enumerate(owners) if owner == side] for side in (0, 1))
        ends = (0, question[0], question[-1] + 1, paragraph[0], paragraph[-1] + 1, len(ids))
    parts = (ids[: ends[1]], ids[ends[2] : ends[3]], ids[ends[4] :])
    types = None
    if "token_type_ids" in tokenizer.model_input_names and "token_type_ids" in encoding:
        every = np.array(encoding["token_type_ids"], dtype=np.int64)
        types = [every[start:end] for start, end in pairwise(ends)]
    if not any(map(len, parts)):
        closing = next((i for i in (tokenizer.sep_token_id, tokenizer.eos_token_id) if i is not None), 0)
        parts, types = (ids[:0], np.array([closing]), np.array([closing])), None
    return Frame(parts, types, tokenizer.pad_token_id or 0, reads_last(config))


def _windows(folder: Path, tokenizer: Any, frame: Frame, part: Questions, limit: Limits) -> Windows:
    questions = [ids[: limit.query] for ids, _ in _tokens(folder, tokenizer, [row.text for row in part.rows])]
    used = sorted({row.paragraph for row in part.rows})
    tokens = _tokens(folder, tokenizer, [part.paragraphs[number] for number in used])
    place = {number: index for index, number in enumerate(used)}
    rows, spans, impossible = [], [], []
    for number, row in enumerate(part.rows):
        ids, offsets = tokens[place[row.paragraph]]
        answer = _answer(row, offsets)
        room = limit.length - sum(map(len, frame.parts)) - len(questions[number])
        for start, count in cuts(len(ids), room, limit.stride):
            rows.append((number, place[row.paragraph], start, count))
            held = answer is not None and start <= answer[0] and answer[1] < start + count
            spans.append(answer if held else (-1, -1))
            impossible.append(row.impossible)
    return Windows(
        frame, questions, [ids for ids, _ in tokens], [offsets for _, offsets in tokens],
        np.array(rows, dtype=np.int64), np.array(spans, dtype=np.int64), np.array(impossible),
    )  # fmt: skip


def cuts(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the first token and the number of tokens of each window of at most `room` tokens."""
    starts = [0]
    while starts[-1] + room < tokens:
        starts.append(starts[-1] + min(room, stride))
    return [(start, min(room, tokens - start)) for start in starts]


def most_context(windows: Sequence[tuple[int, int]], tokens: int) -> Any:
    """Return which of a paragraph's windows, (first token, tokens) each, has the most context of each token, (tokens,).

    Context is the number of tokens to the nearer end of the window, and a hundredth of the window's length.
    """
    best, chosen = np.full(tokens, -1.0), np.zeros(tokens, dtype=np.int64)
    for number, (start, count) in enumerate(windows):  # one by one: of a long paragraph, all at once fill memory
        places = np.arange(count)
        context = np.minimum(places, count - 1 - places) + LENGTH_SHARE * count
        inside = slice(start, start + count)
        more = context > best[inside]
        best[inside][more], chosen[inside][more] = context[more], number
    return chosen


def _answer(row: Question, offsets: Any) -> tuple[int, int] | None:
    """Return the first and the last token that share characters with a question's first answer, None without one."""
    if row.impossible:
        return None
    text, start = row.answers[0]
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], start + len(text), side="left")) - 1
    return (first, last) if first <= last else None


def _tokens(folder: Path, tokenizer: Any, texts: list[str]) -> list[tuple[Any, Any]]:
    """Return the ids (tokens,) of each text, and its tokens' character offsets (tokens, 2) without outer blanks."""
    made = []
    for part, characters in pieces(Examples(texts, None, [0] * len(texts)), folder):
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        encoding = model_files.in_time(functools.partial(tokenizer, part.first, **options), characters, folder)
        for text, ids, offsets in zip(part.first, encoding["input_ids"], encoding["offset_mapping"], strict=True):
            spans = []
            for start, end in offsets:  # some tokenizers include the blanks around a token
                while start < end and text[start].isspace():
                    start += 1
                while start < end and text[end - 1].isspace():
                    end -= 1
                spans.append((start, end))
            made.append((np.array(ids, dtype=np.int64), np.array(spans, dtype=np.int64).reshape(-1, 2)))
    return made


# ---- heads and loss ----
# As in the released code (`finetune/qa/qa_tasks.py`, docs/electra.md 5). In the joint head the end depends on the
# start: on the true one in training, and on each of the most probable ones in a test. The answerability head reads the
# state of "no answer", [CLS], and the mean state under the probabilities of the start. It is trained in SQuAD 1.1 too.
# Shapes: B windows, L tokens, D width, K starts.

WIDTH = 512  # of the hidden layers of the heads
NEVER = -1e4  # added to the logit of a position where no answer begins or ends
# Numbers in the hidden layer of the end that are computed at once; what fits in a CPU's cache takes a tenth of the time
AT_ONCE = {"cpu": 1 << 19}
ELSEWHERE = 1 << 24


class SpanModel(WithHead):
    """An encoder with the heads; `joint` chooses an end that depends on the start."""

    def __init__(self, encoder: Any, joint: bool) -> None:
        super().__init__(encoder)
        self.joint = joint
        self.start = head_layer(self.width, 1)
        self.end_hidden = head_layer(2 * self.width, WIDTH) if joint else None
        self.end = head_layer(WIDTH if joint else self.width, 1)
        self.answerable_hidden = head_layer(2 * self.width, WIDTH)
        self.answerable = head_layer(WIDTH, 1)

    def end_logits(self, hidden: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        """Return the logits of each token as the end (B, L), in float32, for one start of each row (B,)."""
        if self.end_hidden is None:
            return _masked(self.end(hidden)[..., 0], allowed)
        return self.joint_ends(self.tokens_share(hidden), _at(hidden, starts), allowed)

    def tokens_share(self, hidden: Tensor) -> Tensor:
        """Return what the states of tokens (B, L, D) add to the hidden layer of the joint end (B, L, WIDTH)."""
        assert self.end_hidden is not None
        return functional.linear(hidden, self.end_hidden.weight[:, hidden.shape[-1] :], self.end_hidden.bias)

    def joint_ends(self, share: Tensor, starts: Tensor, allowed: Tensor) -> Tensor:
        """Return the logits of each token as the end (S, L), from the tokens' share (S, L, WIDTH) and starts (S, D).

        For several starts of one row, the share is (L, WIDTH) and `allowed` is (L,).
        """
        assert self.end_hidden is not None
        of_start = functional.linear(starts, self.end_hidden.weight[:, : starts.shape[-1]])
        activated = functional.gelu(share + of_start[:, None])
        return _masked(self.end(activated)[..., 0], allowed)

    def null_logits(self, hidden: Tensor, batch: Batch, start_logits: Tensor) -> Tensor:
        """Return the log-odds that the question has no answer (B,), in float32."""
        attended = (start_logits.softmax(1)[:, None].to(hidden.dtype) @ hidden)[:, 0]  # (B, D)
        both = torch.cat([_at(hidden, batch.none), attended], 1)
        logits: Tensor = self.answerable(functional.gelu(self.answerable_hidden(both)))
        return logits[:, 0].float()


def _masked(logits: Tensor, allowed: Tensor) -> Tensor:
    return logits.float().masked_fill(~allowed, NEVER)


def _at(hidden: Tensor, places: Tensor) -> Tensor:
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def span_loss(model: SpanModel, batch: Batch, total: bool) -> Tensor:
    """Return the loss () of a batch: half of start and end each, and the weighted loss of answerability.

    It is the mean over the windows, or their sum with `total`. A window without the answer is to begin and end at
    "no answer", also in SQuAD 1.1; the label of its answerability is still the label of the question.
    """
    reduction = "sum" if total else "mean"
    hidden = model.states(batch.inputs)
    starts = _masked(model.start(hidden)[..., 0], batch.allowed)
    ends = model.end_logits(hidden, batch.allowed, batch.spans[:, 0])
    nulls = model.null_logits(hidden, batch, starts)
    first, last = (
        functional.cross_entropy(logits, batch.spans[:, side], reduction=reduction) / 2
        for side, logits in enumerate((starts, ends))
    )
    weighted = ANSWERABLE * functional.binary_cross_entropy_with_logits(nulls, batch.impossible, reduction=reduction)
    return first + last + weighted


def best_spans(model: SpanModel, batch: Batch, begins: Tensor) -> dict[str, Any]:
    """Return the best starts of each window, the best ends of each start, and the log-odds of no answer, as arrays.

    `starts` and `start_scores` are (B, K), `ends` and `end_scores` (B, K, K), `nulls` (B,), and `begins` (B, K) says
    at which starts an answer may begin by the mask `begins` (B, L); other starts have no ends. The scores of the joint
    head are log-probabilities, and scores of independent heads are logits.
    """
    hidden = model.states(batch.inputs)
    logits = _masked(model.start(hidden)[..., 0], batch.allowed)
    nulls = model.null_logits(hidden, batch, logits)
    count = min(BEAM, logits.shape[1])
    start_scores, starts = (logits.log_softmax(1) if model.joint else logits).topk(count, 1)
    may_begin = begins.gather(1, starts)
    if model.joint:
        end_scores, ends = _joint_ends(model, hidden, batch.allowed, starts, may_begin)
    else:
        best = model.end_logits(hidden, batch.allowed, starts[:, 0]).topk(count, 1)
        end_scores, ends = (each[:, None].expand(-1, count, -1) for each in best)
    names = ("starts", "start_scores", "ends", "end_scores", "nulls", "begins")
    tensors = (starts, start_scores, ends, end_scores, nulls, may_begin)
    return {name: tensor.cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}


def _joint_ends(model: SpanModel, hidden: Tensor, allowed: Tensor, starts: Tensor, begins: Tensor) -> list[Tensor]:
    """Return the scores and places (B, K, K) of the best ends of those starts (B, K) at which an answer may begin."""
    shape, device = (*starts.shape, starts.shape[1]), starts.device
    scores = torch.zeros(shape, device=device)
    places = torch.zeros(shape, dtype=torch.int64, device=device)
    shares = model.tokens_share(hidden)
    size = max(1, AT_ONCE.get(device.type, ELSEWHERE) // (shares.shape[1] * WIDTH))
    for row, share in enumerate(shares):
        for columns in begins[row].nonzero()[:, 0].split(size):
            logits = model.joint_ends(share, hidden[row, starts[row, columns]], allowed[row])
            scores[row, columns], places[row, columns] = logits.log_softmax(1).topk(shape[2], 1)
    return [scores, places]
