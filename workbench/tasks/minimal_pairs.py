"""Minimal pairs as plain data: a model should score the first sentence of each higher than the second."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.data import tagged_sets
from workbench.data.formats import json_rows, warn_of_unread, whole_split
from workbench.data.hugging_face import fetch
from workbench.data.streams import lines, packed_or_not, unpacked_suffix
from workbench.errors import InputError, encodable
from workbench.models import flops
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import user_path
from workbench.tasks import glue
from workbench.tasks.common.contract import Cost, HeldOut, Measure, Model, Scores
from workbench.tasks.common.cost import SPECIAL, text_lengths
from workbench.tasks.common.data_rows import fingerprint
from workbench.tasks.common.table_files import rows_of

USUAL_SCORERS = 2  # the objective's and the generator's, which together cost at most one pseudo-log-likelihood


@dataclass(frozen=True)
class PairSet(Measure):
    """Pairs of sentences and their groups: level -> the group of each pair.

    In each group of the first level, the accuracy is the share of pairs whose `good` sentence has the higher score;
    a tie counts half. The headline is the unweighted mean over these groups.
    """

    name: str
    suite: str
    good: Sequence[str]
    bad: Sequence[str]
    groups: Mapping[str, Sequence[str]]
    metric = "accuracy"
    act = "scoring"

    def __post_init__(self) -> None:
        assert all(len(each) == len(self.good) for each in (self.bad, *self.groups.values()))

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return fingerprint([self.name, self.good, self.bad, self.groups])

    def settings(self, options: TasksSpec) -> dict[str, Any]:
        return {"scorers": list(options.scorers)}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return the accuracy of guessing; ties count half."""
        return {"chance": 50.0}

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of the most expensive scorer, a pseudo-log-likelihood.

        Each sentence is read once, and once more for each of its ordinary tokens, which is then masked.
        """
        sizes = [spec.encoder] + ([spec.generator_encoder] if spec.generator.kind == "transformer" else [])
        total = 0
        lengths = text_lengths(self.fingerprint, (*self.good, *self.bad), spec.data.length, tokenizer)
        for length, count in lengths.items():
            one = max(flops.encoder(size, length).matmul for size in sizes)
            head = flops.lm_head(spec.encoder, length, 1).matmul
            total += count * (one + length * head + (length - SPECIAL) * (one + head))
        return Cost(total * max(1, len(options.scorers) - USUAL_SCORERS + 1))

    def measure(self, model: Model, host: Host) -> Scores:
        """Score all sentences, by the objective of a run, or by a published model's own head."""
        from workbench.tasks._pair_accuracy import zero_shot

        return zero_shot(self, model, host)

    def check(self, folder: Path) -> None:
        """Raise InputError if a published model has no head that scores sentences."""
        from workbench.tasks.common import sentence_scorers

        sentence_scorers.load_published(folder, "cpu")

    def shared(self) -> tuple[int, Mapping[str, Any]]:
        return len(self.good), asdict(self)


# ---- pairs in files ----
# A row has `sentence_good` and `sentence_bad`; `UID`, `linguistics_term` and `field` give its paradigm, phenomenon and
# field. Without `UID`, the paradigm is the name of the file. Files may be compressed.

KINDS = ".jsonl (plain or compressed) nor .parquet in this folder itself"
HUB = "nyu-mll/blimp"
LONGEST = 1 << 16  # characters of a sentence
MOST = 1 << 20  # pairs of a task
# Names as in the paper: the files split one of its 12 phenomena in two and have two spellings of one of its 4 fields.
AS_PRINTED = {"s-selection": "argument_structure", "syntax/semantics": "syntax_semantics"}
LEVELS = {"paradigm": "UID", "phenomenon": "linguistics_term", "field": "field"}


# Where a named set may be within `tasks.blimp`, and its one-line summary. In the data of BabyLM's pipeline, `full_eval`
# and `fast_eval` are beside each other in `evaluation_data`.
NAMED = {
    "blimp": (("data", "."), "which of two sentences is acceptable English, 67 paradigms of 1,000 pairs"),
    "blimp-filtered": (("blimp_filtered", "full_eval/blimp_filtered", "blimp_filtered.jsonl"),
                       "BLiMP as BabyLM scores it, 59,875 pairs"),
    "blimp-fast": (("blimp_fast", "fast_eval/blimp_fast", "blimp_fast.jsonl"),
                   "BabyLM's fast set of BLiMP, 67 x 200 pairs"),
}  # fmt: skip
names = [(name, "blimp", "accuracy", f"{summary}, without fine-tuning") for name, (_, summary) in NAMED.items()]


