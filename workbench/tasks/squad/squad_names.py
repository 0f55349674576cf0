"""The names of SQuAD under `--tasks`, and the files that each of them reads.

`squad1` and `squad2` are SQuAD 1.1 and 2.0, trained on their training files and tested on their dev files. If
there is only a dev file, `squad1-devsplit` and `squad2-devsplit` divide its articles into a part to train on and a part
to test on. Their scores are not comparable with those of SQuAD, so they have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.data.formats import whole_split
from workbench.data.hugging_face.hub import fetch
from workbench.data.streams import packed_or_not
from workbench.errors import InputError, suggest
from workbench.progress import warn_once
from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import SQUAD
from workbench.store.atomic import user_path
from workbench.tasks.squad.questions import Question, Questions, Squad, fingerprinted
from workbench.tasks.squad.squad_files import misplaced, read

KEY = "--set tasks.squad"
SPLIT = "-devsplit"
SUMMARIES = {
    "squad1": "which words of a paragraph answer the question (SQuAD 1.1)",
    "squad2": "the same, where half of the questions have no answer (SQuAD 2.0)",
    "squad1" + SPLIT: "SQuAD 1.1's dev file alone, cut by article; no score of SQuAD",
    "squad2" + SPLIT: "SQuAD 2.0's dev file alone, cut by article; no score of SQuAD",
}
TEST_SHARE = 4  # of a devsplit, one article in so many is tested on
HUB = {False: "rajpurkar/squad", True: "rajpurkar/squad_v2"}
FOLDERS = {False: "squadv1", True: "squad"}  # of the released code
VERSIONS = {False: "v1.1", True: "v2.0"}
SPLITS = {"train": "train", "dev": "validation"}  # names on the hub


def place(name: str) -> str | None:
    """Return the name of a task as it is spelled here, None for any other task.

    Raises InputError for a name that begins like one of these.
    """
    lower = name.lower()
    if lower in SUMMARIES:
        return lower
    if lower.startswith(SQUAD):
        raise InputError(f"--tasks names an unknown task {name!r}{suggest(lower, SUMMARIES)}")
    return None


def known() -> list[tuple[str, str, str, str]]:
    """Return the name, suite, metric and summary of each task."""
    return [(name, SQUAD, Squad(name, _unanswerable(name), _NONE, {}).metric, text) for name, text in SUMMARIES.items()]


_NONE = Questions([], [])


def _unanswerable(name: str) -> bool:
    return name.startswith("squad2")


def needs_hub(tasks: TasksSpec) -> bool:
    """Return whether the files of SQuAD are downloaded from the hub."""
    return tasks.squad is None or not user_path(tasks.squad, f"{KEY}:").is_dir()


def load(names: Sequence[str], spec: TasksSpec) -> list[Squad]:
    """Return the tasks of names that `place` returned. Raises InputError."""
    if names and spec.lm_weight:
        raise InputError(
            f"--tasks {names[0]} cannot be combined with tasks.lm_weight={spec.lm_weight:g}: a language loss is added "
            f"only where texts are classified; set tasks.lm_weight=0"
        )
    return [fingerprinted(_task(name, spec), spec) for name in dict.fromkeys(names)]


def _task(name: str, spec: TasksSpec) -> Squad:
    """Return a task with all of its questions, after a warning of each fault of its files. Raises InputError."""
    unanswerable = _unanswerable(name)
    folder = _folder(name, spec)
    files = {part: _files(folder, part, unanswerable) for part in SPLITS}
    _check(name, folder, files)
    if name.endswith(SPLIT):
        whole, faults = read(files["dev"], unanswerable, training=False)
        train, test = whole.where(lambda row: not _tested(row)), whole.where(_tested)
        if not len(train) or not len(test):
            raise InputError(f"{files['dev'][0]} holds too few articles to train on some and to test on others")
        every, train = len(train), _trainable(train)
        if every > len(train):
            faults |= {"questions cannot be trained on, as their first answer is not in its place": every - len(train)}
    else:
        train, faults = read(files["train"], unanswerable, training=True)
        test, more = read(files["dev"], unanswerable, training=False)
        faults |= more | _shared(train, test, files)
    _check_kind(name, folder, train, unanswerable)
    for phrase, count in faults.items():
        warn_once(f"{name}: {count:,} of {len(train) + len(test):,} questions: {phrase}")
    return Squad(name, unanswerable, train, {"dev": test}, faults=faults)


def _tested(row: Question) -> bool:
    """Return whether the devsplit tests on a question: a hash of its article's title decides."""
    return seed_of(0, SQUAD, "devsplit", row.article) % TEST_SHARE == 0


