"""The best answers to each question from the spans of all its windows, as text, in the layout of the official files.

As in the released code (`finetune/qa/qa_metrics.py`): an answer begins in the window that has the most context around
its first token, has at most 30 tokens, and is ranked by the sum of the scores of its start and its end over all
windows. The odds of no answer are the least of all windows. A question without any candidate gets the text "empty".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.store.atomic import dumps
from workbench.tasks.squad.questions import ANSWER, N_BEST, Questions
from workbench.tasks.squad.windows import Windows

KEPT = 10 * N_BEST  # candidates of a window that are kept; texts may repeat among them
NOTHING = "empty"  # as in the released code


@dataclass(frozen=True)
class Candidates:
    """Spans of one window, the best first: score of start and of end, and first and last token of the paragraph."""

    starts: Any  # (C,) scores
    ends: Any  # (C,) scores
    spans: Any  # (C, 2)


@dataclass(frozen=True)
class Answers:
    """The N-best answers of each question by its id, as the official layout has them, and the log-odds of no answer."""

    best: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float]

    @property
    def texts(self) -> dict[str, str]:
        """The best answer to each question by its id, leaving out answers without text."""
        return {id: next((each["text"] for each in nbest if each["text"]), NOTHING) for id, nbest in self.best.items()}

    def files(self, unanswerable: bool) -> dict[str, str]:
        """Return the files of predictions: text by id, N-best lists by id, and in 2.0 the odds of no answer by id."""
        contents: dict[str, Any] = {".preds.json": self.texts, ".nbest.json": self.best}
        if unanswerable:
            contents[".null_odds.json"] = self.null_odds
        return {ending: dumps(content) for ending, content in contents.items()}


def candidates(spans: dict[str, Any], row: int, first: int, count: int, start: int) -> Candidates:
    """Return the candidates among the best spans of a window, row `row` of the arrays of `best_spans`.

    The window's tokens are those from `first` in the row and from `start` in the paragraph.
    """
    starts, ends = spans["starts"][row][:, None] - first, spans["ends"][row] - first  # (K, 1), (K, K)
    valid = spans["begins"][row][:, None] & (ends >= starts) & (ends - starts < ANSWER) & (ends < count)
    one, two = np.nonzero(valid)
    start_scores, end_scores = spans["start_scores"][row][one], spans["end_scores"][row][one, two]
    order = np.argsort(-(start_scores + end_scores), kind="stable")[:KEPT]
    tokens = np.stack([starts[one, 0], ends[one, two]], 1)[order] + start
    return Candidates(start_scores[order], end_scores[order], tokens)


def collected(questions: Questions, windows: Windows, by_window: Sequence[Candidates], nulls: Any) -> Answers:
    """Return the answers from the candidates of all windows and their odds of no answer, `nulls` (N,)."""
    best: dict[str, list[dict[str, Any]]] = {}
    null_odds: dict[str, float] = {}
    ends = np.searchsorted(windows.rows[:, 0], np.arange(len(questions) + 1))
    for number, row in enumerate(questions.rows):
        part = slice(ends[number], ends[number + 1])
        offsets = windows.offsets[windows.rows[part.start, 1]]
        text = questions.paragraphs[row.paragraph]
        best[row.id] = _best(by_window[part], offsets, text)
        null_odds[row.id] = float(nulls[part].min())
    return Answers(best, null_odds)


def _best(by_window: Sequence[Candidates], offsets: Any, text: str) -> list[dict[str, Any]]:
    """Return the best answers with different texts, with their probabilities among each other."""
    starts = np.concatenate([each.starts for each in by_window])
    ends = np.concatenate([each.ends for each in by_window])
    spans = np.concatenate([each.spans for each in by_window])
    chosen: dict[str, tuple[float, float]] = {}
    for place in np.argsort(-(starts + ends), kind="stable"):
        first, last = spans[place]
        answer = text[offsets[first, 0] : offsets[last, 1]]
        chosen.setdefault(answer, (round(float(starts[place]), 5), round(float(ends[place]), 5)))
        if len(chosen) == N_BEST:
            break
    chosen = chosen or {NOTHING: (0.0, 0.0)}
    scores = np.array([sum(each) for each in chosen.values()])
    weights = np.exp(scores - scores.max())
    return [
        {"text": answer, "probability": round(float(share), 6), "start_logit": pair[0], "end_logit": pair[1]}
        for (answer, pair), share in zip(chosen.items(), weights / weights.sum(), strict=True)
    ]
