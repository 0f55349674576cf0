"""Built-in probes: four small tasks made from docstrings, tested on text that pre-training never reads.

The corpus `docs` holds out whole modules, and no held-out paragraph shares eight consecutive words with the
training text. A probe trains on modules that are not held out and is measured on one half of the held-out ones; the
other half is for choosing settings (`halves`).
Classes are balanced, and the sentences of a wrong pair come from right pairs, so that neither sentence alone shows
the answer. Hashes of the texts decide which rows are taken, and every wrong answer: the same on every machine with
the same packages.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from workbench.data import built_in_text
from workbench.data.built_in_text import Entry
from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import cache_root
from workbench.store.cache import read_entry, write_entry
from workbench.tasks.common.contract import OF_TEXTS, HeldOut
from workbench.tasks.common.examples import Examples, Task, held_out, limited

trains = True
TEST_ROWS = 1000  # of a probe at most; fewer if the text gives fewer
TRAIN_SHARE = 0.3  # of the pre-training modules: it gives more than enough sentences, in a third of the time
CLASS_ROWS = 100  # a package with fewer sentences than this in either half does not get a class of its own
WORDS = (6, 40)  # in a sentence
# Replaced by MASKED in the package probe: names that would show the answer, as a word or inside one, and their short
# forms.
LONG, SHORT = "c?python|numpy|pandas|matplotlib|pyplot|scipy|(?:py)?torch", "np|pd|mpl|plt|aten|inductor|dynamo"
NAME = re.compile(rf"{LONG}|(?<![A-Za-z])(?:{SHORT})(?![A-Za-z])", re.IGNORECASE)
MASKED = "library"

BREAK = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[\"'(]?[A-Z])")
PLAIN = re.compile(r"^[\"'(]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"'),.;:!?]*$")

Row = tuple[str, str | None, int]  # first text, second text, target
T = TypeVar("T")


@dataclass(frozen=True)
class Sentence:
    """A sentence, the entry that it comes from, and the sentence that follows it in the same paragraph."""

    text: str
    entry: Entry
    following: str | None


@dataclass(frozen=True)
class Probe:
    """How the rows of one probe are made and measured.

    Where single words help, a few training rows show the differences between encoders best: `train_rows` 1,000 and
    6 epochs. Comparing two texts takes more (docs/log.md).
    """

    name: str
    labels: tuple[str, ...]  # empty: the packages
    metrics: tuple[str, ...]  # the headline metric first
    train_rows: int
    epochs: float
    rows: Callable[[Sequence[Entry], Sequence[Sentence]], list[Row]]
    summary: str


def load(words: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> list[Task]:
    """Return the probes of these names. Raises InputError as `read` does."""
    members = dict.fromkeys(name for word in words for name in (PROBES if word.lower() == "probes" else [word]))
    return [held_out(task, options.held_out) for task in read(members, options.rows)]


def read(names: Iterable[str], limit: int | None = None) -> list[Task]:
    """Return the named probes, measured on one half of the held-out modules.

    Raises InputError if the packages installed here give too little text.
    """
    train, test = built_in_text.entries("train"), built_in_text.entries("test")
    seen = hashlib.sha256(Path(__file__).read_bytes() + repr((train, test)).encode()).hexdigest()[:16]
    tasks, texts = list[Task](), list[tuple[list[Entry], list[Sentence]]]()
    for probe in (PROBES[name] for name in names):  # from the cache, because finding sentences takes seconds
        path = cache_root() / "probes" / f"{probe.name}-{seen}.json"
        raw = read_entry(path)
        if raw is None:
            if not texts:
                shares = ((entry, seed_of(0, "probes", "train", entry.module) / 2**63) for entry in train)
                train_side = [entry for entry, share in shares if share < TRAIN_SHARE]
                texts = [(side, sentences(side)) for side in (train_side, halves(test)[1])]
            labels, *rows = _rows(probe, *(probe.rows(*side) for side in texts))
            raw = {"labels": labels, **{side: asdict(each) for side, each in zip(("train", "test"), rows, strict=True)}}
            write_entry(path, raw)
        examples, tested = Examples(**raw["train"]), {"test": Examples(**raw["test"])}
        metrics, labels = probe.metrics, tuple(raw["labels"])
        task = Task(probe.name, "probes", labels, metrics[0], metrics, probe.epochs, examples, tested)
        tasks.append(limited(task, limit))
    return tasks


def halves(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Divide held-out entries into those to choose settings on and those to test on.

    All entries of a module are on one side, and each side has about half of the text of every package.
    """
    size: dict[tuple[str, str], int] = defaultdict(int)
    for entry in entries:
        size[entry.package, entry.module] += len(entry.text)
    side: dict[tuple[str, str], int] = {}
    weight: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for package, module in sorted(size, key=lambda key: (-size[key], key)):  # the largest first, to the lighter half
        held = weight[package]
        side[package, module] = half = int(held[1] < held[0])
        held[half] += size[package, module]
    first, second = ([entry for entry in entries if side[entry.package, entry.module] == half] for half in (0, 1))
    return first, second


