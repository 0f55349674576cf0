"""Preparation of a corpus: its text becomes one stream of token ids on disk, with [SEP] after each document.

The stream is cut into rows only when it is read. A prepared folder holds tokens-00000.bin ... (uint16 or uint32),
tokenizer/, manifest.json and a seal with the hashes of all files (`workbench.store.cache`). It is found in the cache by
names, sizes and times of the sources; its fingerprint depends on the text and the tokenizer alone.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from workbench.data import held_out, sources, tokenizer
from workbench.data.progress_bar import Progress, shown
from workbench.data.shards import SHARD, Shards, Text, encode, token_type
from workbench.data.subwords import TRAINED
from workbench.errors import InputError
from workbench.spec.parts import DataSpec, Special
from workbench.spec.run_spec import RunSpec, digest
from workbench.store.atomic import cache_root, copy_files
from workbench.store.cache import alone, discard, faults, is_whole, staged

FORMAT = 1
S = TypeVar("S", bound=RunSpec)  # a spec stays at its stage when facts on its text are added
log = logging.getLogger("workbench")
COUNTED = 2  # version of the counts in a manifest; older ones have no number of words, so their text is prepared again
HUB_SAMPLE = 4 * tokenizer.SAMPLE  # characters of a hub data set that are read to train a vocabulary


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus: token shards on disk, and facts on its text.

    `tokens` includes the [SEP] after each document; `bytes` and `words` count the text. Words are separated by blanks,
    as BabyLM counts them; `sources` has the number of words of each file or data set.
    """

    folder: Path
    fingerprint: str
    tokens: int
    documents: int
    bytes: int
    vocab: int
    special: Special
    tokenizer: Path
    words: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)


def prepare(spec: RunSpec, progress: Progress | None = None, cache: Path | None = None) -> Prepared:
    """Return the token shards of a spec's corpus, which are made if the cache has none.

    Progress is shown on standard error unless `progress` is given.

    Raises InputError if the corpus cannot be read or is too small for one batch, OSError if the disk fails.
    """
    root = cache or cache_root()
    found = sources.resolve(spec.data)
    key, origin = _key(spec, found, root)
    folder = root / "data" / key
    prepared = _read(folder)
    if prepared is None:
        with shown() if progress is None else nullcontext(progress) as report:
            waiting = f"another process is preparing {', '.join(spec.data.corpus)}; waiting for it"
            with alone(root / "locks" / key, lambda: report(waiting, 0, 0)):
                prepared = _read(folder)  # another process may have been quicker
                if prepared is None:
                    _build(folder, spec, found, origin, root, report)
                    prepared = _read(folder)
    assert prepared is not None, "what was just written can be read"
    _enough(prepared, spec)
    return prepared


def already(spec: RunSpec, cache: Path | None = None) -> Prepared | None:
    """Return the token shards of a spec's corpus if the cache has them, else None. Raises InputError."""
    root = cache or cache_root()
    return _read(root / "data" / _key(spec, sources.resolve(spec.data), root)[0])


def _key(spec: RunSpec, found: Sequence[sources.Source], root: Path) -> tuple[str, str]:
    """Return the name of a corpus in the cache, and the digest of its sources."""
    held_back = [spec.data.held_out] if spec.data.held_out else []  # without it, the name is that of older data
    origin = digest([[sources.identity(source) for source in found], spec.data.column, *held_back], 64)
    words = _trained(spec) if spec.data.tokenizer in TRAINED else _content(spec.data, root)
    return digest([FORMAT, SHARD, origin, words, COUNTED], 16), origin


def bind(spec: S, prepared: Prepared) -> S:
    """Return the spec with the facts of its prepared data: fingerprint, counts, special tokens and vocabulary size."""
    return counted(spec, prepared).changed(
        {
            "data.fingerprint": prepared.fingerprint,
            "data.special": prepared.special.model_dump(),
            "encoder.vocab": prepared.vocab,
        }
    )


def counted(spec: S, prepared: Prepared) -> S:
    """Return the spec with the numbers of words and tokens in its text, from which plans compute words and epochs."""
    return spec.changed({"data.words": prepared.words, "data.tokens": prepared.tokens})


def _trained(spec: RunSpec) -> list[Any]:
    own = tokenizer.settings(spec.data)
    return ["wordpiece", spec.encoder.vocab, spec.data.lowercase, tokenizer.LAYOUT, tokenizer.SAMPLE, *own]


def _content(data: DataSpec, root: Path) -> list[Any]:
    return ["given", tokenizer.content(tokenizer.train_or_load(data, 0, [], cache=root))]


