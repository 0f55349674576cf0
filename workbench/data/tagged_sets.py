"""The files of a set of tagged sentences, recognised by the ends of their names, and the sentences of its parts.

The path of a training, dev or test file stands for all files beside it whose names differ only in the part, and a
folder holds one such set, or one file for each part that has its word anywhere in its name, or a data set of the hub in
Parquet. Of several files of one part, the named file is read, else a file called annotated or gold, else a file with an
ending of tagged sentences (`tagged_sentences`), else the only file that holds columns. Of a single file, a fifth of the
sentences are tested on.

In Parquet a row is a sentence. Words are the list in column `tokens` (or `words`), tags the list in `ner_tags`, `tags`,
`pos_tags` or `chunk_tags`, or in a column that is named. Tags may be numbers if the file says what they are called, as
the library datasets writes it. Files of a split are `SPLIT-00000-of-00002.parquet`, or lie in a folder of its name, at
most two folders down. Rows that hold `-DOCSTART-` alone are skipped, as in CoNLL's files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.data import tagged_sentences
from workbench.data.formats import parquet_rows, warn_of_unread, whole_split
from workbench.data.streams import PACKINGS
from workbench.data.tagged_sentences import DOCUMENT, Sentence
from workbench.errors import InputError, encodable
from workbench.rng import seed_of
from workbench.spec.scoring import TESTED

PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "testa": "dev",
         "test": "test", "testb": "test"}  # fmt: skip
PART = re.compile(rf"(?:^|[._-])({'|'.join(PARTS)})$", re.IGNORECASE)
# Of a part, anywhere in the name of a file, but not in `latest`, `contest`, `device` and `invalid`.
WORD = re.compile("train|dev(?!ic)|(?<!in)valid|(?<!la)(?<!con)test")
ANNOTATED = re.compile(r"[._-]?(?<![a-z])(annotated|gold|labell?ed|tagged)(?![a-z])", re.IGNORECASE)
MOST_TAGS = 10_000  # in training sentences; with more, the scores of all tags for a batch may not fit into memory
TEST_SHARE = 5  # one sentence in so many is tested on if there is a single file

Sentences = dict[str, list[tagged_sentences.Sentence]]  # by part


def files_of(path: Path) -> dict[str, Path]:
    """Return the file of each part of a set, an only file under "". Raises InputError if there is none or too many."""
    if not path.exists():
        raise InputError(f"--tasks {path}: there is no such file")
    if not path.is_dir():
        return _of_file(path)
    files = _of_folder(path)
    read = {file for each in files.values() for file in (shards(each) if each.suffix == SUFFIX else [each])}
    entries = sorted(path.iterdir())
    unread = [entry.name for entry in entries if not any(entry in (file, *file.parents) for file in read)]
    warn_of_unread(f"--tasks {path}", unread, len(entries), _but(files))
    return files


def _of_file(path: Path) -> dict[str, Path]:
    """Return the files beside this one that belong to its set; itself alone if its name names no part."""
    if path.suffix == SUFFIX:
        raise InputError(f"--tasks {path}: name the folder of the data set, with the Parquet files of its parts")
    beside = _files(path.parent)
    files = [file for file in beside if _set(file) == _set(path)] if _part(path) else []
    if not _complete(files):
        stem, part = _set(path)[0], _part(path)
        fitting = [file for file in beside if not (part and _part(file)) or _set(file)[0] == stem]
        if loose := _by_word(path, fitting):
            return loose
    return _by_part(path, files, beside) if len(files) > 1 else {"": path}


def _of_folder(folder: Path) -> dict[str, Path]:
    """Return the files of the only set in a folder. Raises InputError."""
    files = _files(folder)
    tagged_files = [file for file in files if tagged_sentences.format_of(file)]
    parts = [file for file in files if _part(file)]
    if not tagged_files and all(file.suffix == SUFFIX for file in parts) and (parquet := of_hub(folder)):
        return parquet
    candidates = tagged_files or parts
    if not _complete(candidates) and (loose := _by_word(folder, files)):
        return loose
    if len(candidates) == 1:
        return {"": candidates[0]}
    parts = [file for file in candidates if _part(file)]
    if not parts:
        raise InputError(f"--tasks {folder}: no file in this folder has a name that ends in train, dev or test")
    if len(sets := {"*".join(_set(file)) for file in parts}) > 1:
        raise InputError(f"--tasks {folder} holds several sets ({', '.join(sorted(sets))}); name a file of one of them")
    return _by_part(folder, parts, files)


def _files(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))


def of_hub(folder: Path) -> dict[str, Path]:
    """Return the first Parquet file of each part of a data set of the hub, if there is one. Raises InputError."""
    return _by_part(folder, [paths[0] for paths in splits_of(folder).values()])


def holds_set(folder: Path) -> bool:
    """Return whether a folder holds files that end like tagged sentences: a single one, or parts of a set."""
    files = [file for file in _files(folder) if tagged_sentences.format_of(file)]
    return len(files) == 1 or any(map(_part, files))


def title(files: Mapping[str, Path]) -> str:
    """Return the name of a set: its files' name without the part, or the name of their folder."""
    first = next(iter(files.values()))
    if len({_set(file) for file in files.values()}) > 1 or (len(files) > 1 and not _part(first)):
        return first.resolve().parent.name
    return (_set(first)[0] if _part(first) else _names(first)[0]) or first.resolve().parent.name


