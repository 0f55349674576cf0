"""How fast is preparing, next to the bare tokenizer on the same text?

    python experiments/benchmarks/prepare.py OUT.json FILE [--vocab 4096] [--repeats 3]

Both sides take turns in one process with the same trained vocabulary. `ratio` is the speed (MB/s) of preparing, from
the packed file on disk to finished shards, over that of `Tokenizer.encode_batch` on the documents already in memory,
without reading, packing or writing anything; the medians of the repeats are compared. `processor_ratio` compares the
processor time of both, all threads together, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import here

from workbench.data import sources, tokenizer
from workbench.data.prepare import prepare
from workbench.progress import silent
from workbench.spec.host import cores
from workbench.spec.presets import resolve


def bare(documents: list[str], folder: Path, batch: int) -> None:
    """`encode_batch` on all documents; batches of `batch` keep its results from filling the memory."""
    encoder = tokenizer.fast(folder)
    for at in range(0, len(documents), batch):
        encoder.encode_batch(documents[at : at + batch], add_special_tokens=False)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock and of processor time."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def ratio(prepared: list[float], encoded: list[float]) -> float:
    return round(statistics.median(encoded) / statistics.median(prepared), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("file")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=200)
    chosen = parser.parse_args()
    spec = resolve("nano", {"data.corpus": chosen.file, "encoder.vocab": chosen.vocab})
    documents = list(sources.documents(spec.data))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        whole, _ = timed(lambda: prepare(spec, silent, root))  # trains the vocabulary
        first = prepare(spec, silent, root)
        encoded, prepared = [], []
        for _ in range(chosen.repeats):
            encoded.append(timed(lambda: bare(documents, first.tokenizer, chosen.batch)))
            (first.folder / "manifest.json").unlink()  # so that it is made again, with the vocabulary at hand
            prepared.append(timed(lambda: prepare(spec, silent, root)))
        again, _ = timed(lambda: prepare(spec, silent, root))
        assert prepare(spec, silent, root) == first
    clock, processor = (([e[i] for e in encoded], [p[i] for p in prepared]) for i in (0, 1))
    result = here() | {
        "file": Path(chosen.file).name,
        "documents": first.documents,
        "bytes": first.bytes,
        "tokens": first.tokens,
        "vocab": first.vocab,
        "cores": cores(),
        "encode_batch_seconds": [round(value, 2) for value in clock[0]],
        "prepare_seconds": [round(value, 2) for value in clock[1]],
        "ratio": ratio(clock[1], clock[0]),
        "processor_ratio": ratio(processor[1], processor[0]),
        "megabytes_per_second": round(first.bytes / 1e6 / statistics.median(clock[1]), 2),
        "with_vocabulary_seconds": round(whole, 2),
        "second_run_seconds": round(again, 4),
    }
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in result if key not in ("machine", "versions")}, indent=1))


if __name__ == "__main__":
    main()
