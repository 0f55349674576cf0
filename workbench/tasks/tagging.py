"""A set of tagged sentences as a task of fine-tuning."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.data import tagged_sentences, tagged_sets
from workbench.data.streams import packed_or_not
from workbench.data.tagged_sentences import Sentence, as_iob2, deviations, marks_spans, scheme_of
from workbench.errors import InputError, plural
from workbench.spec.host import Host
from workbench.spec.parts import DATA_KEYS, TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import user_path
from workbench.tasks.common.baselines import by_word, cached
from workbench.tasks.common.contract import FINE_TUNING, OF_TEXTS, Cost, EncoderFacts, HeldOut, Measure, Model, Scores
from workbench.tasks.common.cost import SPECIAL, tuning_cost
from workbench.tasks.common.data_rows import aside, fingerprint, random_order, warned
from workbench.tasks.common.examples import Tagged, numbered
from workbench.tasks.common.metrics import gold_and_predicted, hits_of, metric, span_scores, unit_scores
from workbench.tasks.common.table_files import here_or_fetched, is_here

VERSION = 1  # increase it when the computation of a baseline changes
UNUSED = ("lm_weight", "doubled")  # settings of fine-tuning that concern texts and not words


@dataclass(frozen=True)
class Tagging(Measure):
    """Measure of an encoder that is fine-tuned to tag words.

    The first `known` of `labels` are the tags of training words; the others occur in tests only, where they are never
    predicted. `scheme` is the scheme of the files if the tags mark spans, and "" for parts of speech; the labels of
    spans are in IOB2 whatever the scheme. The headline metric is computed on the first of `tests`. `notes` are
    sentences on what is unusual about the data.
    """

    name: str
    labels: tuple[str, ...]
    known: int
    scheme: str
    train: Tagged
    tests: Mapping[str, Tagged]
    notes: tuple[str, ...] = ()
    epochs: float = 3.0
    suite = "tagging"
    act = FINE_TUNING

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "entity_f1" if self.scheme else "accuracy"

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        parts = [[name, part.words, part.targets] for name, part in {"train": self.train, **self.tests}.items()]
        return fingerprint([self.name, self.labels, self.known, bool(self.scheme)], *parts)

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        return spec.model_dump(mode="json", exclude={*DATA_KEYS, *UNUSED}) | {"epochs": spec.epochs or self.epochs}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return the score of the most frequent tag, and of the most frequent tag of each word."""

        def compute() -> dict[str, float]:
            rows = next(iter(self.tests.values()))
            guesses = zip(("majority", "word-lookup"), by_word(self.train, rows), strict=True)
            return {name: points(self, rows, predicted)[self.metric] for name, predicted in guesses}

        return cached(f"{self.fingerprint}-tagging-{VERSION}", compute, cache)

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of one fine-tuning, whose batches count windows."""
        from workbench.tasks.common.token_rows import cuts

        room = min(options.length, spec.encoder.positions) - SPECIAL

        def windows(pieces: list[int]) -> list[int]:
            return [min(start + room, pieces[0]) - start + SPECIAL for start, _, _ in cuts(pieces[0], room)]

        train, *tests = ([[" ".join(words)] for words in part.words] for part in (self.train, *self.tests.values()))
        return tuning_cost(self, spec, options, tokenizer, train, tests, windows, windows=True)

    def measure(self, model: Model, host: Host) -> Scores:
        from workbench.tasks._tagger import tag

        return tag(self, model, host)

    def reading(self, options: TasksSpec, facts: EncoderFacts) -> tuple[str, dict[str, Any]]:
        length = facts.cut(options.length)
        return f"sentences of tagged words read in windows of {length} tokens", {"length": length}


def limited(task: Tagging, spec: TasksSpec) -> Tagging:
    """Return the task tested on a share `spec.held_out` of its training sentences, if any, with `spec.rows` of them."""
    if spec.held_out:
        kept, tested = aside(random_order("held out", task.name, len(task.train)), spec.held_out)
        tests = {"held-out": task.train.take(sorted(tested))}
        task = replace(task, train=task.train.take(sorted(kept)), tests=tests, notes=())
    if spec.rows is not None and spec.rows < len(task.train):
        kept = random_order("rows", task.name, len(task.train))[: spec.rows]
        task = replace(task, train=task.train.take(sorted(kept)))
    return task


# ---- names ----

PREFIX = "tag:"
KEY = "--set tasks.tagging"
PARTS = {"train", "dev", "test"}
trains = True
ENTITIES = "ner_tags"  # the hub's name of the column of entities
# Published sets: possible names of the training file, all files in words, the column of the tags, and a summary.
NAMED = {
    "ner-dane": (
        ("ddt.train.conllu",), "ddt.train.conllu, ddt.dev.conllu and ddt.test.conllu", "ner",
        "named entities in Danish, DaNE (Hvingelby et al. 2020)",
    ),
    "conll2003": (
        ("eng.train", "train.txt"), "eng.train, eng.testa and eng.testb, or train.txt, valid.txt and test.txt", "",
        "named entities in English news (Tjong Kim Sang and De Meulder 2003)",
    ),
}  # fmt: skip
names = [(name, "tagging", "entity_f1", summary) for name, (*_, summary) in NAMED.items()]


def accepts(word: str) -> bool:
    """Return whether a word names a file or folder of tagged sentences."""
    return word.lower().startswith(PREFIX)


def reads(word: str, options: TasksSpec) -> set[str]:
    """Return the settings that tagging reads; `lm_weight` is accepted and changes nothing."""
    return {*OF_TEXTS, *(["tagging"] if word.lower() in NAMED else [])}


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether a named set is downloaded from the hub."""
    return word.lower() in NAMED and options.tagging is not None and not is_here(options.tagging, KEY)