def trains_on_dev(parts: Collection[str]) -> bool:
    """Return whether the dev file of these parts is trained on, since there is no training file."""
    return "dev" in parts and "train" not in parts


def sides(path: Path, parts: Sentences) -> Sentences:
    """Return the sentences of `train`, and of `test` or `dev` or both, in this order. Raises InputError.

    Without a training file the dev file is trained on; a hash of the words divides the sentences of a single file.
    """
    parts = dict(parts)
    if "" in parts:
        sentences = parts.pop("")
        chosen = [seed_of(0, "linear", "test", *sentence.words) % TEST_SHARE == 0 for sentence in sentences]
        for part, side in (("train", False), ("test", True)):
            parts[part] = [s for s, test in zip(sentences, chosen, strict=True) if test is side]
    if trains_on_dev(parts):
        parts["train"] = parts.pop("dev")
    parts.setdefault("train", [])
    tested = [part for part in TESTED if parts.get(part)]
    if not parts["train"] or not tested:
        counts = ", ".join(f"{part}: {len(sentences):,}" for part, sentences in parts.items())
        raise InputError(f"--tasks {path}: too few sentences to train and to test on ({counts})")
    return {"train": parts["train"]} | {part: parts[part] for part in tested}


def labels_of(path: Path, parts: Sentences) -> tuple[str, ...]:
    """Return the tags of training, then tags that only tests have. Raises InputError for one tag or too many."""
    seen = sorted({tag for sentence in parts["train"] for tag in sentence.tags})
    if len(seen) > MOST_TAGS:
        raise InputError(
            f"--tasks {path}: the training words have {len(seen):,} different tags, such as {seen[0][:40]!r}, and "
            f"{MOST_TAGS:,} are allowed; name the column of the tags, as in tag:FILE#3"
        )
    if len(seen) < 2:
        raise InputError(f"--tasks {path}: every training word has the tag {seen[0]!r}, so there is nothing to learn")
    every = {tag for sentences in parts.values() for sentence in sentences for tag in sentence.tags}
    return (*seen, *sorted(every - set(seen)))