def _trainable(part: Questions) -> Questions:
    """Return the questions that are impossible or whose first answer is in its place."""
    texts = part.paragraphs
    return part.where(lambda row: row.impossible or misplaced(texts[row.paragraph], *row.answers[0]) is None)


def _shared(train: Questions, test: Questions, files: dict[str, list[Path]]) -> dict[str, int]:
    """Return how many questions of the dev file are in the training file as well, if any are."""
    both = {row.id for row in train.rows} & {row.id for row in test.rows}
    example = f"questions of {files['dev'][0]} are in the training file too, such as id {min(both, default='')}"
    return {example: len(both)} if both else {}


def _check_kind(name: str, folder: Path, train: Questions, unanswerable: bool) -> None:
    """Raise InputError if no question has an answer, or all have one in 2.0; 2.0 for 1.1 is found in reading."""
    if all(row.impossible for row in train.rows):
        raise InputError(
            f"--tasks {name}: no question to train on in {folder} has an answer, so no spans can be learned"
        )
    if unanswerable and not any(row.impossible for row in train.rows):
        raise InputError(f"--tasks {name}: all questions in {folder} have answers, so its files are not SQuAD 2.0's")


# ---- files ----


def _folder(name: str, spec: TasksSpec) -> Path:
    """Return the folder with the files: a user's, or the copy of a data set of the hub. Raises InputError."""
    if spec.squad is not None:
        folder = user_path(spec.squad, f"{KEY}:")
        if folder.is_dir():
            return folder
    parts = ["dev"] if name.endswith(SPLIT) else list(SPLITS)
    patterns = [f"**/{SPLITS[part]}-*.parquet" for part in parts]
    place = spec.squad or HUB[_unanswerable(name)]
    fetched = fetch(place, patterns, KEY, f"the folder that holds {' and '.join(_official(name))}")
    if isinstance(fetched, str):
        raise InputError(f"task {name} is not available: {fetched}")
    return fetched


def _official(name: str) -> list[str]:
    """Return the names of the official files that a task reads."""
    parts = ["dev"] if name.endswith(SPLIT) else list(SPLITS)
    return [f"{part}-{VERSIONS[_unanswerable(name)]}.json" for part in parts]


def _files(folder: Path, part: str, unanswerable: bool) -> list[Path]:
    """Return the file of a part, or its Parquet files in the layout of the hub; empty if there are none."""
    names = (f"{part}-{VERSIONS[unanswerable]}.json", f"{FOLDERS[unanswerable]}/{part}.json")
    if path := packed_or_not(*(folder / name for name in names)):
        return [path]
    return whole_split(_parquet(folder, SPLITS[part], unanswerable))


def _parquet(folder: Path, split: str, unanswerable: bool) -> Iterator[Path]:
    """Yield the Parquet files of a split in the folder or in the data set's only configuration."""
    for configuration in (".", "plain_text", "squad_v2" if unanswerable else "squad"):
        yield from (folder / configuration).glob(f"{split}-*.parquet")


def _check(name: str, folder: Path, files: dict[str, list[Path]]) -> None:
    """Raise InputError if a file that the task reads is missing."""
    if not files["dev"]:
        dev = f"{_official(name)[-1]} (or {FOLDERS[_unanswerable(name)]}/dev.json, or validation-*.parquet)"
        raise InputError(f"task {name} is not available: no {dev} in {folder}; give its folder with {KEY}=DIR")
    if not files["train"] and not name.endswith(SPLIT):
        raise InputError(
            f"task {name} is not available: no {_official(name)[0]} in {folder}; to train and test on parts of the dev "
            f"file, under a name of its own, use --tasks {name}{SPLIT}"
        )