def accepts(word: str) -> bool:
    """Return whether a word is a file of minimal pairs, or a folder that may hold some.

    A folder that is called as a substitute of a GLUE task is written ./NAME.
    """
    path = user_path(word, "--tasks")
    return holds_pairs(word) or (path.is_dir() and not tagged_sets.holds_set(path) and glue.row_of(word) is None)


def reads(word: str, options: TasksSpec) -> set[str]:
    """Return the settings that minimal pairs read."""
    return {"scorers", "held_out", *(["blimp"] if word in NAMED else [])}


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether a named set is downloaded from the hub."""
    return word in NAMED and not (options.blimp and user_path(options.blimp, "--set tasks.blimp:").exists())


def load(names: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> list[PairSet]:
    """Return the pairs of named sets, folders and files. Raises InputError."""
    if options.held_out:
        raise InputError(
            f"--tasks {names[0]}: a search cannot choose settings by the pairs that a report shows; use --tasks pairs"
        )
    return [load_named(name, options.blimp) if name in NAMED else load_path(name) for name in names]


def load_named(name: str, where: str | None) -> PairSet:
    """Return a named set of BLiMP from a folder, a file, or a data set on the hub. Raises InputError."""
    place = where or HUB
    folder = user_path(place, "--set tasks.blimp:")
    if folder.is_file():
        return read(name, "blimp", [folder])
    if folder.is_dir():
        places = [folder / inner for inner in NAMED[name][0]]
        if files := next(filter(None, map(_files, places)), []):
            return read(name, "blimp", files)
        absent = f"task {name} is not available: there are no JSON lines in {' or '.join(map(str, places))}"
    else:
        absent = f"tasks.blimp={where} is not a file or folder here" if where else f"task {name} is not on the hub"
    if folder.is_dir() or name != "blimp":
        raise InputError(f"{absent}; give the folder of its files with --set tasks.blimp=DIR")
    downloaded = fetch(place, ["*.parquet", "*.jsonl"], "--set tasks.blimp", "the folder that holds BLiMP's data")
    if isinstance(downloaded, str):
        raise InputError(f"task {name} is not available: {downloaded}")
    files = whole_split(path for path in downloaded.rglob("*") if path.is_file() and _readable(path))
    if not files:
        raise InputError(
            f"task {name} is not available: the data set {place} on the hub has no Parquet files and no JSON lines"
        )
    return read(name, "blimp", files)


def load_path(text: str) -> PairSet:
    """Return the minimal pairs of a folder or a file as a task of that name. Raises InputError."""
    path = user_path(text, "--tasks")
    files = _files(path)
    if not files:
        unread = " (.txt files are read only if they have the names of Zorro's, as in its folder sentences/babyberta)"
        raise InputError(
            f"--tasks {path}: there are no JSON lines of minimal pairs in this folder, such as "
            f'{{"sentence_good": "He runs.", "sentence_bad": "He run."}}{unread if any(path.glob("*.txt")) else ""}; '
            f"name the file of a table, such as {path}/train.csv, or tag:{path} for sentences of tagged words"
        )
    return read(path.resolve().name if path.is_dir() else stem(path), "minimal-pairs", files)


def holds_pairs(text: str) -> bool:
    """Return whether a path is a file of JSON lines that begins with a minimal pair."""
    path = user_path(text, "--tasks")
    if not (path.is_file() and _readable(path) and path.suffix.lower() != ".parquet"):
        return False
    first = next((line for line in lines(path) if line.strip()), "")
    return '"sentence_good"' in first and '"sentence_bad"' in first


def stem(path: Path) -> str:
    """Return the name of a file without its endings; for a Parquet file of the hub, the name of its folder."""
    return path.name.partition(".jsonl")[0] if path.suffix.lower() != ".parquet" else path.parent.name


def read(name: str, suite: str, files: list[Path]) -> PairSet:
    """Return the pairs in some files. Raises InputError that names file and line."""
    good, bad = list[str](), list[str]()
    labels: dict[str, list[str]] = {level: [] for level in LEVELS}
    rows: Iterator[tuple[str, dict[str, Any]]]
    for path in files:
        if path.suffix.lower() == ".parquet":
            rows = rows_of(path)
        else:
            rows = zorro_rows(path) if zorro_paradigm(path) else json_rows(path, lines(path))
        for line, row in rows:
            where = f"{path}, {line}"
            if len(good) == MOST:
                raise InputError(f"{where}: there are more than {MOST:,} pairs in {name}")
            good.append(_text(row, "sentence_good", where))
            bad.append(_text(row, "sentence_bad", where))
            for level, key in LEVELS.items():
                labels[level].append(_label(row, key, where, stem(path) if level == "paradigm" else ""))
    if not good:
        raise InputError(f"{files[0]} holds no rows")
    return PairSet(name, suite, good, bad, {level: each for level, each in labels.items() if all(each)})


def _files(path: Path) -> list[Path]:
    """Return the readable files of a folder, and warn of the others; for a file, itself or its compressed form."""
    if path.is_dir():
        entries = sorted(path.iterdir())
        shown = (each for each in entries if each.is_file() and not each.name.startswith("."))
        files = whole_split(filter(_readable, shown))
        if files:
            unread = [each.name for each in entries if each not in files]
            warn_of_unread(f"minimal pairs in {path}", unread, len(entries), f": neither {KINDS}, nor a file of Zorro")
        return files
    file = packed_or_not(path)
    return [file] if file and _readable(file) else []


def _readable(path: Path) -> bool:
    return unpacked_suffix(path) == ".jsonl" or path.suffix.lower() == ".parquet" or bool(zorro_paradigm(path))


def _text(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {key!r} holds no text; a minimal pair has sentence_good and sentence_bad")
    if not encodable(value) or "\0" in value:
        raise InputError(f"{where}: {key!r} holds a NUL or half of a surrogate pair, which is not valid text")
    if len(value) > LONGEST:
        raise InputError(f"{where}: {key!r} has {len(value):,} characters, and at most {LONGEST:,} are allowed")
    return value


def _label(row: dict[str, Any], key: str, where: str, default: str) -> str:
    value = row.get(key, default)
    if not isinstance(value, str) or len(value) > 200 or not encodable(value):
        raise InputError(f"{where}: {key!r} is not a name of at most 200 characters")
    return AS_PRINTED.get(value, value.strip()) or default


# ---- Zorro ----
# Huebner et al. 2021, "BabyBERTa: Learning more grammar with small-scale child-directed language"; the files are those
# of the folder `sentences/babyberta` of github.com/phueb/Zorro. A file is a paradigm of 2,000 pairs: of each two lines
# the first is wrong, and the second right. Earlier versions have files with other names, in which it may be the other
# way round, so no other names are read.

PARADIGMS = {
    "agreement_determiner_noun": ("across_1_adjective", "between_neighbors"),
    "agreement_subject_verb": (
        "across_prepositional_phrase", "across_relative_clause", "in_question_with_aux", "in_simple_question",
    ),
    "anaphor_agreement": ("pronoun_gender",),
    "argument_structure": ("dropped_argument", "swapped_arguments", "transitive"),
    "binding": ("principle_a",),
    "case": ("subjective_pronoun",),
    "ellipsis": ("n_bar",),
    "filler-gap": ("wh_question_object", "wh_question_subject"),
    "irregular": ("verb",),
    "island-effects": ("adjunct_island", "coordinate_structure_constraint"),
    "local_attractor": ("in_question_with_aux",),
    "npi_licensing": ("matrix_question", "only_npi_licensor"),
    "quantifiers": ("existential_there", "superlative"),
}  # fmt: skip
PHENOMENA = {f"{phenomenon}-{each}": phenomenon for phenomenon, every in PARADIGMS.items() for each in every}


def zorro_paradigm(path: Path) -> str:
    """Return the paradigm of a text file, compressed or not, by its name; "" if it is no file of Zorro."""
    name = path.name.partition(".")[0]
    return name if unpacked_suffix(path) == ".txt" and name in PHENOMENA else ""


def zorro_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the line of each pair, and the pair as a row of BLiMP. Raises InputError for an odd number of lines."""
    sentences = iter(lines(path))
    name = zorro_paradigm(path)
    for number, wrong in enumerate(sentences):
        right = next(sentences, None)
        if right is None:
            raise InputError(
                f"{path} has an odd number of lines; of each two lines the first is wrong, and the second right"
            )
        row = {"sentence_good": right.strip(), "sentence_bad": wrong.strip()}
        yield f"line {2 * number + 1}", row | {"UID": name, "linguistics_term": PHENOMENA[name]}