def _by_part(path: Path, files: list[Path], beside: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the file to read of each part, of the files of a set and of those `beside` them. Raises InputError.

    Beside them annotated files count, and files of parts that the set lacks. Unless `path` is a
    folder, a warning names what is not read.
    """
    stems = {_set(file)[0] for file in files}
    annotated = [file for file in beside if file not in files and ANNOTATED.search(file.name)]
    plain = {file: file.parent / ANNOTATED.sub("", file.name) for file in annotated}
    there = {_part(file) for file in files}
    files = [
        *files,
        *(file for file in annotated if _part(plain[file]) and _set(plain[file])[0] in stems),
        *(
            file for file in beside
            if tagged_sentences.format_of(file)
            and file.name.startswith(tuple(stems))
            and _worded_part(file) not in {*there, ""}
        ),
    ]  # fmt: skip
    files = list(dict.fromkeys(files))
    by_part: dict[str, list[Path]] = {}
    for file in files:
        by_part.setdefault(_worded_part(file), []).append(file)
    chosen = {part: _only(path, part, by_part[part]) for part in by_part}
    if not path.is_dir():
        unread = [file.name for file in files if file not in chosen.values()]
        warn_of_unread(f"--tasks {path}", unread, len(files), _but(chosen))
    return chosen


def _but(chosen: Mapping[str, Path]) -> str:
    """Return the clause of a warning that names the files that are read instead."""
    return ", but " + ", ".join(
        f"{part}: {chosen[part].name}".removeprefix(": ") for part in ("train", "dev", "test", "") if part in chosen
    )


def _complete(files: Iterable[Path]) -> bool:
    """Return whether the names of some files end in the parts to train and to test on."""
    parts = {_part(file) for file in files} - {""}
    return "train" in parts and len(parts) > 1


def _by_word(path: Path, files: list[Path]) -> dict[str, Path]:
    """Return the files by the part whose word is anywhere in their names, as in `wnut17train.conll`; {} if none fit."""
    worded = [file for file in files if _worded_part(file) and file.suffix != SUFFIX]
    several = len({_worded_part(file) for file in worded}) > 1
    fits = several and "train" in map(_worded_part, worded) and (path.is_dir() or path in worded)
    return _by_part(path, worded) if fits else {}


def _only(path: Path, part: str, files: list[Path]) -> Path:
    """Return the file to read for a part: `path`, else annotated, else tagged. Raises InputError if unclear."""
    preferences: list[Callable[[Path], bool]] = [
        lambda file: file == path, lambda file: bool(ANNOTATED.search(file.name)),
        lambda file: bool(tagged_sentences.format_of(file)), tagged_sentences.holds_columns,
    ]  # fmt: skip
    for preferred in preferences:
        if len(files) > 1 and (better := [file for file in files if preferred(file)]):
            files = better
    if len(files) > 1:
        raise InputError(
            f"--tasks {path}: {' and '.join(file.name for file in files)} are the same part of a set ({part}); name "
            f"the one to read, as in tag:{files[0]}, or move the others"
        )
    return files[0]


def _worded_part(file: Path) -> str:
    """Return the part (train, dev, test) at the end of a file's name, else the last one in it; "" for none."""
    words = WORD.findall(file.name.lower())
    return _part(file) or (PARTS[words[-1]] if words else "")


def _part(file: Path) -> str:
    """Return the part that a file's name ends in, or in Parquet begins with or its folder's name; "" for none."""
    if file.suffix == SUFFIX:
        shard = SHARD.fullmatch(file.stem)
        return PARTS.get(shard[1] if shard else file.parent.name, "")
    whole, unpacked = _names(file)
    match = PART.search(whole) or PART.search(unpacked)
    return PARTS[match[1].lower()] if match else ""


def _set(file: Path) -> tuple[str, str]:
    """Return the name of a file before its part and after it, which are equal in the files of a set."""
    whole, unpacked = _names(file)
    match = PART.search(whole) or PART.search(unpacked)
    return (match.string[: match.start(1)].rstrip("._-"), unpacked[len(match.string) :]) if match else ("", "")


def _names(file: Path) -> tuple[str, str]:
    """Return the name of a file without its ending such as `.conllu.gz`, and without its compression's ending alone."""
    unpacked = file.stem if file.suffix.lower() in PACKINGS else file.name
    return Path(unpacked).stem, unpacked


SUFFIX = ".parquet"
SPLITS = ("train", "validation", "valid", "dev", "test")
SHARD = re.compile(rf"({'|'.join(SPLITS)})(?:-\d+-of-\d+)?")
DEPTHS = ("", "*/", "*/*/")
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "pos_tags", "chunk_tags")