def load(names: Sequence[str], spec: TasksSpec, text: HeldOut | None = None) -> list[Tagging]:
    """Return the tasks of these names, after warnings of what is unusual about their data. Raises InputError."""
    tasks = [_named(name.lower(), spec) if name.lower() in NAMED else _at_path(name) for name in names]
    return [limited(replace(task, notes=warned(task.name, task.notes)), spec) for task in tasks]


def _at_path(name: str) -> Tagging:
    text, column = name[len(PREFIX) :], ""
    if "#" in text and not user_path(text, "--tasks").exists():
        text, _, column = text.rpartition("#")
    if not text:
        raise InputError(f"--tasks {name}: give a file or folder of tagged sentences, such as tag:ud-train.conllu")
    path = user_path(text, "--tasks")
    files = tagged_sets.files_of(path)
    conllu = tagged_sentences.format_of(next(iter(files.values()))) == tagged_sentences.CONLLU
    kind = (column or ("pos" if conllu else "")).lower()
    parquet = all(file.suffix == tagged_sets.SUFFIX for file in files.values())
    title = path.resolve().name if parquet else tagged_sets.title(files)
    return load_set(f"{PREFIX}{title}{'-' if kind else ''}{kind}", path, column)


def _named(name: str, spec: TasksSpec) -> Tagging:
    """Return a named set from the folder `tasks.tagging`, or the folder of its name in there. Raises InputError."""
    trained, its_files, column, _ = NAMED[name]
    lacking = InputError(
        f"task {name} is not available: {KEY}=DIR must name a folder with its files {its_files}, or a copy of it in "
        f"Parquet (train, validation and test with the columns tokens and ner_tags), here or by its name on the hub"
    )
    if spec.tagging is None:
        raise lacking
    patterns = ["*.parquet", "**/*.parquet"]
    folder = here_or_fetched(spec.tagging, patterns, KEY, f"a folder with the files {its_files}")
    if isinstance(folder, str):
        raise InputError(f"task {name} is not available: {folder}")
    places = itertools.product((folder / name, folder), trained)
    file = next((path for place, file in places if (path := packed_or_not(place / file))), None)
    if file is not None and set(tagged_sets.files_of(file)) == PARTS:
        return load_set(name, file, column)
    for place in (folder / name, folder):
        if file is None and place.is_dir() and set(tagged_sets.of_hub(place)) == PARTS:
            return load_set(name, place, ENTITIES)
    raise lacking


# ---- reading sentences ----

MOST = 5  # tags that a sentence lists


def load_set(name: str, path: Path, column: str) -> Tagging:
    """Return the set of tagged sentences at a path as a task. Raises InputError naming the file and the line."""
    files = tagged_sets.files_of(path)
    read = {
        part: (tagged_sets if file.suffix == tagged_sets.SUFFIX else tagged_sentences).read_raw(file, column)
        for part, file in files.items()
    }
    whole, scheme = [sentence for sentences in read.values() for sentence in sentences], ""
    if spans := marks_spans(tag for sentence in whole for tag in sentence.tags):
        for part, sentences in read.items():
            tagged_sentences.refuse_untyped(files[part], sentences)
        scheme = scheme_of([sentence.tags for sentence in whole])
    on_dev = tagged_sets.trains_on_dev(files)
    notes = [f"{files['dev'].name} is trained on, as there is no training file"] if on_dev else []
    notes += [note for part, file in files.items() for note in _faults(file, read[part], scheme)]
    usable = {
        part: [replace(each, tags=as_iob2(each.tags)) if spans else each for each in sentences if each.words]
        for part, sentences in read.items()
    }
    parts = tagged_sets.sides(path, usable)
    labels, train, first = tagged_sets.labels_of(path, parts), parts.pop("train"), next(iter(files.values()))
    for part, sentences in parts.items():
        notes += _odd_tests(part, files.get(part) or first, sentences, train)
    tests = {part: numbered(sentences, labels) for part, sentences in parts.items()}
    known = len({tag for sentence in train for tag in sentence.tags})
    return Tagging(name, labels, known, scheme, numbered(train, labels), tests, tuple(notes))


