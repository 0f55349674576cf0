"""Pairs of sentences with their similarity, or queries with their relevant documents, as plain data.

With `tasks.embeddings=contrastive` (mean pooling) or `contrastive-cls`, the encoder is fine-tuned before it is
measured, with the loss of sentence-transformers that LOSSES names.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.data.formats import delimited_rows, json_rows
from workbench.data.streams import lines, packed_or_not
from workbench.errors import InputError, plural
from workbench.progress import warn_once
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.spec.scoring import TESTED
from workbench.store.atomic import user_path
from workbench.tasks import glue, table
from workbench.tasks.common import table_files
from workbench.tasks.common.baselines import cached
from workbench.tasks.common.contract import FINE_TUNING, TUNING, Cost, EncoderFacts, HeldOut, Measure, Model, Scores
from workbench.tasks.common.cost import reading_cost, tuning_cost
from workbench.tasks.common.data_rows import fingerprint, first_of, random_order, warned
from workbench.tasks.common.examples import Examples
from workbench.tasks.common.table_files import FORMATS, Line, checked_text, headed

VERSION = 1  # increase it when the computation of a score changes
POOLINGS = ("mean", "cls")  # the headline is the score by the first
SIMILARITY, RETRIEVAL = "similarity", "retrieval"  # suites
LOSSES = {SIMILARITY: "CoSENTLoss", RETRIEVAL: "MultipleNegativesRankingLoss"}
SCALE = 20.0  # by which both losses multiply cosines, sentence-transformers' default
EPOCHS = 3.0
USED = (
    "embeddings", "lr", "layer_decay", "extra_decay", "weight_decay", "warmup", "batch", "length", "dropout", "clip",
    "overlap", "bias_correction", "rows",
)  # fmt: skip


@dataclass(frozen=True)
class Relevant:
    """Queries and documents by their ids, and for each query the grade of each relevant document, above 0.

    A document with a grade may be absent from the collection; it counts as never found.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    grades: Mapping[str, Mapping[str, float]]

    def __len__(self) -> int:
        return len(self.grades)

    def texts(self) -> Iterator[str]:
        """Yield every text that is read: the queries with relevant documents, and all documents."""
        yield from (self.queries[query] for query in self.grades)
        yield from self.documents.values()

    def pairs(self) -> list[tuple[str, str]]:
        """Return each query with each of its relevant documents that the collection has."""
        return [(self.queries[query], self.documents[document]) for query, document in self._places]

    def take(self, rows: Sequence[int]) -> Relevant:
        """Return the collection with the relevance of the pairs with these numbers alone."""
        grades: dict[str, dict[str, float]] = {}
        for query, document in (self._places[row] for row in rows):
            grades.setdefault(query, {})[document] = self.grades[query][document]
        return replace(self, grades=grades)

    @functools.cached_property
    def _places(self) -> list[tuple[str, str]]:
        return [(query, each) for query, grades in self.grades.items() for each in grades if each in self.documents]


@dataclass(frozen=True)
class Embedding(Measure):
    """Measure of an encoder's embeddings, frozen or fine-tuned on `train`.

    Targets of pairs of sentences say how similar their meanings are, in any unit. The headline metric is computed on
    the first of `tests`. `notes` are sentences on what is odd about the data.
    """

    name: str
    suite: str
    tests: Mapping[str, Examples | Relevant]
    notes: tuple[str, ...] = ()
    train: Examples | Relevant | None = None

    @property
    def act(self) -> str:  # type: ignore[override]
        return "embedding" if self.train is None else FINE_TUNING

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "spearman" if self.suite == SIMILARITY else "ndcg_10"

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        parts: list[Any] = []
        for name, part in {**self.tests, **({} if self.train is None else {"train": self.train})}.items():
            if isinstance(part, Examples):
                parts.append([name, [part.first, part.second, part.targets]])
                continue
            grades = [(query, list(each.items())) for query, each in part.grades.items()]
            parts.append([name, [list(part.queries.items()), list(part.documents.items()), grades]])
        return fingerprint([self.name, self.suite], *parts)

    def texts(self) -> list[str]:
        """Return the different texts of all test parts."""
        return list(dict.fromkeys(text for part in self.tests.values() for text in part.texts()))

    def settings(self, options: TasksSpec) -> dict[str, Any]:
        if self.train is None:
            return {"length": options.length, "poolings": list(POOLINGS), "version": VERSION}
        return {name: getattr(options, name) for name in USED} | {
            "epochs": options.epochs or EPOCHS, "loss": LOSSES[self.suite], "scale": SCALE, "version": VERSION,
        }  # fmt: skip

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return what chance gives, and tf-idf vectors of words."""

        def compute() -> dict[str, float]:
            from workbench.tasks._embedding_vectors import word_baselines

            return word_baselines(next(iter(self.tests.values())))

        return cached(f"{self.fingerprint}-tf-idf-{VERSION}", compute, cache)

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of reading every text, or of one fine-tuning with a test before and after it."""
        if self.train is None:
            return Cost(reading_cost(self.fingerprint, self.texts(), spec, options, tokenizer))
        train = [list(pair) for pair in self.train.pairs()]
        tests = [[[text] for text in part.texts()] for part in self.tests.values()]
        return tuning_cost(self, spec, options, tokenizer, train, tests, passes=2)

    def measure(self, model: Model, host: Host) -> Scores:
        from workbench.tasks import _embedding_vectors

        compute = _embedding_vectors.embed if self.train is None else _embedding_vectors.tune_and_embed
        return compute(self, model, host)

    def reading(self, options: TasksSpec, facts: EncoderFacts) -> tuple[str, dict[str, Any]]:
        length = facts.cut(options.length)
        return f"texts of pairs cut to {length} tokens, each one embedding", {"length": length}