def splits_of(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split of a data set, in order. Raises InputError if a folder holds several sets."""
    by_split: dict[tuple[Path, str], list[Path]] = {}
    for path in sorted(path for depth in DEPTHS for path in folder.glob(f"{depth}*{SUFFIX}")):
        if match := SHARD.fullmatch(path.stem):
            by_split.setdefault((path.parent, match[1]), []).append(path)
        elif path.parent.name in SPLITS and path.parent != folder:
            by_split.setdefault((path.parent.parent, path.parent.name), []).append(path)
    sets = list(dict.fromkeys(place for place, _ in by_split))
    if len(sets) > 1:
        shown = ", ".join(str(place.relative_to(folder)) or "." for place in sets)
        raise InputError(f"{folder} holds several data sets ({shown}); name the folder of one of them")
    return {split: paths for (_, split), paths in by_split.items()}


def shards(first: Path) -> list[Path]:
    """Return the files of the split that a file begins."""
    match = SHARD.fullmatch(first.stem)
    beside = first.parent.glob(f"*{SUFFIX}")
    return [path for path in beside if not match or ((m := SHARD.fullmatch(path.stem)) and m[1] == match[1])]


def read_raw(first: Path, column: str = "") -> list[Sentence]:
    """Return the sentences of a split with their tags as written; lines are row numbers. Raises InputError."""
    sentences = [sentence for path in whole_split(shards(first)) for sentence in _sentences(path, column)]
    if not any(sentence.words for sentence in sentences):
        raise InputError(f"{first} holds no tagged sentences")
    return sentences


def _sentences(path: Path, column: str) -> Iterator[Sentence]:
    names: list[str] | None = None
    words = tags = ""
    for number, (where, row) in enumerate(parquet_rows(path, str(path)), 1):
        if not words:
            words, tags = _columns(path, list(row), column)
            names = _names_of_numbers(path, tags)
        place = f"{path}, {where}"
        tokens, values = row[words], row[tags]
        if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
            raise InputError(f"{place}: {words!r} and {tags!r} are not two lists of the same length")
        if len(tokens) == 1 and isinstance(tokens[0], str) and DOCUMENT.match(tokens[0]):
            continue
        for token in tokens:
            if not isinstance(token, str) or not token.strip() or not encodable(token):
                raise InputError(f"{place}: {words!r} holds {token!r:.40}, which is not a word")
        yield Sentence(
            tuple(tokens), tuple(_tag(each, names, tags, place) for each in values), (number,) * max(1, len(tokens))
        )


def _tag(value: Any, names: list[str] | None, column: str, where: str) -> str:
    if isinstance(value, str) and value.strip() and encodable(value):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}: {column!r} holds {value!r:.40}, which is not a tag")
    if names is None:
        raise InputError(f"{where}: {column!r} holds the number {value}, and the file does not say what it is called")
    if not 0 <= value < len(names):
        raise InputError(f"{where}: {column!r} holds {value}, and the tags have numbers from 0 to {len(names) - 1}")
    return names[value]


def _columns(path: Path, columns: list[str], column: str) -> tuple[str, str]:
    words = next((name for name in WORDS if name in columns), "")
    tags = column or next((name for name in TAGS if name in columns), "")
    if not words or tags not in columns:
        lacking = column or (" or ".join(TAGS) if words else " or ".join(WORDS))
        raise InputError(f"{path} has no column {lacking}; its columns are {', '.join(columns)}")
    return words, tags


def _names_of_numbers(path: Path, column: str) -> list[str] | None:
    """Return what the numbers of a column are called, from the file's own description; None if it has none."""
    import pyarrow.parquet as pq

    metadata = (pq.read_schema(path).metadata or {}).get(b"huggingface")
    try:
        feature = json.loads(metadata)["info"]["features"][column] if metadata else None
    except (ValueError, KeyError, TypeError):
        return None
    while isinstance(feature, dict | list) and "names" not in feature:  # a list of features, in one of three spellings
        feature = feature.get("feature") if isinstance(feature, dict) else next(iter(feature), None)
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else None