def _read(folder: Path) -> Prepared | None:
    """Return the prepared corpus in a folder; None if there is none, or if its files have changed since."""
    try:
        raw = json.loads((folder / "manifest.json").read_bytes()) if is_whole(folder) else None
    except FileNotFoundError:  # another process found damage that `is_whole` did not, and removed the folder
        raw = None
    if raw is None:
        return None
    return Prepared(
        folder=folder,
        fingerprint=raw["fingerprint"],
        tokens=raw["tokens"],
        documents=raw["documents"],
        bytes=raw["bytes"],
        vocab=raw["vocab"],
        special=Special.model_validate(raw["special"]),
        tokenizer=folder / "tokenizer",
        words=raw["words"],
        sources=raw["sources"],
    )


def check(prepared: Prepared, full: bool = False) -> None:
    """Raise InputError if the files of a prepared corpus have changed; the next command prepares it again.

    With `full`, every token is read once per process, which takes about a second per GB.
    """
    (_check_fully if full else _check)(prepared.folder)


def _check(folder: Path, full: bool = False) -> None:
    if fault := next(faults(folder, full), None):
        discard(folder)
        raise InputError(
            f"{folder} has changed since it was prepared ({fault}); give the same command again, and the text is "
            f"prepared again"
        )


@cache
def _check_fully(folder: Path) -> None:
    _check(folder, full=True)


def _enough(prepared: Prepared, spec: RunSpec) -> None:
    rows = prepared.tokens // (spec.data.length - 2)
    if rows < spec.batch.size:
        raise InputError(
            f"corpus {', '.join(spec.data.corpus)} is too small for one batch: its {prepared.tokens} tokens make "
            f"{rows} rows of length {spec.data.length}, a batch has {spec.batch.size}; add text or lower batch.size"
        )


def _build(
    folder: Path, spec: RunSpec, found: list[sources.Source], origin: str, root: Path, progress: Progress
) -> None:
    def read() -> Iterator[str]:
        yield from _documents(spec.data, found, "reading", progress, HUB_SAMPLE)
        progress("training the vocabulary", 0, 0)

    words = tokenizer.train_or_load(spec.data, spec.encoder.vocab, read(), origin, root)
    encoder, special = tokenizer.fast(words), tokenizer.special(words)
    vocab = tokenizer.size(encoder)
    text, by_source = Text(), Counter[str]()
    with staged(folder) as temporary, closing(Shards(temporary, token_type(vocab))) as shards:
        copy_files(words, temporary / "tokenizer")
        with held_out.writing(temporary) if spec.data.held_out else nullcontext(None) as aside:
            documents = _documents(spec.data, found, "encoding", progress, aside=aside, words=by_source)
            encode(text.counted(documents), encoder, special.sep, shards, spec.data.tokenizer)
        counts = shards.finish()
        tokens = sum(shard["tokens"] for shard in counts)
        if not tokens:
            raise _empty(spec.data)
        _warn_of_empty(found, by_source)
        text_hash, words_hash = text.hash.hexdigest(), tokenizer.content(words)
        manifest = {
            "format": FORMAT,
            "fingerprint": digest([FORMAT, text_hash, words_hash], 16),
            "tokens": tokens,
            "documents": text.documents,
            "bytes": text.bytes,
            "words": by_source.total(),
            "sources": dict(by_source),
            "vocab": vocab,
            "special": special.model_dump(),
            "dtype": shards.dtype.str,
            "shards": counts,
            "text_sha256": text_hash,
            "tokenizer_sha256": words_hash,
            "corpus": list(spec.data.corpus),
        }
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _documents(
    data: DataSpec,
    found: list[sources.Source],
    stage: str,
    progress: Progress,
    hub_limit: float = math.inf,
    aside: Callable[[str], None] | None = None,
    words: Counter[str] | None = None,
) -> Iterator[str]:
    """Yield all documents, but at most `hub_limit` characters of a hub data set. Raises InputError if there are none.

    `aside` is called with each held-out part. The numbers of words of all sources are added to `words`.
    """
    size_known = not any(isinstance(source, sources.Hub) for source in found)
    total = sum(source.size for source in found) if size_known else 0
    done = count = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(f"{stage} {', '.join(data.corpus)}", done, total)

    for source in found:
        left = hub_limit if isinstance(source, sources.Hub) else math.inf
        share = 0.0 if isinstance(source, sources.Docs) else data.held_out
        for document in sources.read(source, data.column, advance):
            if text := held_out.without(document, share, aside):
                count += 1
                if words is not None:
                    words[sources.name_of(source)] += len(text.split())
                yield text
            if (left := left - len(document)) <= 0:
                break
    if not count:
        raise _empty(data)


def _warn_of_empty(found: Sequence[sources.Source], words: Mapping[str, int]) -> None:
    """Warn of sources without any text, such as files that were copied incompletely."""
    empty = [name for name in map(sources.name_of, found) if not words.get(name)]
    if empty:
        log.warning("there is no text in %s, which the corpus names", ", ".join(empty))


def _empty(data: DataSpec) -> InputError:
    return InputError(f"corpus {', '.join(data.corpus)} is empty: there is no text in it")
