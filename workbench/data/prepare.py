"""Preparation of a corpus: its text becomes one stream of token ids on disk, with [SEP] after each document.

The stream is cut into rows only when it is read. A prepared folder holds tokens-00000.bin ... (uint16 or uint32),
tokenizer/, manifest.json and a seal with the hashes of all files (`workbench.store.cache`). It is found in the cache by
names, sizes and times of the sources; its fingerprint depends on the text and the tokenizer alone.

A text of more than one slice (`slices.cutting`) is encoded slice by slice, by any number of processes. Then its folder
has no tokens-*.bin, and its manifest names those of the slices, which are folders of the cache beside it.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workbench.data import filters, sources, tokenizer
from workbench.data.filters import NEAR, PACKAGE, Removed, documents, version_for
from workbench.data.near_duplicates import left_out
from workbench.data.preprocessing import (
    Plan,
    Slice,
    cut,
    discard_damaged,
    encode_with,
    facts_of,
    flags,
    held_out_parts,
    is_small,
    remove_locks,
)
from workbench.data.shards import SHARD, Shards, Text, encode, joined, token_type
from workbench.data.streams import Advance
from workbench.data.subwords import TRAINED
from workbench.errors import InputError
from workbench.process import FOR_TEXT, check_address_space
from workbench.progress import Progress, shown
from workbench.spec.parts import DataSpec, EncoderSpec, Special
from workbench.spec.run_spec import RunSpec, digest
from workbench.store.atomic import cache_root, copy_files
from workbench.store.cache import alone, discard, faults, is_whole, read_entry, staged, write_entry

FORMAT = 1
S = TypeVar("S", bound=RunSpec)  # a spec stays at its stage when facts on its text are added
log = logging.getLogger("workbench")
COUNTED = 2  # version of the counts in a manifest; older ones have no number of words, so their text is prepared again
HUB_SAMPLE = 4 * tokenizer.SAMPLE  # characters of a hub data set, or of a large text, read to train a vocabulary
SPREAD = 256  # slices of a large text from whose beginnings its vocabulary is trained
_READ_FULLY: set[Path] = set()  # folders of which this process has compared every token
CHECKED, BLOCKS = 64, 4  # slices that are checked when a text is opened, and blocks of each


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus: token shards on disk, and facts on its text.

    `tokens` includes the [SEP] after each document; `bytes` and `words` count the text. Words are separated by blanks,
    as BabyLM counts them; `sources` has the number of words of each file or data set, and `removed` the documents and
    words that each filter left out, by its key of the spec.
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

    A text of more than one slice is encoded by `workers` processes, which `encode_slices` starts, beside those of the
    same command elsewhere; the result does not depend on their number. Progress is shown on standard error unless
    `progress` is given.

    Raises InputError if the corpus cannot be read or is too small for one batch, OSError if the disk fails.
    """
    root = (cache or cache_root()).absolute()
    found = sources.resolve(spec.data)
    key, origin = _key(spec, found, root)
    folder = root / "data" / key
    prepared = _read(folder)
    if prepared is None:
        check_address_space(FOR_TEXT, "preparing a text")
        slices = cut(found)
        with shown() if progress is None else nullcontext(progress) as report:
            share = partial(encode_slices, workers=workers)
            near = _near_duplicates(spec, found, slices, origin, root, share, report)
            if len(slices) > 1:
                plan, whole = _encode_slices(spec, found, slices, key, origin, root, share, report, near)
            with _alone(spec, key, root, report):
                prepared = _read(folder)  # another process may have been quicker
                if prepared is None:
                    if len(slices) > 1:
                        _merge(folder, spec, found, plan, whole)
                    else:
                        _build(folder, spec, found, origin, root, report, near)
                    prepared = _read(folder)
    assert prepared is not None, "what was just written can be read"
    rows = prepared.tokens // (spec.data.length - 2)
    if rows < spec.batch.size:
        raise InputError(
            f"corpus {', '.join(spec.data.corpus)} is too small for one batch: its {prepared.tokens} tokens make "
            f"{rows} rows of length {spec.data.length}, a batch has {spec.batch.size}; add text or lower batch.size"
        )
    return prepared