def _faults(file: Path, sentences: Sequence[Sentence], scheme: str) -> Iterator[str]:
    """Yield a sentence on sentences without words, and one on tags that do not follow the scheme."""
    empty = [sentence.lines[0] for sentence in sentences if not sentence.words]
    if empty:
        yield f"{file.name}, first at line {empty[0]}: {plural(len(empty), 'sentence')} without words, left out"
    odd = ((each, place) for each in sentences if scheme for place in deviations(each.tags, scheme))
    if wrong := [(each.lines[place], each.tags[place]) for each, place in odd]:
        follow = "tag does not follow" if len(wrong) == 1 else "tags do not follow"
        what = f"{len(wrong):,} {follow} {scheme} ({wrong[0][1]}), read as conlleval reads them"
        yield f"{file.name}, first at line {wrong[0][0]}: {what}"


def _odd_tests(part: str, file: Path, sentences: Sequence[Sentence], train: Sequence[Sentence]) -> Iterator[str]:
    """Yield warnings: a test part has tags that training lacks, or sentences that are also training sentences."""
    known, trained = {tag for each in train for tag in each.tags}, {each.words for each in train}
    places = [place for each in sentences for place in zip(each.lines, each.tags, strict=True)]
    if words := [(line, tag) for line, tag in places if tag not in known]:
        tags = list(dict.fromkeys(tag for _, tag in words))
        shown = ", ".join(tags[:MOST] + ([f"{len(tags) - MOST} more"] if len(tags) > MOST else []))
        have = "has a tag" if len(words) == 1 else "have tags"
        what = f"{plural(len(words), 'word')} of {part} {have} that no training word has ({shown}), counted as errors"
        yield f"{file.name}, first at line {words[0][0]}: {what}"
    if both := [each for each in sentences if each.words in trained]:
        are = "is also a training sentence" if len(both) == 1 else "are also training sentences"
        counts = f"{len(both):,} of {plural(len(sentences), 'sentence')} of {part}"
        yield f"{file.name}, first at line {both[0].lines[0]}: {counts} {are}, word by word"


# ---- scores and predictions ----


def points(task: Tagging, rows: Tagged, predicted: Any) -> dict[str, float]:
    """Return the metrics, times 100, of predicted label numbers (words,); the headline comes first."""
    import numpy as np

    gold, guess = gold_and_predicted(task.labels, rows, predicted)
    names = ("accuracy",) if task.scheme else ("accuracy", "macro_f1")
    guessed, true = (np.array([*itertools.chain.from_iterable(tags)]) for tags in (guess, gold))
    of_words = {name: metric(name, guessed, true) for name in names}
    of_spans = {f"entity_{name}": value for name, value in span_scores(gold, guess).items()} if task.scheme else {}
    return {name: 100 * value for name, value in (of_spans | of_words).items()}


def by_type(task: Tagging, rows: Tagged, predicted: Any) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1, times 100, of each type of span or each tag, with the numbers behind them."""
    hits = hits_of(*gold_and_predicted(task.labels, rows, predicted), bool(task.scheme))
    return {
        kind: {name: 100 * value for name, value in unit_scores(right, guessed, gold).items()}
        | {"gold": gold, "predicted": guessed}
        for kind, (right, guessed, gold) in hits.items()
    }


def columns(task: Tagging, rows: Tagged, predicted: Any) -> str:
    """Return word, gold tag and predicted tag of each word in a line, and a blank line after each sentence.

    Blanks inside a word are written as underscores, since blanks separate the columns.
    """
    lines = []
    for words, true, guess in zip(rows.words, *gold_and_predicted(task.labels, rows, predicted), strict=True):
        lines += [" ".join("_".join(field.split()) for field in each) for each in zip(words, true, guess, strict=True)]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)
