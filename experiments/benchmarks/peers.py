"""How fast is our trainer, next to what people use today? Writes one JSON file and prints a table.

    python experiments/benchmarks/peers.py OUT.json [--workload S] [--precision fp32] [--peer ours-rtd] ...

Every contender is a whole optimizer step (data, forward, backward, clipping, AdamW, schedule, metrics) with the same
sizes, batch and dropout, in a process of its own; they take turns (A B C A B C), and medians are compared. The base of
all ratios is a pair of Hugging Face models in a plain fp32 loop, `hf-naive`, or another peer that --base names,
measured in the same turns: `gpt2-hf`, a `GPT2LMHeadModel`, for causal language models; `xlnet-hf`, an
`XLNetLMHeadModel` with true masks, for permutation language models; `bert-hf` and `albert-hf`, a `BertForPreTraining`
and an `AlbertForPreTraining`, for rows of two segments. `processor_ratio` compares processor time, all threads
together, which other work on the machine disturbs less.
Beforehand both sides compute the loss of the same batch from the same weights.

`accelerate` (for HF Trainer) and `electra-pytorch` (pip install --no-deps electra-pytorch) are left out, and the reason
said, where they are not installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from record import here

from workbench import objectives
from workbench.bench.machine import Quiet
from workbench.bench.turns import Worker, made_up, window
from workbench.cli.terminal import table
from workbench.data.prepare import bind
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.stages import ResolvedSpec
from workbench.training.plan import plan

HERE = Path(__file__).parent
# S is ELECTRA-Small with a batch for two cores, T a tiny model whose steps are short.
WORKLOADS: dict[str, dict[str, Any]] = {
    "S": {
        "encoder.hidden": 256, "encoder.layers": 12, "encoder.embedding": 128, "encoder.vocab": 30522,
        "data.length": 128, "batch.size": 32,
    },
    "T": {
        "encoder.hidden": 128, "encoder.layers": 4, "encoder.vocab": 4096, "encoder.positions": 128,
        "data.length": 64, "batch.size": 64,
    },
}  # fmt: skip
CAUSAL = {"objective": "causal-lm", "encoder.embedding": None}  # GPT-2's embeddings are as wide as its layers
PERMUTED = {"objective": "permutation-lm", "encoder.embedding": None}  # as XLNet's are
BERT = {"objective": "bert", "encoder.embedding": None}  # as BERT's are
OURS: dict[str, dict[str, Any]] = {
    "ours-rtd": {"objective": "rtd"}, "ours-bert-mlm": {"objective": "bert-mlm"},
    "ours-all-tokens-mlm": {"objective": "all-tokens-mlm"}, "ours-causal-lm": CAUSAL,
    "ours-gpt2": CAUSAL | {"encoder.family": "gpt2"},
    "ours-permutation-lm": PERMUTED, "ours-xlnet": PERMUTED | {"encoder.family": "xlnet"},
    "ours-bert": BERT | {"encoder.family": "bert"}, "ours-albert": {"objective": "albert", "encoder.family": "albert"},
}  # fmt: skip
PEERS = {  # what each needs besides our own dependencies
    "hf-naive": "", "hf-trainer": "accelerate", "electra-pytorch": "electra_pytorch", "bert-mlm-trainer": "accelerate",
    "all-tokens-hf": "", "gpt2-hf": "", "xlnet-hf": "", "bert-hf": "", "albert-hf": "",
}  # fmt: skip
BASE = "hf-naive"
SAME_SIZES = {  # those of every other peer are ours-rtd's
    "gpt2-hf": "ours-gpt2", "xlnet-hf": "ours-xlnet", "bert-hf": "ours-bert", "albert-hf": "ours-albert",
}  # fmt: skip


def spec_of(workload: str, peer: str = "ours-rtd", **more: Any) -> ResolvedSpec:
    """A workload with the paper's dropout and generator; only its sizes differ from the preset."""
    own = OURS[peer if peer in OURS else SAME_SIZES.get(peer, "ours-rtd")]
    keys = {key: value for key, value in own.items() if key != "objective"}
    given = WORKLOADS[workload] | {"budget.steps": 10**6} | keys | more
    return objectives.with_options(resolve("small", given).replace(objective=own["objective"]))


