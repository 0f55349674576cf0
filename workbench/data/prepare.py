"""Preparation of a corpus: its text becomes one stream of token ids on disk, with [SEP] after each document.

A prepared folder holds tokens-00000.bin ... (uint16 or uint32), tokenizer/, manifest.json and a seal with the hashes of
all files (`workbench.store.cache`); of a text of more than one slice (`preprocessing`), the manifest names the files of
the slices instead. The cache finds it by names, sizes and times of the sources; its fingerprint depends on the text and
the tokenizer alone.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workbench.data import filters, preprocessing, sources, tokenizer
from workbench.data.filters import NEAR, PACKAGE, Removed, documents, version_for
from workbench.data.near_duplicates import DUPLICATES, FACTS, SIGNATURES, bands_of, compare, flags
from workbench.data.preprocessing import SHARD, Plan, Slice, Text, cut, encode_into, encode_with, joined, token_type
from workbench.data.streams import Advance
from workbench.errors import InputError
from workbench.process import FOR_TEXT, check_address_space
from workbench.progress import Progress, shown
from workbench.spec.parts import TRAINED, EncoderSpec, Special
from workbench.spec.run_spec import RunSpec, digest
from workbench.store.atomic import cache_root, copy_files, read_object
from workbench.store.cache import alone, discard, faults, is_whole, read_entry, staged, write_entry

FORMAT = 1
S = TypeVar("S", bound=RunSpec)  # a spec stays at its stage when facts on its text are added
log = logging.getLogger("workbench")
COUNTED = 2  # version of the counts in a manifest
HUB_SAMPLE = 4 * tokenizer.SAMPLE  # characters of a hub data set, or of a large text, read to train a vocabulary
SPREAD = 256  # slices of a large text from whose beginnings its vocabulary is trained
_READ_FULLY: set[Path] = set()  # folders in which this process has checked every token
CHECKED, BLOCKS = 64, 4  # slices that are checked when a text is opened, and blocks of each
FACTS_OF_TEXT = ("fingerprint", "tokens", "documents", "bytes", "vocab", "words", "sources")


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus: token shards on disk, and facts on its text.

    `tokens` includes the [SEP] after each document, words are separated by blanks, `sources` has the words of each file
    or data set, and `removed` the documents and words that each filter left out, by its key of the spec.
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
    removed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def prepare(
    spec: RunSpec, progress: Progress | None = None, cache: Path | None = None, workers: int = 1,
    encode_slices: Callable[..., None] = encode_with,
) -> Prepared:  # fmt: skip
    """Return the token shards of a spec's corpus, which are made if the cache has none.

    `encode_slices` starts `workers` processes for a text of several slices; the result does not depend on their number.
    Raises InputError if the corpus cannot be read or is too small for one batch, OSError if the disk fails.
    """
    root = (cache or cache_root()).absolute()
    found = sources.resolve(spec.data)
    key, origin = _key(spec, found, root)
    prepared = _read(root / "data" / key)
    if prepared is None:
        check_address_space(FOR_TEXT, "preparing a text")
        with shown() if progress is None else nullcontext(progress) as report:
            share = partial(encode_slices, workers=workers)
            prepared = _Preparation(spec, found, cut(found), key, origin, root, share, report).carry_out()
    rows = prepared.tokens // (spec.data.length - 2)
    if rows < spec.batch.size:
        raise InputError(
            f"corpus {', '.join(spec.data.corpus)} is too small for one batch: its {prepared.tokens} tokens make "
            f"{rows} rows of length {spec.data.length}, a batch has {spec.batch.size}; add text or lower batch.size"
        )
    return prepared


def already(spec: RunSpec, cache: Path | None = None) -> Prepared | None:
    """Return the token shards of a spec's corpus if the cache has them, else None. Raises InputError."""
    root = cache or cache_root()
    return _read(root / "data" / _key(spec, sources.resolve(spec.data), root)[0])


