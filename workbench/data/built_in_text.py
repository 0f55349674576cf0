"""The built-in corpora, `docs` and `python-code`, made of the packages on this machine; nothing is downloaded.

`docs` is docstrings and the language reference, parsed, cleaned (`docstrings`), deduplicated and split by module; no
test text occurs on the train side. `python-code` is whole files of modules on the train side of `docs`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Literal

from workbench.errors import InputError
from workbench.progress import shown
from workbench.spec.host import cores
from workbench.spec.run_spec import digest
from workbench.store.atomic import cache_root
from workbench.store.cache import alone, is_whole, staged

Split = Literal["train", "test"]
PACKAGES = ("python", "numpy", "pandas", "matplotlib", "scipy", "torch")
SKIPPED_FOLDERS = {
    "site-packages", "dist-packages", "test", "tests", "testing", "_vendor", "vendor", "vendored", "third_party",
    "extern", "externals", "__pycache__", "idlelib", "lib2to3", "turtledemo", "__phello__",
}  # fmt: skip
TEST_SHARE = 0.1
SHARED_WORDS = 8  # a test paragraph may not share this many consecutive words with the train side
SHORT_WORDS = 4  # nor may it share a whole sentence of at least this many words
SENTENCE_ENDS = (re.compile(r"(?<=[.!?])\s"), re.compile(r"(?<=[.!?:;])\s"))


@dataclass(frozen=True)
class Entry:
    """A cleaned docstring, a paragraph a line; its name is like "DataFrame.merge", its signature "f(x, y=1)" or ""."""

    package: str
    module: str
    name: str
    signature: str
    text: str


@dataclass(frozen=True)
class Info:
    """Facts of the built-in corpus: package versions, missing packages, entries and bytes of each split, SHA-256."""

    fingerprint: str
    packages: dict[str, str]
    missing: tuple[str, ...]
    entries: dict[str, int]
    bytes: dict[str, int]


def entries(split: Split) -> list[Entry]:
    """Return all entries of a split, sorted by package, module and place in the file; made if the cache has none."""
    return list(_load(str(_cached()), split))


def documents(split: Split) -> Iterator[str]:
    """Yield one document for each module: the signature of each entry on its own line, then its paragraphs."""
    for _, group in groupby(entries(split), key=lambda entry: (entry.package, entry.module)):
        yield "\n".join(line for entry in group for line in (entry.signature, entry.text) if line)


def info() -> Info:
    """Return the facts of the built-in corpus; the corpus is made if it is not in the cache."""
    raw = json.loads((_cached() / "info.json").read_text())
    return Info(**{**raw, "missing": tuple(raw["missing"])})


@lru_cache(maxsize=4)
def _load(folder: str, split: Split) -> tuple[Entry, ...]:
    with open(Path(folder, f"{split}.jsonl"), encoding="utf-8") as lines:
        return tuple(Entry(*json.loads(line)) for line in lines)


def _cached() -> Path:
    """Return the folder of the corpus for the installed versions, which is made if the cache has no intact one."""
    roots = installed("docs")
    versions = dict.fromkeys(roots, "unknown")
    for package in roots:
        with suppress(importlib.metadata.PackageNotFoundError):
            is_python = package == "python"
            versions[package] = platform.python_version() if is_python else importlib.metadata.version(package)
    makers = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("built_in_text", "docstrings")]
    code = [hashlib.sha256(source).hexdigest() for source in makers]  # changed cleaning code makes another corpus
    folder = cache_root() / "docs" / digest([code, [[p, str(roots[p]), versions[p]] for p in roots]], 16)
    if not is_whole(folder):
        with shown() as report, alone(cache_root() / "locks" / f"docs-{folder.name}", lambda: None):
            report(f"collecting docstrings of {', '.join(roots)}", 0, 0)
            if not is_whole(folder):
                _build(folder, roots, versions)
    return folder


def installed(corpus: str) -> dict[str, Path]:
    """Return the folders of the installed PACKAGES. Raises InputError, which names the corpus, if there are none."""
    roots = {package: root for package in PACKAGES if (root := _root(package))}
    if not roots:
        raise InputError(
            f"the built-in corpus {corpus!r} is made of the sources of {', '.join(PACKAGES)}, and none of them is "
            f"here; name another with --corpus"
        )
    return roots


def _root(package: str) -> Path | None:
    """Return the folder of a package's sources, found without importing it; None if it is not installed."""
    if package == "python":
        folder = Path(sysconfig.get_path("stdlib"))
        return folder if (folder / "ast.py").exists() else None
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _build(folder: Path, roots: dict[str, Path], versions: dict[str, str]) -> None:
    unique: dict[str, Entry] = {}  # the first of the entries with the same words
    for entry in _extract(source_files(roots)):
        unique.setdefault(" ".join(words(entry.text)), entry)
    sides: dict[Split, list[Entry]] = {"train": [], "test": []}
    for entry in unique.values():
        sides["test" if is_test(entry.module) else "train"].append(entry)
    sides["test"] = _without_shared(sides["test"], sides["train"])
    texts = {side: "".join(json.dumps(astuple(entry)) + "\n" for entry in part) for side, part in sides.items()}
    fingerprint = hashlib.sha256("\n".join(texts[side] for side in sorted(texts)).encode()).hexdigest()
    summary = Info(
        fingerprint=fingerprint,
        packages=versions,
        missing=tuple(package for package in PACKAGES if package not in roots),
        entries={side: len(part) for side, part in sides.items()},
        bytes={side: sum(len(entry.text.encode()) for entry in part) for side, part in sides.items()},
    )
    with staged(folder) as temporary:
        for side, text in texts.items():
            (temporary / f"{side}.jsonl").write_text(text, encoding="utf-8")
        (temporary / "info.json").write_text(json.dumps(asdict(summary), indent=1))