def still(workload: str, peer: str, **more: Any) -> tuple[ResolvedSpec, Any, Any]:
    """The spec of a workload without dropout, our objective, and a batch of four rows."""
    from workbench.data.corpus import corpus_of
    from workbench.training.loop import build

    spec = spec_of(workload, peer, **more).changed({"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0})
    with tempfile.TemporaryDirectory() as folder:
        prepared = made_up(Path(folder) / "data", spec, 100_000)
        spec = bind(spec, prepared)
        return spec, build(spec).eval(), corpus_of(prepared, spec).batch(0, 4)


def same_loss(workload: str) -> dict[str, float]:
    """Losses of one batch from the same weights, without dropout: ours, and the Hugging Face models'."""
    import torch
    from peer_models import electra_pair

    from workbench.models.corruption import mask_for_generator

    spec, ours, batch = still(workload, "ours-rtd", head="dense")
    with torch.no_grad():
        pair = electra_pair(spec)
        pair.eval()
        pair.take(ours)
        found = ours(batch)
        masked = mask_for_generator(batch, spec)
        fake = ours.generator(batch)
        labels = torch.full_like(batch.ids, -100).scatter(1, masked.positions, masked.targets)
        attention = torch.ones_like(batch.ids)
        theirs = pair.generator(masked.ids, attention_mask=attention, labels=labels).loss
        replaced = (fake.ids != batch.ids).long()
        detection = pair.discriminator(fake.ids, attention_mask=attention, labels=replaced).loss
    values = {
        "ours_generator": float(found.parts["generator_loss"]), "hf_generator": float(theirs),
        "ours_discriminator": float(found.parts["discriminator_loss"]), "hf_discriminator": float(detection),
    }  # fmt: skip
    for part in ("generator", "discriminator"):
        apart = abs(values[f"ours_{part}"] - values[f"hf_{part}"])
        if apart > 1e-4:
            raise SystemExit(f"workload {workload}: the {part}'s losses differ by {apart:g}: {values}")
    return values


def same_causal_loss(workload: str) -> dict[str, float]:
    """The same for GPT-2, whose loss is over the tokens of the text, as ours is."""
    import torch
    from peer_models import gpt2

    from workbench.tensors import ordinary

    spec, ours, batch = still(workload, "ours-gpt2")
    with torch.no_grad():
        model: Any = gpt2(spec).eval()
        model.transformer.load_state_dict(ours.encoder.model.state_dict())
        labels = batch.ids.masked_fill(~ordinary(batch.ids, batch.attention, spec.data.special), -100)
        values = {"ours_causal": float(ours(batch).total), "hf_causal": float(model(batch.ids, labels=labels).loss)}
    if abs(values["ours_causal"] - values["hf_causal"]) > 1e-4:
        raise SystemExit(f"workload {workload}: the causal losses differ: {values}")
    return values


def same_permutation_loss(workload: str) -> dict[str, float]:
    """The same for XLNet, whose predictions and masks are those that ours draws."""
    import torch
    from peer_models import Permuted

    spec, ours, batch = still(workload, "ours-xlnet")
    with torch.no_grad():
        theirs: Any = Permuted(spec).eval()
        theirs.model.transformer.load_state_dict(ours.encoder.model.state_dict())
        theirs.model.lm_loss.bias.zero_()
        values = {"ours_permutation": float(ours(batch).total), "hf_permutation": float(theirs.loss(batch))}
    if abs(values["ours_permutation"] - values["hf_permutation"]) > 1e-4:
        raise SystemExit(f"workload {workload}: the permutation losses differ: {values}")
    return values


def same_segment_losses(workload: str, peer: str) -> dict[str, float]:
    """The same for BERT and ALBERT, whose masked rows are ours."""
    import torch
    from peer_models import Segments, inputs_of

    from workbench.models.corruption import mask_tokens
    from workbench.models.heads import pair_losses

    name = peer.removesuffix("-hf")
    spec, ours, batch = still(workload, f"ours-{name}")
    with torch.no_grad():
        theirs = Segments(spec).eval()
        theirs.take(ours)
        masked = mask_tokens(batch, spec, spec.corruption.mask, spec.corruption.random)
        found = pair_losses(ours.encoder, ours.head, ours.pair_head, batch, masked, "pair").total
        counted = masked.weights > 0
        labels = torch.full_like(batch.ids, -100)
        labels[counted.nonzero()[:, 0], masked.positions[counted]] = masked.targets[counted]
        inputs = inputs_of(batch) | {"ids": masked.ids}
        del inputs["input_ids"]
        values = {f"ours_{name}": float(found), f"hf_{name}": float(theirs.loss(labels=labels, **inputs))}
    if abs(values[f"ours_{name}"] - values[f"hf_{name}"]) > 1e-4:
        raise SystemExit(f"workload {workload}: the losses of {name} differ: {values}")
    return values


def missing(peer: str) -> str:
    """Why a peer cannot be measured here, or nothing."""
    package = PEERS.get(peer, "")
    return f"{package.replace('_', '-')} is not installed" if package and find_spec(package) is None else ""


def start(peer: str, workload: str, host: Host, seconds: float) -> Worker:
    """The contender's process, warm and waiting."""
    spec = spec_of(workload, peer)
    if peer in OURS:
        return Worker.cell(spec, host, seconds, None)
    plain = {"device": host.device, "precision": host.precision, "threads": host.threads}
    hello = {"name": peer, "spec": spec.model_dump(mode="json"), "host": plain, "seconds": seconds,
             "every": window(spec, host, seconds)}  # fmt: skip
    return Worker(hello, str(HERE / "peer_models.py"))


def measure(workload: str, precision: str, peers: list[str], chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each contender, and for the base in fp32."""

    def host(which: str, ours: bool) -> Host:
        return Host(device=chosen.device, precision=which, threads=chosen.threads, compile=ours and chosen.compile)  # type: ignore[arg-type]

    base_key = (chosen.base, "fp32")
    entries = {base_key: start(chosen.base, workload, host("fp32", False), chosen.seconds)}
    try:
        for peer in peers:
            if (peer, precision) not in entries:
                entries[peer, precision] = start(peer, workload, host(precision, peer in OURS), chosen.seconds)
        with Worker.ceiling(host(precision, False)) as ceiling:
            turns: dict[tuple[str, str], list[dict[str, Any]]] = {key: [] for key in entries}
            quiet = Quiet()
            for _ in range(chosen.repeats):
                ceiling.turn("time")
                for key, worker in entries.items():
                    with quiet.watching(worker.pid):
                        turns[key].append(worker.turn("time"))
                    print(workload, *key, f"{turns[key][-1]['tokens_per_second']:,.0f}", file=sys.stderr, flush=True)
            best = max(ceiling.speeds)
    finally:
        for worker in entries.values():
            worker.close()
    base = speed(turns[base_key])
    rows = []
    for (peer, which), found in turns.items():
        spec = spec_of(workload, peer)
        per_token = float(plan(spec).flops_per_step["matmul"]) / spec.batch.size / spec.data.length
        rows.append({
            "workload": workload, "peer": peer, "precision": which, "tokens_per_second": round(speed(found)),
            "ratio": round(speed(found) / base, 3),
            "fastest_ratio": round(fastest(found) / fastest(turns[base_key]), 3),
            "processor_ratio": round(processor(turns[base_key]) / processor(found), 3),
            "turns": [round(turn["tokens_per_second"]) for turn in found],
            "peak_memory_bytes": found[-1]["peak_memory_bytes"],
            "model_flops_utilisation": round(speed(found) * per_token / best, 3)
            if peer in OURS and which == precision else None,
            "ceiling_flops_per_second": best if which == precision else None, "noise": quiet.notes(),
        })  # fmt: skip
    return rows


def speed(turns: list[dict[str, Any]]) -> float:
    return statistics.median(float(turn["tokens_per_second"]) for turn in turns)


def fastest(turns: list[dict[str, Any]]) -> float:
    return max(float(turn["tokens_per_second"]) for turn in turns)


def processor(turns: list[dict[str, Any]]) -> float:
    """Processor time of a step. Sizes and batch are the same for all."""
    return statistics.median(float(turn["processor_seconds_per_step"]) for turn in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--precision", action="append", choices=["fp32", "bf16"])
    parser.add_argument("--peer", action="append", choices=[*OURS, *PEERS])
    parser.add_argument("--base", choices=list(PEERS), default=BASE, help="of all ratios, in a plain fp32 loop")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn; no less than a step")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", action="store_true", help="ours under torch.compile")
    chosen = parser.parse_args()
    chosen.device = Host(device=chosen.device).resolved_device()
    peers = chosen.peer or [*OURS, *PEERS]
    left_out = {peer: why for peer in peers if (why := missing(peer))}
    peers = [peer for peer in peers if peer not in left_out]
    if why := missing(chosen.base):
        parser.error(f"--base {chosen.base}: {why}")
    result = here(chosen.device, chosen.threads) | {
        "left_out": left_out, "base": chosen.base, "same_loss": {}, "rows": [],
    }  # fmt: skip
    for workload in chosen.workload or list(WORKLOADS):
        result["same_loss"][workload] = (
            same_loss(workload) | same_causal_loss(workload) | same_permutation_loss(workload)
            | same_segment_losses(workload, "bert-hf") | same_segment_losses(workload, "albert-hf")
        )  # fmt: skip
        for precision in chosen.precision or ["fp32", "bf16"]:
            result["rows"] += measure(workload, precision, peers, chosen)
            chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    shown = (
        "workload",
        "peer",
        "precision",
        "tokens_per_second",
        "ratio",
        "fastest_ratio",
        "processor_ratio",
        "model_flops_utilisation",
    )
    print(table([{k: r[k] for k in shown} | {"MiB": r["peak_memory_bytes"] >> 20} for r in result["rows"]]))
    for note in dict.fromkeys(note for row in result["rows"] for note in row["noise"]):
        print(note)
    for peer, why in left_out.items():
        print(f"{peer} is left out: {why}")


if __name__ == "__main__":
    main()