def _key(spec: RunSpec, found: Sequence[sources.Source], root: Path) -> tuple[str, str]:
    """Return the name of a corpus in the cache, and the digest of its sources and filters."""
    data = spec.data
    filters: list[Any] = [data.held_out] if data.held_out else []
    if data.min_words or data.max_words:
        filters.append({"min_words": data.min_words, "max_words": data.max_words})
    if data.language is not None:
        filters.append({"language": data.language, PACKAGE: version_for(data.language)})
    if data.near_duplicates is not None:
        filters.append({NEAR: data.near_duplicates})
    origin = digest([[*map(sources.identity, found)], data.column, *filters], 64)
    if data.tokenizer in TRAINED:
        own = tokenizer.settings(data)
        words = ["wordpiece", spec.encoder.vocab, data.lowercase, tokenizer.LAYOUT, tokenizer.SAMPLE, *own]
    else:
        words = ["given", tokenizer.content(tokenizer.train_or_load(data, 0, [], cache=root))]
    return digest([FORMAT, SHARD, origin, words, COUNTED], 16), origin


def bind(spec: S, prepared: Prepared) -> S:
    """Return the spec with the facts of its prepared data: fingerprint, counts, special tokens and vocabulary size."""
    facts = {"fingerprint": prepared.fingerprint, "special": prepared.special}
    data = spec.data.model_copy(update=facts | {"words": prepared.words, "tokens": prepared.tokens})
    if spec.encoder.vocab != prepared.vocab:
        encoder = EncoderSpec.model_validate({**spec.encoder.model_dump(), "vocab": prepared.vocab})
        spec = spec.model_copy(update={"encoder": encoder})
    return spec.model_copy(update={"data": data})


def counted(spec: S, prepared: Prepared) -> S:
    """Return the spec with the numbers of words and tokens in its text, from which plans compute words and epochs."""
    counts = {"words": prepared.words, "tokens": prepared.tokens}
    return spec.model_copy(update={"data": spec.data.model_copy(update=counts)})


def _read(folder: Path) -> Prepared | None:
    """Return the prepared corpus in a folder; None if there is none, or if its files have changed since."""
    try:
        if not is_whole(folder):
            return None
        manifest = json.loads((folder / "manifest.json").read_bytes())
    except FileNotFoundError:  # another process found damage that `is_whole` did not, and removed the folder
        return None
    damaged, facts = list[Path](), dict[str, Any]()
    for place in _slices(folder, manifest):
        damaged += [] if is_whole(place, BLOCKS) else [place]
    if damaged:
        for place in (folder, *damaged):
            discard(place)
        return None
    for name in FACTS_OF_TEXT:
        facts[name] = manifest[name]
    special, removed = Special.model_validate(manifest["special"]), manifest.get("removed", {})
    return Prepared(folder=folder, special=special, tokenizer=folder / "tokenizer", removed=removed, **facts)