def _alone(spec: RunSpec, key: str, root: Path, report: Progress) -> AbstractContextManager[object]:
    """Hold the lease of a text, and report that another process has it as long as it does."""
    waiting = f"another process is preparing {', '.join(spec.data.corpus)}; waiting for it"
    return alone(root / "locks" / key, lambda: report(waiting, 0, 0))


def _near_duplicates(
    spec: RunSpec, found: list[sources.Source], slices: list[Slice], origin: str, root: Path,
    share: Callable[..., None], report: Progress,
) -> Path | None:  # fmt: skip
    """Return the folder that says which documents are near-duplicates of earlier ones; None if they all stay."""
    if spec.data.near_duplicates is None:
        return None
    waiting = f"another process is comparing the documents of {', '.join(spec.data.corpus)}; waiting for it"
    advance = _stage("comparing", spec.data, found, report)
    return left_out(spec.data, slices, origin, root, share, advance, lambda: report(waiting, 0, 0))


def already(spec: RunSpec, cache: Path | None = None) -> Prepared | None:
    """Return the token shards of a spec's corpus if the cache has them, else None. Raises InputError."""
    root = cache or cache_root()
    return _read(root / "data" / _key(spec, sources.resolve(spec.data), root)[0])


def _key(spec: RunSpec, found: Sequence[sources.Source], root: Path) -> tuple[str, str]:
    """Return the name of a corpus in the cache, and the digest of its sources."""
    held_back = [spec.data.held_out] if spec.data.held_out else []  # without it, the name is that of older data
    lengths = {"min_words": spec.data.min_words, "max_words": spec.data.max_words}
    filters: list[Any] = [lengths] if any(lengths.values()) else []
    if spec.data.language is not None:
        filters.append({"language": spec.data.language, PACKAGE: version_for(spec.data.language)})
    if spec.data.near_duplicates is not None:
        filters.append({NEAR: spec.data.near_duplicates})
    origin = digest([[sources.identity(source) for source in found], spec.data.column, *held_back, *filters], 64)
    words = _trained(spec) if spec.data.tokenizer in TRAINED else _content(spec.data, root)
    return digest([FORMAT, SHARD, origin, words, COUNTED], 16), origin


def bind(spec: S, prepared: Prepared) -> S:
    """Return the spec with the facts of its prepared data: fingerprint, counts, special tokens and vocabulary size."""
    facts = {"fingerprint": prepared.fingerprint, "special": prepared.special}
    data = counted(spec, prepared).data.model_copy(update=facts)
    if spec.encoder.vocab != prepared.vocab:
        encoder = EncoderSpec.model_validate({**spec.encoder.model_dump(), "vocab": prepared.vocab})
        spec = spec.model_copy(update={"encoder": encoder})
    return spec.model_copy(update={"data": data})


def counted(spec: S, prepared: Prepared) -> S:
    """Return the spec with the numbers of words and tokens in its text, from which plans compute words and epochs."""
    counts = {"words": prepared.words, "tokens": prepared.tokens}
    return spec.model_copy(update={"data": spec.data.model_copy(update=counts)})


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
    if damaged := [place for place in _slices(folder, raw) if not is_whole(place, BLOCKS)]:
        for place in (folder, *damaged):
            discard(place)
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
        removed=raw.get("removed", {}),
    )


