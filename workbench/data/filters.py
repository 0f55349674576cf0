"""Documents that pass the filters of length, language and duplicates, without the parts that are held out.

Held-out parts are chosen by a hash of their text, so equal parts are on one side. The language is found in a document's
first characters by py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012) without randomness.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.data import sources
from workbench.data.streams import Advance, ignore
from workbench.errors import InputError, suggest
from workbench.rng import seed_of
from workbench.spec.parts import DataSpec

Aside = Callable[[str], None]  # takes a held-out part
NEAR = "near_duplicates"
Removed = dict[str, Counter[str]]  # filter, named by its key of the spec -> the documents and words it left out


def unsuitable(data: DataSpec, document: str) -> str:
    """Return the filter (length or language) that leaves a document out, "" for none. Raises InputError."""
    if data.min_words or data.max_words is not None:
        words = len(document.split())
        if words < data.min_words:
            return "min_words"
        if data.max_words is not None and words > data.max_words:
            return "max_words"
    if data.language is not None and _model(data.language).classify(document[:CHARACTERS])[0] != data.language:
        return "language"
    return ""


def documents(
    data: DataSpec,
    found: Sequence[sources.Source],
    advance: Advance = ignore,
    limit: float = math.inf,
    hub_limit: float = math.inf,
    aside: Aside | None = None,
    words: Counter[str] | None = None,
    removed: Removed | None = None,
    near: Iterator[bool] | None = None,
) -> Iterator[str]:
    """Yield all documents, but at most `limit` characters in all, and `hub_limit` of a data set of the hub.

    `aside` is called with each held-out part. The numbers of words of all sources are added to `words`, and what each
    filter leaves out is added to `removed`. `near` says of each document whether it is left out as a near-duplicate.
    """
    for source in found:
        left = min(limit, hub_limit) if isinstance(source, sources.Hub) else limit
        share = 0.0 if isinstance(source, sources.BuiltIn) and source.name == "docs" else data.held_out
        for document in sources.read(source, data.column, advance):
            limit, left = limit - len(document), left - len(document)
            repeated = near is not None and next(near)
            if filter_ := unsuitable(data, document) or (NEAR if repeated else ""):
                if removed is not None:
                    removed.setdefault(filter_, Counter()).update(documents=1, words=len(document.split()))
            elif text := without(document, share, aside) if share else document:
                if words is not None:
                    words[sources.name_of(source)] += len(text.split())
                yield text
            if left <= 0:
                break
        if limit <= 0:
            return


NAME = "held-out.jsonl"
PIECE = 1 << 14  # characters; longer documents are divided at line ends, so that a corpus of one document has parts too
MOST = 1 << 24  # characters of held-out text that are kept at most


def without(document: str, share: float, aside: Aside | None = None) -> str:
    """Hold out a random `share` (0 to 1) of a document's parts: pass them to `aside`, and return the rest."""
    if not share:
        return document
    remaining = []
    for part in _parts(document):
        if seed_of(0, "held out", part.strip()) < share * 2**63:
            if aside is not None:
                aside(part)
        else:
            remaining.append(part)
    return "".join(remaining).strip("\n")


def _parts(document: str) -> Iterator[str]:
    """Yield a document in parts of at least PIECE characters, cut at line ends; a shorter one is one part."""
    lines: list[str] = []
    size = 0
    for line in document.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size >= PIECE:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


@contextmanager
def writing(folder: Path) -> Iterator[Aside]:
    """Yield a function that writes a part to the folder's file of held-out text, up to MOST characters in all."""
    size = 0
    with open(folder / NAME, "w", encoding="utf-8") as file:

        def put(part: str) -> None:
            nonlocal size
            size += len(part)
            if size <= MOST:
                file.write(json.dumps(part) + "\n")

        yield put


def read(folder: Path) -> list[str]:
    """Return the held-out parts of a prepared corpus in the order of the text; [] if nothing was held out."""
    path = folder / NAME
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    return [json.loads(line) for line in lines if line]


PACKAGE = "py3langid"
CHARACTERS = 2000  # of a document; more of a page seldom changes its language, and takes longer


def version_for(language: str) -> str:
    """Return the version of the package, on which the result depends. Raises InputError if it is not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise _missing(language) from None


@lru_cache(maxsize=1)
def _model(language: str) -> Any:
    """Return the model of all languages. Raises InputError if this language is not one of them."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise _missing(language) from None
    model = LanguageIdentifier.from_model_file(MODEL_FILE)
    if language not in model.labels:
        raise InputError(
            f"data.language={language} is no language of {PACKAGE}{suggest(language, model.labels)}; it knows "
            f"{', '.join(sorted(model.labels))}"
        )
    return model


def _missing(language: str) -> InputError:
    return InputError(
        f"data.language={language} needs the package {PACKAGE}; pip install 'encoder-workbench[language]'"
    )