def _slices(folder: Path, manifest: Mapping[str, Any], full: bool = False) -> list[Path]:
    """Return the slice folders to check for a prepared text: all if `full`, else at most CHECKED, drawn every hour."""
    names = manifest.get("slices", [])
    if len(names) > CHECKED and not full:
        names = random.Random(time.time() // 3600).sample(names, CHECKED)
    return [*map((folder.parent.parent / "slices").joinpath, names)]


def check(prepared: Prepared, full: bool = False) -> None:
    """Raise InputError if a prepared corpus has changed; with `full`, each token is read once (about 1 s per GB)."""
    folder = prepared.folder
    if full and folder in _READ_FULLY:
        return
    place, fault = folder, next(faults(folder, full), None)
    if fault is None:  # else its manifest, which names the slices, may be damaged
        for place in _slices(folder, json.loads((folder / "manifest.json").read_bytes()), full):
            if fault := next(faults(place, full, blocks=BLOCKS), None):
                break
    if fault:
        for each in {place, folder}:
            discard(each)
        raise InputError(
            f"{folder} has changed since it was prepared ({fault}); give the same command again, and the text is "
            f"prepared again"
        )
    if full:
        _READ_FULLY.add(folder)


@dataclass
class _Preparation:
    """A text that is being prepared: its slices, its name `key` in the cache `root`, and the digest of its sources.

    `share` encodes the slices of a plan by any number of processes. `near` is the folder with the flags of
    near-duplicates, None if no document is left out as one.
    """

    spec: RunSpec
    found: list[sources.Source]
    slices: list[Slice]
    key: str
    origin: str
    root: Path
    share: Callable[..., None]
    report: Progress
    near: Path | None = None

    def carry_out(self) -> Prepared:
        """Make the folder of the text, unless another process is quicker, and return what it holds."""
        data, folder = self.spec.data, self.root / "data" / self.key
        if data.near_duplicates is not None:
            self.near = self._near_duplicates(data.near_duplicates)
        if len(self.slices) > 1:
            with self._alone(self.key, "preparing"):
                words, text_hash = self._survey()
                plan = Plan(self.root, self.key, data, words, tuple(self.slices), self.near.name if self.near else "")
                plan.begin()
            self.share(plan, advance=self._stage("encoding"))
        with self._alone(self.key, "preparing"):
            if (prepared := _read(folder)) is None:  # else another process was quicker
                if len(self.slices) > 1:
                    self._merge(folder, plan, text_hash)
                else:
                    words = self._vocabulary(self._documents("reading", hub_limit=HUB_SAMPLE), self.origin)
                    read = partial(self._documents, "encoding")
                    with staged(folder) as temporary:
                        facts, text_hash = encode_into(temporary, data, words, read)
                        self._write_manifest(temporary, words, text_hash, facts)
                prepared = _read(folder)
        assert prepared is not None, "a folder that was just written can be read"
        return prepared

    def _near_duplicates(self, similarity: float) -> Path:
        """Return the folder with the flags of the text's documents, which is made if there is none."""
        bands, _ = bands_of(similarity)
        key = digest([SIGNATURES, self.origin, [sources.size_of(each) for each in self.slices]], 16)
        folder = self.root / DUPLICATES / key
        if is_whole(folder):
            return folder
        plan = Plan(self.root, key, self.spec.data, None, tuple(self.slices))
        with self._alone(key, "comparing the documents of"):
            plan.begin()
        self.share(plan, advance=self._stage("comparing"))
        with self._alone(key, "comparing the documents of"):
            if not is_whole(folder):
                with staged(folder) as temporary:
                    compare(plan.folders(), bands, temporary)
            preprocessing.remove_locks(plan)
        return folder

    def _survey(self) -> tuple[Path, str | None]:
        """Return the folder of the vocabulary, and the SHA-256 of the text (None for a large text).

        Both are read from the cache if it has them. For a large text or one on the hub, the vocabulary is trained on
        the beginnings of slices that are spread evenly over the text.
        """
        whole = sources.size_of(self.found) <= preprocessing.WHOLE
        if not whole or any(isinstance(source, sources.Hub) for source in self.found):
            count = min(SPREAD, len(self.slices))
            self.report("reading parts of the text", 0, 0)
            sample = (
                document
                for number in (number * len(self.slices) // count for number in range(count))
                for document in documents(
                    self.spec.data,
                    self.slices[number],
                    limit=HUB_SAMPLE / count,
                    near=None if self.near is None else flags(self.near, number),
                )
            )
            return self._vocabulary(sample, f"{self.origin} sampled"), None
        path, text = self.root / "texts" / f"{self.origin}.json", Text()
        known = read_entry(path)
        words = self._vocabulary(text.counted(self._documents("reading")), self.origin)
        if known is None:
            if not text.documents:  # the vocabulary was there
                deque(text.counted(self._documents("reading")), maxlen=0)
            known = {"sha256": text.hash.hexdigest()}
            write_entry(path, known)
        return words, known["sha256"]

    def _vocabulary(self, readable: Iterable[str], key: str) -> Path:
        """Return the folder of the vocabulary, trained on these documents if the cache has none of this key."""

        def announced() -> Iterator[str]:
            yield from readable
            self.report("training the vocabulary", 0, 0)

        return tokenizer.train_or_load(self.spec.data, self.spec.encoder.vocab, announced(), key, self.root)

    def _merge(self, folder: Path, plan: Plan, text_hash: str | None) -> None:
        """Write the folder of a text whose slices are encoded. It names their files, which stay where they are."""
        assert plan.vocabulary is not None
        words, removed, total = Counter[str](), Removed(), Counter[str]()
        shards: list[dict[str, Any]] = []
        parts: list[tuple[int, int]] = []
        for slice_ in plan.folders():
            facts = read_object(slice_ / FACTS)
            total.update(documents=facts["documents"], bytes=facts["bytes"])
            words.update(facts["sources"])
            for filter_, counts_of_filter in facts.get("removed", {}).items():
                removed.setdefault(filter_, Counter()).update(counts_of_filter)
            shards += [shard | {"name": f"../../slices/{slice_.name}/{shard['name']}"} for shard in facts["shards"]]
            parts.append((facts["documents"], int(facts["text"], 16)))
        text_hash = text_hash or digest(["joined", total["documents"], joined(parts)], 64)
        of_text = {**total, "sources": words, "shards": shards, "removed": removed}
        with staged(folder) as temporary:
            if self.spec.data.held_out:
                with filters.writing(temporary) as aside:
                    for part in (part for slice_ in plan.folders() for part in filters.read(slice_)):
                        aside(part)
            slices = {"slices": [slice_.name for slice_ in plan.folders()]}
            self._write_manifest(temporary, plan.vocabulary, text_hash, of_text, slices)
        preprocessing.remove_locks(plan)

    def _write_manifest(
        self, folder: Path, words: Path, text_hash: str, facts: Mapping[str, Any],
        slices: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write the vocabulary and the manifest of a text. Raises InputError if the text has no tokens."""
        tokens, by_source, empty = 0, facts["sources"], list[str]()
        for shard in facts["shards"]:
            tokens += shard["tokens"]
        if not tokens:
            raise self._empty()
        for name in map(sources.name_of, self.found):
            empty += [] if by_source.get(name) else [name]
        if empty:
            log.warning("there is no text in %s, which the corpus names", ", ".join(empty))
        copy_files(words, folder / "tokenizer")
        words_hash, vocab = tokenizer.content(words), tokenizer.size(tokenizer.fast(words))
        manifest = {
            "format": FORMAT,
            "fingerprint": digest([FORMAT, text_hash, words_hash], 16),
            "tokens": tokens,
            "documents": facts["documents"],
            "bytes": facts["bytes"],
            "words": sum(by_source.values()),
            "sources": dict(by_source),
            "vocab": vocab,
            "special": tokenizer.special(words).model_dump(),
            "dtype": token_type(vocab).str,
            "shards": facts["shards"],
            "text_sha256": text_hash,
            "tokenizer_sha256": words_hash,
            "corpus": list(self.spec.data.corpus),
            **(slices or {}),
            **({"removed": facts["removed"]} if facts["removed"] else {}),
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _documents(self, stage: str, **options: Any) -> Iterator[str]:
        """Yield all documents, as `documents` does with these options. Raises InputError if there are none."""
        empty = True
        near = None if self.near is None else flags(self.near)
        for document in documents(self.spec.data, self.found, self._stage(stage), near=near, **options):
            empty = False
            yield document
        if empty:
            raise self._empty()

    def _stage(self, stage: str) -> Advance:
        """Return a function that reports the progress of a stage, from the bytes read since the last call."""
        total, done = 0 if sources.Hub in map(type, self.found) else sources.size_of(self.found), 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            self.report(f"{stage} {', '.join(self.spec.data.corpus)}", done, total)

        return advance

    def _alone(self, key: str, what: str) -> AbstractContextManager[object]:
        """Hold the lease of the text or its flags, and report that another process has it as long as it does."""
        waits = f"another process is {what} {', '.join(self.spec.data.corpus)}; waiting for it"
        return alone(self.root / "locks" / key, lambda: self.report(waits, 0, 0))

    def _empty(self) -> InputError:
        """Return the error for a text without any document, or without one that passes the filters."""
        data, name = self.spec.data, f"corpus {', '.join(self.spec.data.corpus)}"
        limits = [f"data.min_words={data.min_words}"] * (data.min_words > 0)
        limits += [f"data.max_words={data.max_words}"] * (data.max_words is not None)
        limits += [f"data.language={data.language}"] * (data.language is not None)
        if limits:
            return InputError(f"{name} has no document within {' and '.join(limits)}; change these limits")
        return InputError(f"{name} is empty: there is no text in it")