# ---- names ----

STS = "STS-B"
NAMED = f"{SIMILARITY}:{STS}"
LIBRARY = "sentence_transformers"
NUMBERS = ("relatedness_score", "similarity", *table.LABELS)  # usual names of the column of numbers
LEAST = 3  # pairs, below which no correlation says anything
names = [
    (NAMED, SIMILARITY, "spearman",
     "how similar two sentences are, by the cosine of their embeddings, frozen or fine-tuned"),
    (f"{SIMILARITY}:FILE", SIMILARITY, "spearman", "the same, from a table of your own with two texts and a number"),
    (f"{RETRIEVAL}:DIR", RETRIEVAL, "ndcg_10", "which documents answer a query, by embeddings; a folder as BEIR's"),
]  # fmt: skip


def accepts(word: str) -> bool:
    """Return whether a word names a table of similar sentences, or a collection for retrieval."""
    return word.lower().startswith((f"{SIMILARITY}:", f"{RETRIEVAL}:"))


def reads(word: str, options: TasksSpec) -> set[str]:
    """Return the settings that embeddings read."""
    more = {*table.COLUMNS} if word.lower().endswith(FORMATS) else {"glue"} if word == NAMED else set()
    return {"embeddings", "length", "held_out", *more, *({*TUNING, "rows"} if trains(options) else ())}


