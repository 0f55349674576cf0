"""Accuracy of an objective on minimal pairs by its scores of sentences, without fine-tuning.

Each different sentence is scored once, in a batch of sentences of the same length, so that nothing is padded. If
the host computes in bf16, bf16 decides only pairs whose scores are far apart; the others are scored again in fp32.
Several processes each score their share of the batches, and all of them get all scores.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workbench import cpu
from workbench.data import model_files
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import Diverged, InputError
from workbench.models.heads import Sentences
from workbench.process import heed
from workbench.spec.host import Host
from workbench.tasks.common.contract import Model, Progress, Scores, as_signs, items_of
from workbench.tasks.common.sentence_scorers import Scoring, of_folder
from workbench.tasks.common.token_rows import check_tokens
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.distributed import ALONE, Ranks

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
TOKENS = 1 << 13  # of a batch
TIE = 1e-6  # scores that differ by at most this share of the larger one tie: float32 is not more precise
BY_WORD = "pll-word-l2r"  # ends the name of scorers that mask the rest of a word
# More characters of Chinese, Japanese, Thai, Lao, Khmer or Burmese in a row than words have.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{6}")
TRIED = 512  # pairs scored in both precisions, to measure how much bf16 changes a difference of scores
MADE = ("blimp", "minimal-pairs")  # suites whose choices are kept in scores, so that predictions can be exported
# Differences larger than SAFE times the largest such change are decided in bf16. The largest of 512 changes lies
# beyond three standard deviations.
SAFE = 2


def zero_shot(pairs: PairSet, trial: Model, host: Host) -> Scores:
    """Score a run's encoder, or a published model, on minimal pairs.

    It is the share of pairs whose good sentence has the higher score, ties counting half, times 100. All processes of
    `ranks` call this with the same arguments, and return the same. Raises InputError for a model without heads,
    and for a scorer that does not return one number for each sentence, Diverged for a sentence score that is NaN or
    infinite.
    """
    encoder, ranks = trial.folder, trial.ranks or ALONE
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    scoring = of_folder(encoder, trial.options.scorers, device)
    texts = Tokenized(encoder, [*pairs.good, *pairs.bad], scoring.length)
    check_tokens(encoder, texts.ids, scoring.vocabulary)
    for by_word in (name for name in (scoring.name, *scoring.beside) if name.endswith(BY_WORD)):
        texts.check_words(by_word)
    half = host.resolved_precision(scoring.hidden) == "bf16"

    values: dict[str, dict[str, float]] = {}
    chosen: dict[str, str] = {}
    details: dict[str, Any] = {"scorer": scoring.name, "cut": texts.cut, "tie_within": TIE}
    for name, (good, bad, exact) in _scores(scoring, texts, pairs, half, device, trial.progress, ranks).items():
        wins = won(good, bad)
        if pairs.suite in MADE:
            chosen[name] = as_signs(wins.tolist())
        if name == scoring.name:
            values = by_group(pairs, wins)
            details |= {"ties": int((wins == 0.5).sum()), "pairs": len(wins), "in_fp32": exact}
            details |= {} if pairs.suite in MADE else items_of(wins.tolist())
        else:
            values[name] = {"accuracy": by_group(pairs, wins)["mean"]["accuracy"]}
    details |= {"chosen": chosen} if chosen else {}
    return Scores(values, (0, len(pairs.good)), details)


def won(good: Floats, bad: Floats) -> Floats:
    """Return 1 for each pair whose good sentence has the higher score, 0.5 for a tie, else 0."""
    tied = np.abs(good - bad) <= TIE * np.maximum(np.maximum(np.abs(good), np.abs(bad)), 1.0)
    return np.where(tied, 0.5, good > bad)


def by_group(pairs: PairSet, wins: Floats) -> dict[str, dict[str, float]]:
    """Return the headline under "mean", then the accuracy of each group at each level, all times 100."""
    accuracies: dict[str, dict[str, float]] = {}
    for level, labels in pairs.groups.items():
        names, places = np.unique(np.array(labels), return_inverse=True)
        shares = np.bincount(places, weights=wins) / np.bincount(places)
        accuracies[level] = {str(name): 100 * float(share) for name, share in zip(names, shares, strict=True)}
    first = next(iter(accuracies.values()))
    return {"mean": {pairs.metric: sum(first.values()) / len(first)}, **accuracies}


class Tokenized:
    """Token ids of the unique texts among `texts`, and the index of the word that each token belongs to.

    `place` holds, for each text, the index of its ids in `ids`; `cut` is the number of unique texts that were cut.
    """

    def __init__(self, encoder: Path, texts: Sequence[str], length: int) -> None:
        self.encoder, unique = encoder, list(dict.fromkeys(texts))
        tokenizer = load_published_tokenizer(encoder)
        read, characters = partial(tokenizer, unique, verbose=False), sum(map(len, unique))
        whole = model_files.in_time(partial(read, truncation=False), characters, encoder)
        self.cut = sum(len(row) > length for row in whole["input_ids"])
        short = partial(read, truncation=True, max_length=length)
        encoding = model_files.in_time(short, characters, encoder) if self.cut else whole
        self.ids = [np.array(row, dtype=np.int64) for row in encoding["input_ids"]]
        self.words = [[-1] * len(row) for row in self.ids]
        self._lumped = ""
        if encoding.is_fast:  # a tokenizer in Python does not say which tokens are of one word
            self.words = _words(unique, encoding)
            self._lumped = next(filter(None, map(_unspaced, unique, encoding.encodings, self.words)), "")
        where = {text: number for number, text in enumerate(unique)}
        self.place = np.array([where[text] for text in texts])

    def check_words(self, scorer: str) -> None:
        """Raise InputError if a text has no blanks (as in Chinese), so that this scorer cannot tell its words apart."""
        if self._lumped:
            raise InputError(
                f"--set tasks.scorers={scorer}: the tokenizer of {self.encoder} does not say where the words of "
                f"{self._lumped[:40]!r} begin, since there are no blanks between them; leave this scorer out"
            )

    def batches(self, chosen: Places, device: str, ranks: Ranks = ALONE) -> Iterator[tuple[Places, Sentences]]:
        """Yield this process's share of the chosen texts in batches of equal length, the longest first."""
        lengths = np.array([len(self.ids[i]) for i in chosen])
        parts = []
        for length in np.unique(lengths)[::-1]:
            rows, size = chosen[lengths == length], max(1, TOKENS // int(length))
            parts += [rows[start : start + size] for start in range(0, len(rows), size)]
        for part in parts[ranks.index :: ranks.count]:
            ids = torch.from_numpy(np.stack([self.ids[i] for i in part])).to(device)
            yield part, Sentences(ids, None, torch.tensor([self.words[i] for i in part], device=device))


def _words(texts: Sequence[str], encoding: Any) -> list[list[int]]:
    """Return the number of the word of each token of the texts, -1 for special tokens.

    They are the words of the tokenizer. If it takes several words for one, because it splits no text before its
    subwords are found, a word begins after each blank instead.
    """
    own = [[-1 if word is None else word for word in encoding.word_ids(row)] for row in range(len(texts))]
    begins = list(map(_begins, texts, encoding.encodings))
    several = any(
        begin and word >= 0 and word == before
        for words, each in zip(own, begins, strict=True)
        for before, word, begin in zip(words, words[1:], each[1:], strict=False)
    )
    if not several:
        return own
    counted = [itertools.accumulate(map(int, each)) for each in begins]
    return [
        [number if word >= 0 else -1 for word, number in zip(words, numbers, strict=True)]
        for words, numbers in zip(own, counted, strict=True)
    ]


def _begins(text: str, tokens: Any) -> list[bool]:
    """Return for each token of a text whether it begins with a blank, or follows one that is no token by itself."""
    begins: list[bool] = []
    last, blank = 0, True  # the end of the token before, and whether it is a blank or there is none
    for (start, end), word in zip(tokens.offsets, tokens.word_ids, strict=True):
        if word is None or start == end:
            begins.append(False)
            continue
        apart = start >= last  # tokens of bytes may share a character
        follows = start > 0 and text[start - 1].isspace() and not blank
        begins.append(apart and (text[start].isspace() or follows))
        last, blank = end, text[start:end].isspace()
    return begins


def _unspaced(text: str, tokens: Any, words: Sequence[int]) -> str:
    """Return the first word of a text with more characters than words of scripts without blanks have; "" for none."""
    if not UNSPACED.search(text):
        return ""
    spans: dict[int, tuple[int, int]] = {}
    for (start, end), word in zip(tokens.offsets, words, strict=True):
        if word >= 0:
            spans[word] = (spans.get(word, (start, end))[0], end)
    return next((text[start:end] for start, end in spans.values() if UNSPACED.search(text[start:end])), "")


def _scores(
    scoring: Scoring, texts: Tokenized, pairs: PairSet, half: bool, device: str, progress: Progress | None, ranks: Ranks
) -> dict[str, tuple[Floats, Floats, int]]:
    """Return by scorer the scores (N,) of the good and of the bad sentences, and how many pairs fp32 decided."""
    scorers = {scoring.name: scoring.scorer, **scoring.beside}
    first, second = texts.place[: len(pairs.good)], texts.place[len(pairs.good) :]

    def score(chosen: Places, precise: bool, names: Iterable[str]) -> dict[str, Floats]:
        """Return by scorer the scores (T,) of the chosen texts, NaN for the others."""
        done, found = 0, {name: np.zeros(len(texts.ids)) for name in names}
        autocast = torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=not precise)
        with torch.inference_mode(), autocast:
            for rows, sentences in texts.batches(chosen, device, ranks):
                for name in found:
                    heed()
                    values = scorers[name](sentences)
                    if values.shape != (len(rows),):  # a single number would be taken as the score of every sentence
                        raise InputError(
                            f"{scoring.model}: the score ({name}) of {len(rows)} sentences has the shape "
                            f"{tuple(values.shape)}, and ({len(rows)},), one number for each sentence, is needed"
                        )
                    found[name][rows] = values.double().cpu().numpy()
                done += len(rows)
                if progress is not None:
                    progress(min(done * ranks.count, len(chosen)), len(chosen))
        others = np.setdiff1d(np.arange(len(texts.ids)), chosen)
        for name in found:
            found[name] = ranks.total(found[name])
            found[name][others] = np.nan
            bad = next((int(i) for i in chosen if not np.isfinite(found[name][i])), None)
            if bad is not None:
                place = int(np.flatnonzero((first == bad) | (second == bad))[0])
                what = f"the score ({name}) of a sentence of pair {place} of {pairs.name}"
                raise Diverged(f"{scoring.model}: {what} is {found[name][bad]}")
        return found

    everything = score(np.unique(np.concatenate([first, second])), not half, scorers)
    if not half:
        return {name: (values[first], values[second], len(first)) for name, values in everything.items()}
    sample = np.arange(len(first))[:: max(1, len(first) // TRIED)]
    tried = score(np.unique(np.concatenate([first[sample], second[sample]])), True, scorers)
    decided = {}
    for name, values in everything.items():
        coarse, exact = values[first] - values[second], tried[name]
        margin = SAFE * np.abs((exact[first] - exact[second] - coarse)[sample]).max()
        near = np.abs(coarse) <= margin
        again = score(np.unique(np.concatenate([first[near], second[near]])), True, (name,))[name]
        # Both scores of a pair have the same precision: fp32 where they are close, else bf16.
        good, bad = (np.where(near, again[side], values[side]) for side in (first, second))
        decided[name] = (good, bad, int(near.sum()))
    return decided
