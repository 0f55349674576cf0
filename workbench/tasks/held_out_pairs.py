"""Minimal pairs made from text that was held out from pre-training, in any language and without labels.

Each pair is a sentence and a changed copy of it, and there are three kinds: `exchange` exchanges two neighbouring
words, `replace` replaces a word by one of similar frequency, and `order` exchanges two sentences that follow one
another. Hashes of the texts decide which sentences, words and replacements are taken. The headline is the accuracy
over all pairs, so that a kind with few pairs adds only its share of noise. `pairs:exchange`,
`pairs:replace` and `pairs:order` are more pairs of one kind.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from workbench.data import built_in_text, filters
from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.spec.presets import REHEARSAL
from workbench.tasks.common.contract import HeldOut
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.probes import halves

MOST, LEAST = 1000, 100  # pairs of a kind, at most and at least
ALONE = 4000  # pairs at most if one kind is selected by its name
WORDS = (5, 16)  # of a sentence, at least and at most; rows of `nano` have 32 tokens
TOGETHER = (8, 20)  # words of two sentences that are exchanged, at least and at most
COUNT = 3  # a word can be replaced, and can replace another, if it occurs at least so often
LIKE = 24  # neighbours in the order of frequency, one of which replaces a word
# Vowel signs and accents that follow their letter, as in Devanagari and decomposed Latin, and the characters of no
# width that join letters or keep them apart within a word, as in Persian.
MARKS = "".join(c for c in map(chr, range(0x20000)) if unicodedata.category(c) in ("Mn", "Mc")) + "\u200c\u200d"
LETTER = rf"[^\W\d_][{MARKS}]*"
# A word, or a single letter of a script without blanks between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer.
WORD = re.compile(
    rf"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|(?=[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]){LETTER}"
    rf"|(?:{LETTER})+(?:['’\-](?:{LETTER})+)*"
)
words_of = functools.lru_cache(1 << 14)(WORD.findall)  # of a sentence, which every kind of pair looks at
# The ends of sentences, also in Arabic and Urdu, Devanagari, Armenian, Ethiopic, Burmese and Khmer.
BREAK = re.compile(r"(?<=[.!?…؟۔।॥։።။។])\s+|(?<=[。！？])")
END = re.compile(r"[.!?…。！？؟۔।॥։።။។][\"'”’»)\]]*$")

Pair = tuple[str, str]  # good, bad


def load(names: Sequence[str], options: TasksSpec, text: HeldOut | None) -> list[PairSet]:
    """Return the pairs of these names, made from the text of the corpus. Raises InputError."""
    if text is None:
        raise InputError(f"--tasks {names[0]}: these pairs are made from the text of a corpus, and no corpus is given")
    data, prepared = text()
    return [of_text(name, data, prepared, tuning=bool(options.held_out)) for name in names]


def of_text(name: str, data: DataSpec, prepared: Path, tuning: bool) -> PairSet:
    """Return the pairs of one of the names, made from the half of a prepared corpus's held-out text that reports use.

    With `tuning` they come from the other half. Raises InputError if too little text was held out.
    """
    text = paragraphs(data, prepared, tuning)
    kinds = KINDS if name == SUITE else (name.removeprefix(PREFIX),)
    pairs_of = {kind: KINDS[kind](text) for kind in kinds}
    few = next((kind for kind, pairs in pairs_of.items() if len(pairs) < LEAST), None)
    if few is not None:
        raise InputError(
            f"--tasks {name}: the held-out text of {', '.join(data.corpus)} gives {len(pairs_of[few])} pairs of the "
            f"kind {few!r}, and {LEAST} are needed; hold out more with --set data.held_out=, or choose other tasks"
        )
    most = LEAST if os.environ.get(REHEARSAL) else MOST if name == SUITE else ALONE
    chosen = [
        (kind, good, bad)
        for kind, pairs in pairs_of.items()
        for good, bad in sorted(pairs, key=lambda pair: (seed_of(0, "pairs", *pair), pair))[:most]
    ]
    kind_of_pairs, good, bad = (list(column) for column in zip(*chosen, strict=True))
    return PairSet(name, SUITE, good, bad, {"all": ["pairs"] * len(chosen), "kind": kind_of_pairs})


def paragraphs(data: DataSpec, prepared: Path, tuning: bool) -> list[list[str]]:
    """Return the sentences of each held-out paragraph in one half of the held-out text: with `tuning` the first."""
    parts: list[str] = []
    if "docs" in data.corpus:
        parts += [entry.text for entry in halves(built_in_text.entries("test"))[0 if tuning else 1]]
    parts += [part for part in filters.read(prepared) if (seed_of(0, "half", part) % 2 == 0) == tuning]
    lines = dict.fromkeys(line.strip() for part in parts for line in part.splitlines())
    return [of_line for line in lines if (of_line := [s.strip() for s in sentences(line)])]


def sentences(line: str) -> Iterator[str]:
    """Yield the sentences of a line; a part that begins with a lower-case letter belongs to the one before it."""
    current = ""
    for part in BREAK.split(line):
        if current and not part[:1].islower():
            yield current
            current = ""
        current = f"{current} {part}" if current else part
    if current:
        yield current


def is_sentence(text: str) -> bool:
    """Return whether a text ends as a sentence does, and at least 70 % of its characters belong to words."""
    letters = sum(map(len, words_of(text)))
    return END.search(text) is not None and letters >= 0.7 * len(text)


def _each(text: list[list[str]]) -> list[str]:
    """Return the different sentences whose length fits into short rows."""
    every = (s for one in text for s in one if WORDS[0] <= len(words_of(s)) <= WORDS[1])
    return list(dict.fromkeys(s for s in every if is_sentence(s)))


def exchanged(text: list[list[str]]) -> list[Pair]:
    """Return pairs of a sentence and its copy with two neighbouring words exchanged.

    The first word is never exchanged, and no words are exchanged across a comma.
    """
    pairs = []
    for sentence in _each(text):
        words = list(WORD.finditer(sentence))[1:]
        places = [(a, b) for a, b in pairwise(words) if not sentence[a.end() : b.start()].strip()]
        places = [(a, b) for a, b in places if a[0].casefold() != b[0].casefold()]
        if places:
            a, b = places[seed_of(0, "exchange", sentence) % len(places)]
            middle = sentence[a.end() : b.start()]
            pairs.append((sentence, sentence[: a.start()] + b[0] + middle + a[0] + sentence[b.end() :]))
    return pairs


def replaced(text: list[list[str]]) -> list[Pair]:
    """Return pairs of a sentence and its copy with one word replaced by another of similar frequency.

    The first word is never replaced.
    """
    every = _each(text)
    counts = Counter(w for s in every for w in words_of(s)[1:] if w == w.lower())
    order = sorted((w for w in counts if counts[w] >= COUNT), key=lambda w: (-counts[w], seed_of(0, "like", w), w))
    place = {word: number for number, word in enumerate(order)}
    pairs = []
    for sentence in every:
        words = [w for w in list(WORD.finditer(sentence))[1:] if w[0] in place]
        if words and len(order) > LIKE:
            word = words[seed_of(0, "replace", sentence) % len(words)]
            start = min(max(0, place[word[0]] - LIKE // 2), len(order) - LIKE - 1)
            like = [w for w in order[start : start + LIKE + 1] if w != word[0]]
            other = like[seed_of(0, "replacement", sentence) % len(like)]
            pairs.append((sentence, sentence[: word.start()] + other + sentence[word.end() :]))
    return pairs


def reordered(text: list[list[str]]) -> list[Pair]:
    """Return pairs of two short sentences that follow one another, and the same two in the opposite order."""
    pairs: dict[str, str] = {}
    for one in text:
        for a, b in pairwise(one):
            length = len(words_of(a)) + len(words_of(b))
            if a != b and TOGETHER[0] <= length <= TOGETHER[1] and is_sentence(a) and is_sentence(b):
                pairs.setdefault(f"{a} {b}", f"{b} {a}")
    return [(good, bad) for good, bad in pairs.items() if bad not in pairs]


SUITE, PREFIX = "pairs", "pairs:"
KINDS = {"exchange": exchanged, "replace": replaced, "order": reordered}
uses_text = True
reads = {"scorers", "held_out"}
names = [
    (SUITE, SUITE, "accuracy", "which of two sentences is in the held-out text, without fine-tuning"),
    ("pairs:exchange", SUITE, "accuracy",
     "which of two sentences is in the held-out text; the other has two neighbouring words exchanged"),
    ("pairs:replace", SUITE, "accuracy",
     "which of two sentences is in the held-out text; the other has a word of similar frequency"),
    ("pairs:order", SUITE, "accuracy", "which order of two sentences is in the held-out text"),
]  # fmt: skip
