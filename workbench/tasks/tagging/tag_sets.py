"""Files of tagged sentences as tasks, and what is unusual about their data, in sentences that name file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.data import tagged_sentences, tagged_sets
from workbench.data.tagged_sentences import Sentence, as_iob2, deviations, marks_spans, scheme_of
from workbench.errors import plural
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.task import numbered

MOST = 5  # tags that a sentence lists


def load(name: str, path: Path, column: str) -> Tagging:
    """Return the set of tagged sentences at a path as a task. Raises InputError naming the file and the line."""
    files = tagged_sets.files_of(path)
    read = {part: _read(file, column) for part, file in files.items()}
    whole = [sentence for sentences in read.values() for sentence in sentences]
    spans = marks_spans(tag for sentence in whole for tag in sentence.tags)
    scheme = ""
    if spans:
        for part, sentences in read.items():
            tagged_sentences.refuse_untyped(files[part], sentences)
        scheme = scheme_of([sentence.tags for sentence in whole])
    on_dev = tagged_sets.trains_on_dev(files)
    notes = [f"{files['dev'].name} is trained on, as there is no training file"] if on_dev else []
    notes += [note for part, file in files.items() for note in _faults(file, read[part], scheme)]
    parts = tagged_sets.sides(path, {part: _usable(sentences, spans) for part, sentences in read.items()})
    train = parts.pop("train")
    tested = [sentence.tags for sentences in parts.values() for sentence in sentences]
    labels = tagged_sets.labels_of(path, [sentence.tags for sentence in train], tested)
    known = {tag for sentence in train for tag in sentence.tags}
    for part, sentences in parts.items():
        file = files.get(part) or next(iter(files.values()))
        notes += [*_unseen(part, file, sentences, known), *_shared(part, file, sentences, train)]
    tests = {part: numbered(sentences, labels) for part, sentences in parts.items()}
    return Tagging(name, labels, len(known), scheme, numbered(train, labels), tests, tuple(notes))


def _read(file: Path, column: str) -> list[Sentence]:
    """Return the sentences of a file, or of all Parquet files of its split."""
    if file.suffix == tagged_sets.SUFFIX:
        return tagged_sets.read_raw(file, column)
    return tagged_sentences.read_raw(file, column)


def _usable(sentences: Sequence[Sentence], spans: bool) -> list[Sentence]:
    """Return the sentences that have words, with the tags of spans in IOB2."""
    kept = [sentence for sentence in sentences if sentence.words]
    return [Sentence(each.words, as_iob2(each.tags), each.lines) for each in kept] if spans else kept


def _faults(file: Path, sentences: Sequence[Sentence], scheme: str) -> Iterator[str]:
    """Yield a sentence on sentences without words, and one on tags that do not follow the scheme."""
    empty = [sentence.lines[0] for sentence in sentences if not sentence.words]
    if empty:
        yield f"{file.name}, first at line {empty[0]}: {plural(len(empty), 'sentence')} without words, left out"
    wrong = [
        (sentence.lines[place], sentence.tags[place])
        for sentence in sentences if scheme
        for place in deviations(sentence.tags, scheme)
    ]  # fmt: skip
    if wrong:
        line, tag = wrong[0]
        follow = "tag does not follow" if len(wrong) == 1 else "tags do not follow"
        place = f"{file.name}, first at line {line}"
        yield f"{place}: {len(wrong):,} {follow} {scheme} ({tag}), read as conlleval reads them"


def _unseen(part: str, file: Path, sentences: Sequence[Sentence], known: set[str]) -> Iterator[str]:
    """Yield a sentence on words of a test part whose tags no training word has."""
    words = [
        (line, tag)
        for each in sentences for line, tag in zip(each.lines, each.tags, strict=True) if tag not in known
    ]  # fmt: skip
    if words:
        tags = list(dict.fromkeys(tag for _, tag in words))
        shown = ", ".join(tags[:MOST] + ([f"{len(tags) - MOST} more"] if len(tags) > MOST else []))
        have = "has a tag" if len(words) == 1 else "have tags"
        yield (
            f"{file.name}, first at line {words[0][0]}: {plural(len(words), 'word')} of {part} {have} that no training "
            f"word has ({shown}), counted as errors"
        )


def _shared(part: str, file: Path, sentences: Sequence[Sentence], train: Sequence[Sentence]) -> Iterator[str]:
    """Yield a sentence on sentences of a test part that are training sentences too."""
    trained = {sentence.words for sentence in train}
    both = [sentence for sentence in sentences if sentence.words in trained]
    if both:
        are = "is also a training sentence" if len(both) == 1 else "are also training sentences"
        counts = f"{len(both):,} of {plural(len(sentences), 'sentence')} of {part}"
        yield f"{file.name}, first at line {both[0].lines[0]}: {counts} {are}, word by word"