def source_files(roots: dict[str, Path]) -> list[tuple[str, str, str]]:
    """Return (path, package, module) of every source file, sorted by package and module."""
    files = []
    for package, root in roots.items():
        prefix = "" if package == "python" else f"{package}."
        for folder, names, leaves in os.walk(root):
            names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
            for leaf in sorted(leaves):
                if leaf.endswith(".py") and not leaf.startswith("test_"):
                    path = Path(folder, leaf)
                    module = prefix + ".".join(path.relative_to(root).with_suffix("").parts)
                    files.append((str(path), package, module.removesuffix(".__init__")))
    return files


def _extract(files: list[tuple[str, str, str]]) -> list[Entry]:
    """Return the entries of all files, in their order, from one worker process for each core.

    Workers are `python -c`: no process with threads is forked, and the caller's `__main__` is not run again.
    """
    count = min(cores(), max(1, len(files) // 50))
    code = "import sys; sys.path.insert(0, sys.argv[1]); from workbench.data.docstrings import main; main()"
    command = [sys.executable, "-P", "-c", code, str(Path(__file__).parents[3])]
    pipe = subprocess.PIPE
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8") for _ in range(count)]
    shares = ["".join(json.dumps(task) + "\n" for task in files[index::count]) for index in range(count)]
    with ThreadPoolExecutor(count) as threads:
        try:
            answers = list(threads.map(lambda worker, share: worker.communicate(share)[0], workers, shares))
        finally:
            for worker in workers:
                worker.kill()
    results = [answer.splitlines() for answer in answers]
    if any(worker.returncode for worker in workers) or sum(map(len, results)) != len(files):
        raise RuntimeError(f"extracting docstrings failed with exit codes {[worker.returncode for worker in workers]}")
    lines = (results[index % count][index // count] for index in range(len(files)))
    return [Entry(*fields) for line in lines for fields in json.loads(line)]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation; texts with equal words count as the same text."""
    return re.findall(r"\w+", text.lower())


def is_test(module: str) -> bool:
    """Return whether a module is on the test side, which depends on its name alone.

    With this salt, close to a tenth of the text of each of the six packages is on the test side.
    """
    return int.from_bytes(hashlib.sha256(f"27/{module}".encode()).digest()[:8], "big") < TEST_SHARE * 2**64


def _pieces(paragraph: str) -> Iterator[tuple[str, ...]]:
    """Yield what a test paragraph may not share: SHARED_WORDS consecutive words, or a shorter whole sentence."""
    for ends in SENTENCE_ENDS:
        for sentence in ends.split(paragraph):
            sentence_words = words(sentence)
            if SHORT_WORDS <= len(sentence_words) < SHARED_WORDS:
                yield tuple(sentence_words)
    yield from _runs(words(paragraph), SHARED_WORDS)


def _runs(sequence: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(sequence[start:] for start in range(size)), strict=False)


def _without_shared(test: list[Entry], train: list[Entry]) -> list[Entry]:
    """Return test entries without paragraphs that share pieces with the train side, or none if their first one does."""
    test_pieces = {piece for entry in test for line in entry.text.split("\n") for piece in _pieces(line)}
    sizes = sorted({len(piece) for piece in test_pieces})
    shared: set[tuple[str, ...]] = set()
    for entry in train:
        train_words = words(f"{entry.signature} {entry.text}")
        for size in sizes:
            shared |= test_pieces.intersection(_runs(train_words, size))
    remaining = []
    for entry in test:
        lines = [line for line in entry.text.split("\n") if shared.isdisjoint(_pieces(line))]
        if lines and entry.text.startswith(lines[0] + "\n" * (len(lines[0]) < len(entry.text))):
            remaining.append(Entry(entry.package, entry.module, entry.name, entry.signature, "\n".join(lines)))
    return remaining


def code_files() -> list[str]:
    """Return the files of the corpus, by package and module. Raises InputError if there are none on this machine."""
    found = [path for path, _, module in source_files(installed("python-code")) if not is_test(module)]
    if not found:
        raise InputError("the built-in corpus 'python-code' has no file on this machine; name another with --corpus")
    return found


def code_documents() -> Iterator[str]:
    """Yield the text of each file that has some; equal files count once, and files that are not UTF-8 are left out."""
    seen: set[str] = set()
    for path in code_files():
        try:
            content = Path(path).read_bytes()
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if text.strip() and "\0" not in text and (key := hashlib.sha256(content).hexdigest()) not in seen:
            seen.add(key)
            yield text
