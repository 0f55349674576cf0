"""Linear probes on sentences of made-up words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tagged_made import CPU, WORDS, sentences

from workbench.spec.parts import TasksSpec
from workbench.tasks import linear_probe, minimal_pairs
from workbench.tasks.common.examples import Tagged
from workbench.tasks.linear_probe import LinearProbe

SPEC = TasksSpec(length=24)
__all__ = ["CPU", "SPEC", "WORDS", "by_end", "conllu", "pairs", "sentences", "tagger", "toy_pair_set"]


def by_end(words: list[str]) -> list[int]:
    """Return tagged sentences in which the tag of a word is its second syllable."""
    return [("da", "fe", "go", "ni", "tu").index(word[2:]) for word in words]


def tagger(rule: Callable[[list[str]], list[int]] = by_end, train: int = 120, test: int = 40) -> LinearProbe:
    parts = [Tagged(rows, [rule(words) for words in rows]) for rows in (sentences(train, 1), sentences(test, 2))]
    metrics = ("accuracy", "macro_f1")
    return LinearProbe("linear:toy", "words", tuple("ABCDE"), "accuracy", metrics, parts[0], {"test": parts[1]})


def toy_pair_set(paradigms: int, rows: int = 30) -> minimal_pairs.PairSet:
    """Return pairs whose right sentence has `bada` where the wrong one has `kefe`."""
    texts = [[" ".join(words) for words in sentences(rows, number)] for number in range(paradigms)]
    flat = [text for each in texts for text in each]
    names = [f"paradigm {number}" for number, each in enumerate(texts) for _ in each]
    good, bad = [f"{text} bada" for text in flat], [f"{text} kefe" for text in flat]
    return minimal_pairs.PairSet("toy", "minimal-pairs", good, bad, {"paradigm": names})


def pairs(paradigms: int = 6) -> LinearProbe:
    return linear_probe.of_pairs(toy_pair_set(paradigms))


def conllu(path: Path, count: int, seed: int) -> None:
    rows = []
    for words in sentences(count, seed):
        tags = zip(words, by_end(words), strict=True)
        rows.append("".join(f"{n}\t{word}\t_\t{'ABCDE'[t]}" + "\t_" * 6 + "\n" for n, (word, t) in enumerate(tags, 1)))
    path.write_text("\n".join(rows), encoding="utf-8")