def _rows(probe: Probe, train_rows: list[Row], test_rows: list[Row]) -> tuple[tuple[str, ...], Examples, Examples]:
    seen = {_key(text) for row in train_rows for text in _texts(row)} - {""}
    test_rows = [row for row in test_rows if seen.isdisjoint(map(_key, _texts(row)))]
    labels = probe.labels
    if not labels:
        packages = built_in_text.PACKAGES
        counts = [Counter(row[2] for row in rows) for rows in (train_rows, test_rows)]
        labels = tuple(p for n, p in enumerate(packages) if min(count[n] for count in counts) >= CLASS_ROWS)
        train_rows, test_rows = (
            [(a, b, labels.index(packages[target])) for a, b, target in rows if packages[target] in labels]
            for rows in (train_rows, test_rows)
        )
    parts = [_balanced(train_rows, len(labels), probe.train_rows), _balanced(test_rows, len(labels), TEST_ROWS)]
    if len(labels) < 2 or min(map(len, parts)) < CLASS_ROWS:
        raise InputError(
            f"the probe {probe.name!r} finds too little text in the packages installed here; "
            f"install numpy, pandas, matplotlib and scipy, or choose other tasks"
        )
    return labels, _examples(parts[0]), _examples(parts[1])


def _balanced(rows: list[Row], labels: int, most: int) -> list[Row]:
    piles = [_hashed([row for row in rows if row[2] == label], _texts) for label in range(labels)]
    each = min(most // labels, *map(len, piles)) if piles else 0
    return _hashed([row for pile in piles for row in pile[:each]], lambda row: ("order", *_texts(row)))


def _texts(row: Row) -> tuple[str, ...]:
    return row[0], row[1] or ""


def _examples(rows: list[Row]) -> Examples:
    second = [row[1] or "" for row in rows] if rows[0][1] is not None else None
    return Examples([row[0] for row in rows], second, [row[2] for row in rows])


def _hashed(items: Iterable[T], key: Callable[[T], tuple[str, ...]]) -> list[T]:
    return sorted(items, key=lambda item: (seed_of(0, "probes", *key(item)), key(item)))


def _key(text: str) -> str:
    return " ".join(built_in_text.words(text))


# ---- text to sentences ----


def sentences(entries: Iterable[Entry]) -> list[Sentence]:
    """Return each different English sentence of 6 to 40 words."""
    unique: dict[str, Sentence] = {}
    for entry in entries:
        for paragraph in entry.text.split("\n"):
            parts = BREAK.split(paragraph)
            for text, following in zip(parts, [*parts[1:], None], strict=True):
                if _is_sentence(text):
                    after = following if following and _is_sentence(following) else None
                    unique.setdefault(_key(text), Sentence(text, entry, after))
    return list(unique.values())


def _is_sentence(text: str) -> bool:
    words = text.split()
    plain = sum(bool(PLAIN.match(word)) for word in words)
    return WORDS[0] <= len(words) <= WORDS[1] and text[0].isupper() and text[-1] in ".!?" and plain >= 0.75 * len(words)


# ---- the four probes ----


def package_rows(entries: Sequence[Entry], found: Sequence[Sentence]) -> list[Row]:
    """Return sentences with the package that each comes from, its names masked."""
    return [(NAME.sub(MASKED, s.text), None, built_in_text.PACKAGES.index(s.entry.package)) for s in found]


def order_rows(entries: Sequence[Entry], found: Sequence[Sentence]) -> list[Row]:
    """Return sentences, every other one with its words in another order; no sentence occurs in both orders."""
    rows: list[Row] = []
    for index, sentence in enumerate(_hashed(found, lambda s: ("order", s.text))):
        mixed = disturbed(sentence.text) if index % 2 else sentence.text
        if mixed is not None:
            rows.append((mixed, None, 1 - index % 2))
    return rows


def disturbed(text: str) -> str | None:
    """Return the sentence with its inner words shuffled; None if that cannot change it.

    The first and the last word keep their places, as does the full stop.
    """
    first, *inner, last = text.split()
    if len(inner) < 4:
        return None
    random = Random(seed_of(0, "disturbed", text))
    for _ in range(10):
        mixed = random.sample(inner, len(inner))
        if sum(a.lower() != b.lower() for a, b in zip(mixed, inner, strict=True)) > len(inner) // 2:
            return " ".join([first, *mixed, last])
    return None


def next_rows(entries: Sequence[Entry], found: Sequence[Sentence]) -> list[Row]:
    """Return pairs of a sentence and the sentence after it (1), or a sentence from another docstring (0)."""
    return _paired([(s.text, s.following, s.entry) for s in found if s.following])


def signature_rows(entries: Sequence[Entry], found: Sequence[Sentence]) -> list[Row]:
    """Return pairs of a function's summary and its signature, or the signature of another function."""
    pairs = []
    for entry in entries:
        summary = BREAK.split(entry.text.split("\n")[0])[0]
        if entry.signature.count("(") and "__" not in entry.signature and 4 <= len(summary.split()) <= WORDS[1]:
            pairs.append((summary, entry.signature, entry))
    return _paired(pairs)


def _paired(pairs: list[tuple[str, str, Entry]]) -> list[Row]:
    """Return half of the pairs as they are (1), and half with the second text of the next pair (0).

    Every first and every second text occurs once, so that neither alone shows the answer.
    """
    unique: dict[str, tuple[str, str, Entry]] = {}
    for pair in pairs:
        unique.setdefault(_key(pair[1]), pair)
    ordered = _hashed({_key(p[0]): p for p in unique.values()}.values(), lambda p: (p[0], p[1]))
    half = len(ordered) // 2
    right, wrong = ordered[:half], ordered[half : 2 * half]
    mixed = [
        (first, second, 0)
        for (first, _, entry), (_, second, other) in zip(wrong, [*wrong[1:], *wrong[:1]], strict=True)
        if (entry.module, entry.name) != (other.module, other.name)
    ]
    return [*((first, second, 1) for first, second, _ in right), *mixed]


_PROBES = (
    Probe("package", (), ("accuracy",), 1000, 6.0, package_rows, "which package a sentence comes from"),
    Probe("order", ("disturbed", "intact"), ("matthews", "accuracy"), 1000, 6.0, order_rows,
          "is the sentence intact, or has its word order been disturbed"),
    Probe("next", ("no", "yes"), ("accuracy",), 3000, 3.0, next_rows, "do two sentences follow one another"),
    Probe("signature", ("no", "yes"), ("accuracy",), 3000, 3.0, signature_rows,
          "does this summary belong to this signature"),
)  # fmt: skip
PROBES = {probe.name: probe for probe in _PROBES}
groups = ("probes",)
reads = OF_TEXTS
names = [(probe.name, "probes", probe.metrics[0], probe.summary) for probe in PROBES.values()]