def _slices(folder: Path, manifest: Mapping[str, Any], most: int = CHECKED) -> list[Path]:
    """Return the folders of the slices of a prepared text, or `most` of them, other ones every hour."""
    names = manifest.get("slices", [])
    drawn = random.Random(time.time() // 3600).sample(names, most) if len(names) > most else names
    return [folder.parent.parent / "slices" / name for name in drawn]


def check(prepared: Prepared, full: bool = False) -> None:
    """Raise InputError if the files of a prepared corpus have changed; the next command prepares it again.

    With `full`, every token is read once per process, which takes about a second per GB.
    """
    folder = prepared.folder
    if full and folder in _READ_FULLY:
        return
    if damage := next(_damage(folder, full), None):
        place, fault = damage
        for each in {place, folder}:
            discard(each)
        raise InputError(
            f"{folder} has changed since it was prepared ({fault}); give the same command again, and the text is "
            f"prepared again"
        )
    if full:
        _READ_FULLY.add(folder)


def _damage(folder: Path, full: bool) -> Iterator[tuple[Path, str]]:
    """Yield each fault of a prepared text, with the folder in which it is: that of the text, or of a slice."""
    for fault in faults(folder, full):
        yield folder, fault
        return  # its manifest, which names the slices, may be damaged
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for place in _slices(folder, manifest, len(manifest.get("slices", [])) if full else CHECKED):
        yield from ((place, fault) for fault in faults(place, full, blocks=BLOCKS))


def _build(
    folder: Path, spec: RunSpec, found: list[sources.Source], origin: str, root: Path, report: Progress,
    near: Path | None,
) -> None:  # fmt: skip
    """Write the folder of a text that is one slice."""
    read = partial(_documents, spec.data, found)

    def readable() -> Iterator[str]:
        yield from read(_stage("reading", spec.data, found, report), hub_limit=HUB_SAMPLE, near=_flags(near))
        report("training the vocabulary", 0, 0)

    words = tokenizer.train_or_load(spec.data, spec.encoder.vocab, readable(), origin, root)
    encoder, special = tokenizer.fast(words), tokenizer.special(words)
    text, by_source, removed = Text(), Counter[str](), Removed()
    with staged(folder) as temporary, closing(Shards(temporary, token_type(tokenizer.size(encoder)))) as shards:
        with filters.writing(temporary) if spec.data.held_out else nullcontext(None) as aside:
            advance = _stage("encoding", spec.data, found, report)
            encode(
                text.counted(read(advance, aside=aside, words=by_source, removed=removed, near=_flags(near))),
                encoder,
                special.sep,
                shards,
                spec.data.tokenizer,
            )
        facts = Facts(text.documents, text.bytes, text.hash.hexdigest(), dict(by_source), shards.finish(), removed)
        _write_manifest(temporary, spec, found, words, facts)


def _encode_slices(
    spec: RunSpec,
    found: list[sources.Source],
    slices: list[Slice],
    key: str,
    origin: str,
    root: Path,
    share: Callable[..., None],
    report: Progress,
    near: Path | None,
) -> tuple[Plan, str | None]:
    """Encode a text of several slices in the cache, beside other processes that do the same.

    Return their plan, and the SHA-256 of the text if it is small.
    """
    with _alone(spec, key, root, report):
        words, whole = _survey(spec, found, slices, origin, root, report, near)
        plan = Plan(root, key, spec.data, words, tuple(slices), near.name if near else "")
        plan.write()
        discard_damaged(plan)
    share(plan, advance=_stage("encoding", spec.data, found, report))
    return plan, whole


def _survey(
    spec: RunSpec, found: list[sources.Source], slices: list[Slice], origin: str, root: Path, report: Progress,
    near: Path | None,
) -> tuple[Path, str | None]:  # fmt: skip
    """Return the folder of the vocabulary, and the SHA-256 of a small text, both from the cache if they are there.

    The vocabulary of a text that is not small is trained on the beginnings of slices that are spread evenly over it.
    """
    if not is_small(found):
        count = min(SPREAD, len(slices))
        chosen = [number * len(slices) // count for number in range(count)]
        report("reading parts of the text, and training the vocabulary", 0, 0)
        starts = (
            documents(spec.data, slices[number].sources, limit=HUB_SAMPLE / count, near=_flags(near, number))
            for number in chosen
        )
        sample = (document for start in starts for document in start)
        return tokenizer.train_or_load(spec.data, spec.encoder.vocab, sample, f"{origin} sampled", root), None
    path, text = root / "texts" / f"{origin}.json", Text()
    known = read_entry(path)

    def readable() -> Iterator[str]:
        advance = _stage("reading", spec.data, found, report)
        yield from text.counted(_documents(spec.data, found, advance, near=_flags(near)))
        report("training the vocabulary", 0, 0)

    words = tokenizer.train_or_load(spec.data, spec.encoder.vocab, readable(), origin, root)
    if known is None:
        if not text.documents:  # the vocabulary was there
            deque(readable(), maxlen=0)
        known = {"sha256": text.hash.hexdigest()}
        write_entry(path, known)
    return words, known["sha256"]


def _merge(folder: Path, spec: RunSpec, found: list[sources.Source], plan: Plan, whole: str | None) -> None:
    """Write the folder of a text whose slices are encoded. It names their files, which stay where they are."""
    assert plan.vocabulary is not None
    each = facts_of(plan)
    words, removed = Counter[str](), Removed()
    for facts in each:
        words.update(facts["sources"])
        for filter_, counts_of_filter in facts.get("removed", {}).items():
            removed.setdefault(filter_, Counter()).update(counts_of_filter)
    counts = [(facts["documents"], int(facts["text"], 16)) for facts in each]
    documents = sum(count for count, _ in counts)
    shards = [
        shard | {"name": f"../../slices/{plan.name(number)}/{shard['name']}"}
        for number, facts in enumerate(each)
        for shard in facts["shards"]
    ]
    text_hash = whole or digest(["joined", documents, joined(counts)], 64)
    with staged(folder) as temporary:
        if spec.data.held_out:
            with filters.writing(temporary) as aside:
                for part in held_out_parts(plan):
                    aside(part)
        size = sum(facts["bytes"] for facts in each)
        facts_of_text = Facts(documents, size, text_hash, dict(words), shards, removed)
        slices = [plan.name(number) for number in range(len(each))]
        _write_manifest(temporary, spec, found, plan.vocabulary, facts_of_text, slices)
    remove_locks(plan)


def _flags(near: Path | None, number: int | None = None) -> Iterator[bool] | None:
    """Return the flags of the documents of a text, or of one slice; None if no near-duplicates are left out."""
    return None if near is None else flags(near, number)


@dataclass(frozen=True)
class Facts:
    """Counts of a text, its hash, the number of words of each source, its token shards, and what filters left out."""

    documents: int
    bytes: int
    text_hash: str
    sources: dict[str, int]
    shards: list[dict[str, Any]]
    removed: Removed


def _write_manifest(
    folder: Path, spec: RunSpec, found: list[sources.Source], words: Path, facts: Facts, slices: Sequence[str] = ()
) -> None:
    """Write the vocabulary and the manifest of a text. Raises InputError if the text has no tokens."""
    tokens = sum(shard["tokens"] for shard in facts.shards)
    if not tokens:
        raise _empty(spec.data)
    _warn_of_empty(found, facts.sources)
    copy_files(words, folder / "tokenizer")
    words_hash = tokenizer.content(words)
    vocab = tokenizer.size(tokenizer.fast(words))
    manifest = {
        "format": FORMAT,
        "fingerprint": digest([FORMAT, facts.text_hash, words_hash], 16),
        "tokens": tokens,
        "documents": facts.documents,
        "bytes": facts.bytes,
        "words": sum(facts.sources.values()),
        "sources": facts.sources,
        "vocab": vocab,
        "special": tokenizer.special(words).model_dump(),
        "dtype": token_type(vocab).str,
        "shards": facts.shards,
        "text_sha256": facts.text_hash,
        "tokenizer_sha256": words_hash,
        "corpus": list(spec.data.corpus),
        **({"slices": list(slices)} if slices else {}),
        **({"removed": facts.removed} if facts.removed else {}),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _stage(name: str, data: DataSpec, found: list[sources.Source], report: Progress) -> Advance:
    """Return a function that reports the progress of a stage, from the bytes read since the last call."""
    size_known = not any(isinstance(source, sources.Hub) for source in found)
    total = sum(source.size for source in found) if size_known else 0
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        report(f"{name} {', '.join(data.corpus)}", done, total)

    return advance


def _documents(data: DataSpec, found: list[sources.Source], advance: Advance, **options: Any) -> Iterator[str]:
    """Yield all documents, as `documents` does with these options. Raises InputError if there are none."""
    empty = True
    for document in documents(data, found, advance, **options):
        empty = False
        yield document
    if empty:
        raise _empty(data)


def _warn_of_empty(found: Sequence[sources.Source], words: Mapping[str, int]) -> None:
    """Warn of sources without any text, such as files that were copied incompletely."""
    empty = [name for name in map(sources.name_of, found) if not words.get(name)]
    if empty:
        log.warning("there is no text in %s, which the corpus names", ", ".join(empty))


def _empty(data: DataSpec) -> InputError:
    name = f"corpus {', '.join(data.corpus)}"
    limits = [f"data.min_words={data.min_words}"] * (data.min_words > 0)
    limits += [f"data.max_words={data.max_words}"] * (data.max_words is not None)
    limits += [f"data.language={data.language}"] * (data.language is not None)
    if limits:
        return InputError(f"{name} has no document within {' and '.join(limits)}; change these limits")
    return InputError(f"{name} is empty: there is no text in it")
