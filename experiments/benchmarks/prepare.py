"""How fast is preparing, next to the bare tokenizer on the same text? Prints one JSON object.

    python experiments/benchmarks/prepare.py FILE [--vocab 4096] [--repeats 3]

Both sides take turns in one process with the same trained vocabulary. `ratio` is seconds of preparing, from the packed
file on disk to finished shards, over seconds of `Tokenizer.encode_batch` on the documents already in memory, without
reading, packing or writing anything; the medians of the repeats are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from workbench.data import sources, tokenizer
from workbench.data.files import cores
from workbench.data.prepare import prepare
from workbench.data.progress import silent
from workbench.presets import resolve


def bare(documents: list[str], folder: Path, batch: int) -> float:
    """Seconds of `encode_batch`; batches of `batch` documents keep its results from filling the memory."""
    encoder = tokenizer.fast(folder)
    start = time.perf_counter()
    for at in range(0, len(documents), batch):
        encoder.encode_batch(documents[at : at + batch], add_special_tokens=False)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=200)
    chosen = parser.parse_args()
    spec = resolve("nano", {"data.corpus": chosen.file, "encoder.vocab": chosen.vocab})
    documents = list(sources.documents(spec.data))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        start = time.perf_counter()
        first = prepare(spec, silent, root)  # trains the vocabulary
        whole = time.perf_counter() - start
        seconds: dict[str, list[float]] = {"encode_batch": [], "prepare": []}
        for _ in range(chosen.repeats):
            seconds["encode_batch"].append(bare(documents, first.tokenizer, chosen.batch))
            (first.folder / "manifest.json").unlink()  # so that it is made again, with the vocabulary at hand
            start = time.perf_counter()
            made = prepare(spec, silent, root)
            seconds["prepare"].append(time.perf_counter() - start)
            assert made.fingerprint == first.fingerprint
        start = time.perf_counter()
        prepare(spec, silent, root)
        again = time.perf_counter() - start
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(
        json.dumps(
            {
                "file": Path(chosen.file).name,
                "documents": made.documents,
                "bytes": made.bytes,
                "tokens": made.tokens,
                "vocab": made.vocab,
                "cores": cores(),
                "load": round(os.getloadavg()[0], 1),
                "seconds": {name: [round(value, 2) for value in values] for name, values in seconds.items()},
                "ratio": round(median["prepare"] / median["encode_batch"], 3),
                "megabytes_per_second": round(made.bytes / 1e6 / median["prepare"], 2),
                "with_vocabulary_seconds": round(whole, 2),
                "second_run_seconds": round(again, 4),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
