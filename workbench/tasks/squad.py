"""Questions on paragraphs as plain data, and SQuAD as a measure with the settings of the released code.

Source of the settings: Clark et al. 2020, table 7, and the released `configure_finetuning.py`.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.data.formats import whole_split
from workbench.data.hugging_face import fetch
from workbench.data.streams import packed_or_not
from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.spec.scoring import SQUAD
from workbench.tasks.common.baselines import cached
from workbench.tasks.common.contract import FINE_TUNING, TUNING, Cost, EncoderFacts, HeldOut, Measure, Model, Scores
from workbench.tasks.common.cost import SPECIAL, tuning_cost
from workbench.tasks.common.data_rows import aside, fingerprint, warned
from workbench.tasks.common.table_files import checked_text, here_or_fetched, is_here, rows_of, text_of

VERSION = 1  # increase it when the computation of a score changes
BASELINES_VERSION = 2  # increase it when the computation of a baseline changes
EPOCHS = 2.0
LENGTH = 512  # tokens of a window, if the encoder has as many positions
STRIDE, QUERY = 128, 64  # tokens between the starts of windows, and of a question, at that length
ANSWER = 30  # tokens of an answer at most
BEAM = N_BEST = 20  # starts, and ends of each start; different answers that are kept of a question
ANSWERABLE = 0.5  # weight of the loss of the answerability head
THRESHOLD = -2.75  # log-odds of "no answer" above which none is given, as in the released code's test outputs


@dataclass(frozen=True)
class Question:
    """One question on a paragraph."""

    id: str
    text: str
    paragraph: int  # its index
    answers: tuple[tuple[str, int], ...]  # text and first character
    impossible: bool  # whether the paragraph does not answer it
    article: str  # title of the paragraph's article


@dataclass(frozen=True)
class Questions:
    """The questions of one part, and the paragraphs that they are asked about."""

    paragraphs: list[str]
    rows: list[Question]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: Callable[[Question], bool]) -> Questions:
        """Return the questions that `keep` accepts, in their order, with all paragraphs."""
        return Questions(self.paragraphs, list(filter(keep, self.rows)))


@dataclass(frozen=True)
class Squad(Measure):
    """Measure of SQuAD, version 2.0 if `unanswerable`, else 1.1.

    The headline metric is computed on the first of `tests`: F1, in 2.0 at the best threshold, as the paper's table 4
    has it. `faults` counts what is wrong in the files, by a phrase that says what and where.
    """

    name: str
    unanswerable: bool
    train: Questions
    tests: Mapping[str, Questions]
    faults: Mapping[str, int] = field(default_factory=dict)
    suite = SQUAD
    act = FINE_TUNING

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "best_f1" if self.unanswerable else "f1"

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        parts = [
            [name, [(r.id, r.text, part.paragraphs[r.paragraph], r.answers, r.impossible) for r in part.rows]]
            for name, part in {"train": self.train, **self.tests}.items()
        ]
        return fingerprint([self.name, self.metric], *parts)

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score; a length or stride of None follows from the encoder."""
        shared = (
            "lr", "layer_decay", "extra_decay", "weight_decay", "warmup", "batch", "dropout", "clip", "sum_loss",
            "overlap", "bias_correction", "rows",
        )  # fmt: skip
        return {name: getattr(spec, name) for name in shared} | {
            "epochs": spec.epochs or EPOCHS, "head": spec.squad_head, "length": spec.squad_length or LENGTH,
            "stride": spec.squad_stride, "query": QUERY, "answer": ANSWER, "beam": BEAM, "n_best": N_BEST,
            "answerable": ANSWERABLE, "threshold": THRESHOLD, "version": VERSION,
        }  # fmt: skip

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return the score of the sentence that is nearest to the question, and in 2.0 of never answering."""
        from workbench.tasks import _squad_answers

        return cached(f"{self.fingerprint}-squad-{BASELINES_VERSION}", lambda: _squad_answers.baselines(self), cache)

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of one fine-tuning, whose batches count windows."""
        limit = min(options.squad_length or LENGTH, spec.encoder.positions)

        def windows(pieces: list[int]) -> list[int]:
            asked = min(pieces[0], QUERY, limit // 4)
            stride, room = options.squad_stride or max(1, min(STRIDE, limit // 2)), limit - asked - SPECIAL - 1
            starts = range(0, max(1, pieces[1] - room + stride), stride)
            return [limit - room + min(room, pieces[1] - start) for start in starts]

        train, *tests = (
            [[row.text, part.paragraphs[row.paragraph]] for row in part.rows]
            for part in (self.train, *self.tests.values())
        )
        return tuning_cost(self, spec, options, tokenizer, train, tests, windows, windows=True)

    def measure(self, model: Model, host: Host) -> Scores:
        from workbench.tasks._squad_answers import answer

        return answer(self, model, host)

    def reading(self, options: TasksSpec, facts: EncoderFacts) -> tuple[str, dict[str, Any]]:
        tokens = facts.cut(options.squad_length or LENGTH)
        return f"questions read with windows of their paragraphs, {tokens} tokens together", {}


def limited(task: Squad, spec: TasksSpec) -> Squad:
    """Return the task as `spec` measures it.

    `spec.held_out` is the share of training paragraphs whose questions become the test; `spec.rows` is the largest
    number of training questions. Hashes of paragraphs and of question ids decide which.
    """
    train, tests = task.train, task.tests
    if spec.held_out:
        asked = sorted({row.paragraph for row in train.rows})
        order = sorted(asked, key=lambda number: (seed_of(0, SQUAD, "held out", train.paragraphs[number]), number))
        tested = set(aside(order, spec.held_out)[1])
        tests = {"held-out": train.where(lambda row: row.paragraph in tested)}
        train = train.where(lambda row: row.paragraph not in tested)
    if spec.rows is not None and spec.rows < len(train):
        rows = train.rows
        order = sorted(range(len(rows)), key=lambda row: (seed_of(0, SQUAD, "rows", rows[row].id), row))
        train = Questions(train.paragraphs, [rows[row] for row in sorted(order[: spec.rows])])
    return replace(task, train=train, tests=tests)


# ---- reading questions ----
# Faults that the official code tolerates are counted in warnings, with the file and place of the first one. A question
# whose answer is not at its offset is left out of training; in a test its answer text still counts. A question that
# cannot be used at all raises InputError with file, place and id.

Row = tuple[str, str, Question]  # place in the file, paragraph, and the question with paragraph 0


def read_questions(paths: list[Path], unanswerable: bool, training: bool) -> tuple[Questions, dict[str, int]]:
    """Return the questions of the files of one part, and how often each fault occurs, by a phrase that names the first.

    `unanswerable` says that the files are of version 2.0. Questions that cannot be trained on are left out if
    `training`. Raises InputError.
    """
    counts = Counter[str]()
    first: dict[str, str] = {}
    paragraphs: dict[str, int] = {}
    questions: list[Question] = []
    seen: dict[str, str] = {}
    rows = ((_parquet if path.suffix == ".parquet" else _official)(path, unanswerable) for path in paths)
    for where, context, row in itertools.chain.from_iterable(rows):
        number = paragraphs.setdefault(context, len(paragraphs))
        faults = []
        if row.id in seen:
            faults.append("ids occur twice")
            if not training:
                raise InputError(f"{where}: id {row.id} occurs twice, first in {seen[row.id]}; remove one of the two")
        seen.setdefault(row.id, where)
        lost = _check(where, context, row, unanswerable, training, faults)
        counts.update(faults)
        for fault in faults:
            first.setdefault(fault, f"{where} (id {row.id})")
        if not lost:
            questions.append(replace(row, paragraph=number))
    if not questions:
        raise InputError(f"{paths[0]} holds no question that can be {'trained on' if training else 'scored'}")
    return Questions(list(paragraphs), questions), {f"{what}, first in {first[what]}": n for what, n in counts.items()}


def _check(where: str, context: str, row: Question, unanswerable: bool, training: bool, faults: list[str]) -> bool:
    """Add the faults of a question; return whether it cannot be trained on. Raises InputError if it has no meaning."""
    if not row.text.strip():
        faults.append("questions are empty")
    if row.impossible and not unanswerable:
        raise InputError(f"{where}: question {row.id} is marked impossible, which occurs in SQuAD 2.0 alone")
    if not row.answers and not row.impossible:
        raise InputError(f"{where}: question {row.id} has no answer and is not marked impossible")
    if row.impossible and row.answers:
        faults.append("questions are marked impossible and have answers")
    for number, (text, start) in enumerate(row.answers):
        if (fault := misplaced(context, text, start)) is None:
            continue
        lost = training and number == 0 and not row.impossible
        faults.append(f"answers {fault}{' (and are not trained on)' if lost else ''}")
        if lost:
            return True
    return False


def misplaced(context: str, text: str, start: int) -> str | None:
    """Return a phrase that says why an answer is not at its offset; None if it is."""
    if start < 0 or start + len(text) > len(context):
        return "end beyond the text" if start >= 0 else "begin before the text"
    if not text.strip():
        return "have no text"
    return None if context[start : start + len(text)] == text else "are not at their offset"


# ---- the official JSON ----


def _official(path: Path, unanswerable: bool) -> Iterator[Row]:
    try:
        content = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not JSON: {str(error)[:120]}; download it again") from None
    for article, where in _items(content, "data", str(path), ": "):
        for paragraph, place in _items(article, "paragraphs", where):
            context = _text(paragraph, "context", place)
            title = _title(article, context, where)
            for entry, there in _items(paragraph, "qas", place):
                yield _row(entry, title, context, there, unanswerable)


def _title(holder: dict[str, Any], context: str, where: str) -> str:
    """Return the title of an article, by which a devsplit is cut, or the context if it has none."""
    title = holder.get("title")
    return checked_text(title, "title", where) if isinstance(title, str) else context


def _row(entry: dict[str, Any], article: str, context: str, where: str, unanswerable: bool) -> Row:
    id = _text(entry, "id", where)
    here = f"{where}, question {id}"
    answers = []
    for answer, place in _items(entry, "answers", here, ", "):
        start = answer.get("answer_start")
        if isinstance(start, bool) or not isinstance(start, int):
            raise InputError(f"{place}: 'answer_start' is {start!r:.40}, and must be a whole number")
        answers.append((_text(answer, "text", place), start))
    impossible = entry.get("is_impossible", unanswerable and not answers)
    if not isinstance(impossible, bool):
        raise InputError(f"{here}: 'is_impossible' is {impossible!r:.40}, and must be true or false")
    text = _text(entry, "question", here)
    return where, context, Question(id, text, 0, tuple(answers), impossible, article)


def _items(holder: Any, key: str, where: str, mark: str = ".") -> Iterator[tuple[dict[str, Any], str]]:
    if not isinstance(holder, dict) or not isinstance(holder.get(key), list):
        fault = "is not a list" if isinstance(holder, dict) and key in holder else "is missing"
        raise InputError(f"{where}: {key!r} {fault}; SQuAD's files hold data, paragraphs, qas and answers")
    for number, each in enumerate(holder[key]):
        place = f"{where}{mark}{key}[{number}]"
        if not isinstance(each, dict):
            raise InputError(f"{place} is {type(each).__name__} instead of an object")
        yield each, place


def _text(holder: dict[str, Any], key: str, where: str) -> str:
    text = checked_text(holder.get(key), key, where)
    if not text.strip() and key in ("context", "id"):
        raise InputError(f"{where}: {key!r} is empty")
    return text


# ---- the hub's Parquet ----


def _parquet(path: Path, unanswerable: bool) -> Iterator[Row]:
    for place, columns in rows_of(path):
        where = f"{path}, {place}"
        answers = columns.get("answers")
        lists = [answers.get(key) for key in ("text", "answer_start")] if isinstance(answers, dict) else [None]
        if not all(isinstance(each, list) for each in lists) or len({len(each or ()) for each in lists}) != 1:
            raise InputError(f"{where}: column 'answers' does not hold lists 'text' and 'answer_start' of equal length")
        entry = {
            "id": columns.get("id"), "question": columns.get("question"),
            "answers": [{"text": text, "answer_start": start} for text, start in zip(*lists, strict=True)],
        }  # fmt: skip
        context = _text(columns, "context", where)
        yield _row(entry, _title(columns, context, where), context, where, unanswerable)


# ---- names and files ----
# `squad1` and `squad2` are SQuAD 1.1 and 2.0, trained on their training files and tested on their dev files. If there
# is only a dev file, `squad1-devsplit` and `squad2-devsplit` divide its articles into a part to train on and a part to
# test on. Their scores are not scores of SQuAD, so they have names of their own.

KEY = "--set tasks.squad"
SPLIT = "-devsplit"
trains = True
SUMMARIES = {
    "squad1": "which words of a paragraph answer the question (SQuAD 1.1)",
    "squad2": "the same, where half of the questions have no answer (SQuAD 2.0)",
    "squad1" + SPLIT: "SQuAD 1.1's dev file alone, cut by article; not comparable with SQuAD",
    "squad2" + SPLIT: "SQuAD 2.0's dev file alone, cut by article; not comparable with SQuAD",
}
TEST_SHARE = 4  # of a devsplit, one article in four is tested on
HUB = {False: "rajpurkar/squad", True: "rajpurkar/squad_v2"}
FOLDERS = {False: "squadv1", True: "squad"}  # of the released code
VERSIONS = {False: "v1.1", True: "v2.0"}
SPLITS = {"train": "train", "dev": "validation"}  # names on the hub
reads = {*TUNING, "rows", "held_out", "lm_weight", "squad", "squad_head", "squad_length", "squad_stride"}
names = [(name, SQUAD, "best_f1" if name.startswith("squad2") else "f1", text) for name, text in SUMMARIES.items()]


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether the files of SQuAD are downloaded from the hub."""
    return not is_here(options.squad, KEY)


def load(names: Sequence[str], spec: TasksSpec, text: HeldOut | None = None) -> list[Squad]:
    """Return the tasks of these names. Raises InputError."""
    if names and spec.lm_weight:
        raise InputError(
            f"--tasks {names[0]} cannot be combined with tasks.lm_weight={spec.lm_weight:g}: a language loss is added "
            f"only where texts are classified; set tasks.lm_weight=0"
        )
    return [limited(_task(name, spec), spec) for name in names]


def _task(name: str, spec: TasksSpec) -> Squad:
    unanswerable, split = name.startswith("squad2"), name.endswith(SPLIT)
    folder, files = _files(name, spec)
    if split:
        whole, faults = read_questions(files["dev"], unanswerable, training=False)
        train, test = whole.where(lambda row: not _tested(row)), whole.where(_tested)
        if not len(train) or not len(test):
            raise InputError(f"{files['dev'][0]} holds too few articles to train on some and to test on others")
        texts, every = whole.paragraphs, len(train)
        train = train.where(lambda row: row.impossible or misplaced(texts[row.paragraph], *row.answers[0]) is None)
        if every > len(train):
            faults["questions cannot be trained on, as their first answer is not in its place"] = every - len(train)
    else:
        train, faults = read_questions(files["train"], unanswerable, training=True)
        test, more = read_questions(files["dev"], unanswerable, training=False)
        faults |= more
        if both := {row.id for row in train.rows} & {row.id for row in test.rows}:
            what = f"questions of {files['dev'][0]} are in the training file too, such as id {min(both)}"
            faults[what] = len(both)
    impossible = [row.impossible for row in train.rows]
    if all(impossible):
        raise InputError(f"--tasks {name}: no question to train on in {folder} has an answer, so no spans are learned")
    if unanswerable and not any(impossible):
        raise InputError(f"--tasks {name}: all questions in {folder} have answers, so its files are not SQuAD 2.0's")
    questions = len(train) + len(test)
    warned(name, (f"{count:,} of {questions:,} questions: {phrase}" for phrase, count in faults.items()))
    return Squad(name, unanswerable, train, {"dev": test}, faults=faults)


def _tested(row: Question) -> bool:
    """Return whether the devsplit tests on a question: a hash of its article's title decides."""
    return seed_of(0, SQUAD, "devsplit", row.article) % TEST_SHARE == 0


def _files(name: str, spec: TasksSpec) -> tuple[Path, dict[str, list[Path]]]:
    """Return the folder with the files, a user's or the copy of a data set of the hub, and the files of each part.

    A part has its official file, or its Parquet files in the layout of the hub. Raises InputError if a file is missing.
    """
    unanswerable, split = name.startswith("squad2"), name.endswith(SPLIT)
    parts = ["dev"] if split else list(SPLITS)
    official = {part: f"{part}-{VERSIONS[unanswerable]}.json" for part in SPLITS}
    patterns = [f"**/{SPLITS[part]}-*.parquet" for part in parts]
    holding = f"the folder that holds {' and '.join(official[part] for part in parts)}"
    if spec.squad:
        folder = here_or_fetched(spec.squad, patterns, KEY, holding)
    else:
        folder = fetch(HUB[unanswerable], patterns, KEY, holding)
    if isinstance(folder, str):
        raise InputError(f"task {name} is not available: {folder}")
    files: dict[str, list[Path]] = {}
    for part in parts:
        path = packed_or_not(folder / official[part], folder / FOLDERS[unanswerable] / f"{part}.json")
        places = (folder, folder / "plain_text", folder / ("squad_v2" if unanswerable else "squad"))
        parquet = (file for place in places for file in place.glob(f"{SPLITS[part]}-*.parquet"))
        files[part] = [path] if path else whole_split(parquet)
    if not files["dev"]:
        raise InputError(
            f"task {name} is not available: no {official['dev']} (or {FOLDERS[unanswerable]}/dev.json, or "
            f"validation-*.parquet) in {folder}; give its folder with {KEY}=DIR"
        )
    if not split and not files["train"]:
        raise InputError(
            f"task {name} is not available: no {official['train']} in {folder}; to train and test on parts of "
            f"the dev file, under a name of its own, use --tasks {name}{SPLIT}"
        )
    return folder, files
