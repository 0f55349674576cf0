"""How fast are sentences scored, next to a plain loop over Hugging Face's masked language model? Writes one JSON file.

    python experiments/benchmarks/minimal_pairs.py OUT.json --blimp DIR --text FILE [--pairs 4000] [--repeats 3]

Ours is an objective of 4 layers of 128 with random weights and 8,192 words that FILE gives, from loading it to its
score: pseudo-log-likelihood (`pll`), and in one pass (`originality`, `one-pass`, `copy-mixture`). `hf-loop` scores each
sentence by itself, in a batch of its masked copies, with the whole vocabulary at each position; it gets every tenth
pair. All are given as sentences a second; `whole_set_seconds` is what the 59,875 filtered pairs would take, `processor`
the same in processor time, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import here

from workbench import cpu, objectives
from workbench.bench.machine import Quiet
from workbench.data import formats, tokenizer
from workbench.models.export import export, export_heads
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.tasks import _pair_accuracy as pair_accuracy
from workbench.tasks import minimal_pairs
from workbench.tasks.common.contract import Model
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.loop import build

WHOLE = 59_875
SIDES = {"pll": "bert-mlm", "originality": "rtd", "one-pass": "replace-mlm", "copy-mixture": "all-tokens-mlm"}


def finished(folder: Path, objective: str, words: Path) -> Path:
    """The encoder's folder of a run whose weights are random, but far from their first ones, as trained ones are."""
    special = {f"data.special.{key}": value for key, value in tokenizer.special(words).model_dump().items()}
    sizes = {
        "encoder.hidden": 128, "encoder.layers": 4, "encoder.heads": 2, "encoder.positions": 128, "data.length": 128,
        "encoder.vocab": tokenizer.size(tokenizer.fast(words)), "budget.steps": 0,
    }  # fmt: skip
    spec = objectives.with_options(resolve("nano", {"objective": objective, **sizes, **special}))
    model: Any = build(spec)
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=numbers) * 0.05)
    run = RunStore(folder).open(BoundRun(spec))
    facts: dict[str, Any] = {"steps": 0, "tokens": 0, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 0)}
    with run.staged("encoder") as place:
        export(model.encoder, words, place, spec, facts)
    with run.staged("heads") as place:
        export_heads(model, place)
    run.finish(facts)
    return run.path / "encoder"


def taken(pairs: PairSet, every: int) -> PairSet:
    """Every so manieth pair."""
    groups = {level: each[::every] for level, each in pairs.groups.items()}
    return PairSet(pairs.name, pairs.suite, pairs.good[::every], pairs.bad[::every], groups)


def hf_loop(words: Path, vocab: int) -> Callable[[PairSet], None]:
    """A sentence at a time: a batch of its masked copies through `ElectraForMaskedLM`."""
    from transformers import AutoTokenizer, ElectraConfig, ElectraForMaskedLM

    tokens = AutoTokenizer.from_pretrained(words)
    sizes: dict[str, Any] = {
        "hidden_size": 128,
        "embedding_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
    }
    model = ElectraForMaskedLM(ElectraConfig(vocab_size=vocab, intermediate_size=512, **sizes)).eval()

    def score(text: str) -> float:
        ids = torch.tensor(tokens(text)["input_ids"])
        inner = torch.arange(1, len(ids) - 1)
        copies = ids.repeat(len(inner), 1)
        copies[torch.arange(len(inner)), inner] = tokens.mask_token_id
        logs = model(copies).logits.log_softmax(-1)
        return float(logs[torch.arange(len(inner)), inner, ids[inner]].sum())

    def work(pairs: PairSet) -> None:
        cpu.prepare(None, plain=True)
        with torch.inference_mode():
            for text in (*pairs.good, *pairs.bad):
                score(text)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--blimp", required=True, help="folder with BabyLM's filtered set")
    parser.add_argument("--text", type=Path, required=True, help="text that the vocabulary is made from")
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--side", action="append", help="as 'pll, auto' (default: all)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    pairs = minimal_pairs.load_named("blimp-filtered", chosen.blimp)
    pairs = taken(pairs, max(1, len(pairs.good) // chosen.pairs))
    pair_accuracy.TRIED = max(8, pair_accuracy.TRIED * len(pairs.good) // WHOLE)  # in proportion, as the time is
    text = [document for _, document in zip(range(2000), formats.read(chosen.text, "text"), strict=False)]
    result: dict[str, Any] = here("cpu", chosen.threads) | {"pairs": len(pairs.good), "rows": []}

    with tempfile.TemporaryDirectory() as place:
        words = Path(place, "words")
        words.mkdir()
        tokenizer.save(tokenizer.train(text, 8192), words, True)
        work: dict[str, Callable[[], Any]] = {}
        spec = TasksSpec(scorers=("default",))
        for name, objective in SIDES.items():
            encoder = finished(Path(place, "runs"), objective, words)
            for precision in ("auto", "fp32"):
                host = Host(device="cpu", threads=chosen.threads, precision=precision)
                work[f"{name}, {precision}"] = partial(pair_accuracy.zero_shot, pairs, Model(encoder, spec), host)
        few = taken(pairs, 10)
        loop = hf_loop(words, tokenizer.size(tokenizer.fast(words)))
        work["hf-loop"] = partial(loop, few)
        quiet = Quiet()
        for _ in range(chosen.repeats):
            for name, one in work.items():
                if chosen.side and name not in chosen.side:
                    continue
                count = len((few if name == "hf-loop" else pairs).good)
                with quiet.watching(os.getpid()):
                    start, used = time.perf_counter(), time.process_time()
                    score = one()
                    seconds, used = time.perf_counter() - start, time.process_time() - used
                row = {
                    "side": name, "sentences_per_second": round(2 * count / seconds, 1),
                    "whole_set_seconds": round(seconds * WHOLE / count, 1), "processor": round(used * WHOLE / count, 1),
                    "in_fp32": score.details["in_fp32"] / count if score is not None else None,
                }  # fmt: skip
                result["rows"].append(row)
                print(row, file=sys.stderr, flush=True)
        result["noise"] = quiet.notes()
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