def trains(options: TasksSpec) -> bool:
    """Return whether encoders are fine-tuned before their embeddings are measured."""
    return options.embeddings != "frozen"


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether a word selects a task of GLUE, whose files are downloaded."""
    return word == NAMED and glue.downloads(word, options)


def load(words: Sequence[str], spec: TasksSpec, text: HeldOut | None = None) -> list[Embedding]:
    """Return the tasks of these names. Raises InputError."""
    if spec.held_out:
        raise InputError(
            f"--tasks {words[0]}: a search cannot choose settings by the rows that a report shows; use --tasks pairs"
        )
    if trains(spec) and importlib.util.find_spec(LIBRARY) is None:
        raise InputError(
            f"tasks.embeddings={spec.embeddings} needs the package sentence-transformers, which is not installed: "
            f"pip install 'encoder-workbench[embeddings]', or leave the setting out for frozen embeddings"
        )
    tasks = [_task(word, spec) for word in words]
    for task in tasks:
        if task.suite == RETRIEVAL and task.train is not None:
            from workbench.tasks._embedding_vectors import apart

            next(apart(task.train.pairs(), spec.batch, 0))  # raises InputError if its pairs make no batch
    for task in tasks:
        warned(task.name, task.notes)
    return tasks


def _task(name: str, spec: TasksSpec) -> Embedding:
    suite, _, rest = name.partition(":")
    path = user_path(rest, "--tasks") if rest else Path()
    notes: list[str] = []
    parts: Mapping[str, Examples | Relevant]
    if name == NAMED:
        task = glue.read_one(STS, spec.glue, NAMED)
        parts = {**task.tests, **({"train": task.train} if trains(spec) else {})}
    elif suite.lower() == RETRIEVAL:
        if not rest or not path.is_dir():
            raise InputError(f"--tasks {name}: give a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
        parts, notes = read(path, trains(spec))
        name = f"{RETRIEVAL}:{path.resolve().name}"
    else:
        if not path.is_file() or not path.name.lower().endswith(FORMATS):
            raise InputError(f"--tasks {name}: give {STS}, or a table ({', '.join(FORMATS)}) of two texts and a number")
        parts, notes = _of_table(path, spec)
        name = f"{SIMILARITY}:{table.task_title(path)}"
    tests = {part: rows for part, rows in parts.items() if part != "train"}
    train, rows = parts.get("train"), spec.rows
    if train is not None and rows is not None and rows < (count := len(train.pairs())):
        train = train.take(sorted(random_order("rows", name, count)[:rows]))
    return Embedding(name, name.partition(":")[0], tests, tuple(notes), train)


def _asked_before(train: Relevant, parts: Mapping[str, Relevant]) -> list[str]:
    """Return a warning if test queries have the same text as training queries."""
    known = {train.queries[query] for query in train.grades}
    asked = {query for part in parts.values() for query in part.grades}
    again = sorted(query for query in asked if train.queries[query] in known)
    have = f"{len(again):,} {'has' if len(again) == 1 else 'have'} the text of one to train on"
    score = f"so the score is partly one of memory: {first_of(again)}"
    return [f"of the {len(asked):,} queries to test on, {have}, {score}"] if again else []


def _of_table(path: Path, spec: TasksSpec) -> tuple[dict[str, Examples], list[str]]:
    """Return the parts of a table, those to test on first, and sentences on what is odd about it. Raises InputError.

    Without training, they are the rows to test on if it or the files beside it have some, else all of its rows.
    """
    files, spec = table.siblings(path), table.with_columns(path, spec, NUMBERS)
    lines = [line for part, file in files.items() for line in table.lines_of(file, spec, part, NUMBERS)]
    notes: list[str] = []
    if trains(spec):
        sides = table.parts_of(lines, "regression", path, None)
        notes = table_files.repeated(sides)
        parts = {part: sides[part] for part in (*TESTED, "train") if part in sides}
    else:
        tested = [part for part in TESTED if any(line.part == part for line in lines)]
        parts = {part: [line for line in lines if line.part == part] for part in tested} or {"all": lines}
    return {part: _similar(path, part, rows) for part, rows in parts.items()}, notes


def _similar(path: Path, part: str, rows: Sequence[Line]) -> Examples:
    """Return rows of a table as pairs. Raises InputError unless they are pairs with numbers that vary."""
    targets = []
    for line in rows:
        if len(line.texts) != 2:
            raise InputError(
                f"{path} has one column of texts, and similarity needs two; name the other: --set tasks.pair="
            )
        number = table_files.number_of(line.label)
        if number is None or not math.isfinite(number):
            raise InputError(f"{line.where}: label {line.label!r} is not a number, as similarity needs")
        targets.append(number)
    if len(rows) < LEAST or len(set(targets)) < 2:
        fault = f"{len(rows)} pairs" if len(rows) < LEAST else "the same number in every row"
        raise InputError(f"{path} has {fault} in part {part!r}, and a correlation needs {LEAST} pairs that differ")
    return table_files.examples_of(rows, targets)


# ---- a collection for retrieval in BEIR's layout ----
#     DIR/corpus.jsonl     {"_id": "d1", "title": "...", "text": "..."}, or corpus.tsv with a header of these names
#     DIR/queries.jsonl    {"_id": "q1", "text": "..."}, or queries.tsv
#     DIR/qrels/test.tsv   query-id, corpus-id, score, with a header; or qrels/dev.tsv, or qrels.tsv
#     DIR/qrels/train.tsv  the same of queries to train on, read only where embeddings are fine-tuned
#
# Files may be compressed. A row that cannot be used raises InputError with file and line; odd rows that can be used are
# counted in warnings.

IDS = ("_id", "id")
RELEVANCE = ("query-id", "corpus-id", "score")
Found = dict[str, list[str]]  # what is odd -> where
FATES = (("counts as never found", "scored"), ("is not trained on", "trained on"))  # in a test, in training


def read(folder: Path, trained: bool = False) -> tuple[dict[str, Relevant], list[str]]:
    """Return the parts of a collection, `test` first, and sentences on what is odd about it. Raises InputError.

    With `trained`, the last part is `train`.
    """
    faults: Found = {}
    documents, queries = (_texts(folder, name, faults) for name in ("corpus", "queries"))
    files = {part: path for part in TESTED if (path := packed_or_not(folder / "qrels" / f"{part}.tsv"))}
    alone = packed_or_not(folder / "qrels.tsv")
    if not files and alone is None:
        raise InputError(f"{folder} has no qrels/test.tsv, qrels/dev.tsv or qrels.tsv, which say what is relevant")
    if files and alone is not None:
        warn_once(f"{alone} is not read, but the files in {folder / 'qrels'}")
    named = files or {"test": alone} if alone is not None else files
    if trained:
        train = packed_or_not(folder / "qrels/train.tsv")
        if train is None:
            raise InputError(
                f"{folder} has no qrels/train.tsv, with the relevant documents of queries to train on; without it, "
                f"leave out tasks.embeddings, which measures the frozen encoder"
            )
        named |= {"train": train}
    parts = {
        part: Relevant(queries, documents, _grades(path, queries, documents, faults, FATES[part == "train"]))
        for part, path in named.items()
    }
    notes = [f"{plural(len(places), 'row')} {what}: {first_of(places)}" for what, places in faults.items()]
    if trained:
        notes += _asked_before(parts["train"], {part: each for part, each in parts.items() if part != "train"})
    return parts, notes


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (file and line, {column: value}) for each row of JSON lines or of a TSV file with a header."""
    rows = (
        json_rows(path, lines(path)) if ".jsonl" in path.name else headed(path, delimited_rows(path, lines(path), "\t"))
    )
    return ((f"{path}, {line}", columns) for line, columns in rows)


