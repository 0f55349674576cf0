"""Minimal pairs made from text that pre-training did not see, in any language and without labels.

Three kinds, each a sentence and what became of it: `exchange`, two neighbouring words exchanged; `replace`, a word
replaced by one of like frequency; `order`, two sentences that follow one another, exchanged. Which sentences, words and
replacements are taken is decided by hashes of the texts. The headline is the accuracy over all pairs, so that a kind of
which a text gives few adds no more noise than its share. `pairs:replace` and so on are more pairs of one kind alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from workbench.data import docs, held_out
from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.spec.parts import DataSpec
from workbench.tasks.finetuning.probes import halves
from workbench.tasks.zero_shot.minimal_pairs import PairSet, sealed

MOST, LEAST = 1000, 100  # pairs of a kind
ALONE = 4000  # pairs at most where one kind is asked for by its name
WORDS = (5, 16)  # of a sentence; rows of `nano` have 32 tokens
TOGETHER = (8, 20)  # words of two sentences that are exchanged
COUNT = 3  # a word is replaced, and replaces, if it occurs as often as this
LIKE = 24  # places in the order of frequency within which a replacement is sought
# Words, or single characters of scripts that put no blanks between words.
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\d_]+(?:['’\-][^\W\d_]+)*")
BREAK = re.compile(r"(?<=[.!?…।؟])\s+|(?<=[。！？])")
END = re.compile(r"[.!?…。！？।؟][\"'”’»)\]]*$")

Pair = tuple[str, str]  # good, bad


def load(name: str, data: DataSpec, prepared: Path, tuning: bool) -> PairSet:
    """Return the pairs of one of NAMES of a prepared corpus, from the half of its held-out text that is reported on.

    With `tuning` they are from the other half. Raises InputError where too little text was held out.
    """
    text = paragraphs(data, prepared, tuning)
    kinds = KINDS if name == SUITE else (name.removeprefix(PREFIX),)
    made = {kind: KINDS[kind](text) for kind in kinds}
    few = next((kind for kind, pairs in made.items() if len(pairs) < LEAST), None)
    if few is not None:
        raise InputError(
            f"--tasks {name}: the held-out text of {', '.join(data.corpus)} gives {len(made[few])} pairs of the kind "
            f"{few!r}, and {LEAST} are needed; hold out more with --set data.held_out=, or choose other tasks"
        )
    most = MOST if name == SUITE else ALONE
    chosen = [(kind, pair) for kind, pairs in made.items() for pair in hashed(pairs)[:most]]
    return sealed(
        name,
        SUITE,
        [good for _, (good, _) in chosen],
        [bad for _, (_, bad) in chosen],
        {"all": ["pairs"] * len(chosen), "kind": [kind for kind, _ in chosen]},
    )


def paragraphs(data: DataSpec, prepared: Path, tuning: bool) -> list[list[str]]:
    """Return the sentences of each paragraph that was held out, those of one half."""
    found: list[str] = []
    if "docs" in data.corpus:
        found += [entry.text for entry in halves(docs.entries("test"))[0 if tuning else 1]]
    found += [part for part in held_out.read(prepared) if (seed_of(0, "half", part) % 2 == 0) == tuning]
    lines = dict.fromkeys(line.strip() for part in found for line in part.splitlines())
    return [kept for line in lines if (kept := [s.strip() for s in sentences(line)])]


def sentences(line: str) -> Iterator[str]:
    """Yield the sentences of a line; what begins with a small letter is none of its own."""
    waiting = ""
    for part in BREAK.split(line):
        if waiting and not part[:1].islower():
            yield waiting
            waiting = ""
        waiting = f"{waiting} {part}" if waiting else part
    if waiting:
        yield waiting


def is_sentence(text: str) -> bool:
    """Return whether this ends as a sentence does, and holds hardly anything but words."""
    letters = sum(map(len, WORD.findall(text)))
    return END.search(text) is not None and letters >= 0.7 * len(text)


def _each(text: list[list[str]]) -> list[str]:
    """Return each sentence of a length that suits short rows, once."""
    every = (s for one in text for s in one if WORDS[0] <= len(WORD.findall(s)) <= WORDS[1])
    return list(dict.fromkeys(s for s in every if is_sentence(s)))


def exchanged(text: list[list[str]]) -> list[Pair]:
    """Return each sentence with two neighbouring words exchanged, never the first and none across a comma."""
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
    """Return each sentence with one word, never the first, replaced by another that is about as frequent."""
    every = _each(text)
    counts = Counter(w for s in every for w in WORD.findall(s)[1:] if w == w.lower())
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
    """Return two short sentences that follow one another, and the same the other way round."""
    found: dict[str, str] = {}
    for one in text:
        for a, b in pairwise(one):
            length = len(WORD.findall(a)) + len(WORD.findall(b))
            if a != b and TOGETHER[0] <= length <= TOGETHER[1] and is_sentence(a) and is_sentence(b):
                found.setdefault(f"{a} {b}", f"{b} {a}")
    return [(good, bad) for good, bad in found.items() if bad not in found]


def hashed(pairs: Iterable[Pair]) -> Sequence[Pair]:
    """Return the pairs in an order that hashes of their texts decide."""
    return sorted(pairs, key=lambda pair: (seed_of(0, "pairs", *pair), pair))


SUITE, PREFIX = "pairs", "pairs:"
KINDS = {"exchange": exchanged, "replace": replaced, "order": reordered}
SUMMARIES = {
    SUITE: "which sentence is as the held-out text has it, without fine-tuning",
    "pairs:exchange": "the same, of pairs with two neighbouring words exchanged",
    "pairs:replace": "the same, of pairs with a word replaced by one of like frequency",
    "pairs:order": "the same, of two sentences in either order",
}
NAMES = tuple(SUMMARIES)