def _texts(folder: Path, name: str, faults: Found) -> dict[str, str]:
    path = packed_or_not(folder / f"{name}.jsonl", folder / f"{name}.tsv")
    if path is None:
        raise InputError(f"{folder} has no {name}.jsonl or {name}.tsv, as a collection for retrieval needs")
    texts: dict[str, str] = {}
    first: dict[str, str] = {}
    for where, columns in _rows(path):
        id = next((columns[name] for name in IDS if columns.get(name) not in (None, "")), None)
        if id is None or isinstance(id, (bool, float, list, dict)):
            raise InputError(f"{where}: there is no '_id'; each row needs one, and a 'text'")
        if str(id) in texts:
            raise InputError(f"{where}: the id {id} occurs twice, first in {first[str(id)]}; remove one of the two")
        title = checked_text(columns.get("title") or "", "title", where)
        text = f"{title} {checked_text(columns.get('text'), 'text', where)}".strip()
        if not text:
            faults.setdefault("with an empty text", []).append(where)
        texts[str(id)], first[str(id)] = text, where
    if not texts:
        raise InputError(f"{path} holds no rows")
    return texts


def _grades(
    path: Path, queries: Mapping[str, str], documents: Mapping[str, str], faults: Found, fates: tuple[str, str]
) -> dict[str, dict[str, float]]:
    """Return the grade above 0 of each relevant document by query. Raises InputError.

    `fates` are two phrases for warnings: how a missing document counts, and the verb ("scored" or "trained on") for
    queries without relevant documents.
    """
    unknown, alone = fates
    graded: dict[str, dict[str, float]] = {}
    place: dict[str, str] = {}
    for where, columns in _rows(path):
        if lacking := [name for name in RELEVANCE if name not in columns]:
            raise InputError(f"{where}: there is no column {lacking[0]!r}; the header needs {', '.join(RELEVANCE)}")
        query, document, score = str(columns["query-id"]), str(columns["corpus-id"]), columns["score"]
        grade = table_files.number_of(score)
        if grade is None or not math.isfinite(grade):
            raise InputError(f"{where}: score {score!r:.40} is not a number")
        if query not in queries:
            faults.setdefault("about a query that is not in the queries, and is left out", []).append(where)
            continue
        if document not in documents:
            faults.setdefault(f"about a document that is not in the corpus, and {unknown}", []).append(where)
        given = graded.setdefault(query, {})
        if document in given:
            again = "about a query and a document that an earlier row has; the last row counts"
            faults.setdefault(again, []).append(where)
        given[document] = grade
        place.setdefault(query, where)
    relevant = {query: {d: grade for d, grade in each.items() if grade > 0} for query, each in graded.items()}
    for query in (query for query, each in relevant.items() if not each):
        faults.setdefault(f"about a query without any relevant document, which is not {alone}", []).append(place[query])
    scored = {query: each for query, each in relevant.items() if each}
    if not scored:
        raise InputError(f"{path} has no relevant document (a score above 0) of any query")
    return scored
