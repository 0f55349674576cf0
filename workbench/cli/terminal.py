"""Results as text for a terminal: aligned columns and units, without colours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import plural
from workbench.progress import clock, visible
from workbench.report.formatting import in_units
from workbench.spec.experiment import question_text
from workbench.spec.host import Host, cores, threads_for_each
from workbench.spec.parts import CONVENTIONS, TasksSpec, by_source
from workbench.spec.presets import STATED_FLOPS
from workbench.spec.run_spec import RunSpec, value_at
from workbench.training.plan import Plan, memory, with_parents

if TYPE_CHECKING:
    from workbench.execution.study import Job, Match, Priced
    from workbench.execution.study_power import Design, Known, Noise


Row = Mapping[str, Any]


def table(rows: Sequence[Row], empty: str = "-") -> str:
    """Return rows with equal keys as aligned columns under their names, numbers to the right, and `empty` for None."""
    if not rows:
        return "nothing to show"
    names = list(rows[0])
    cells = [[empty if (value := row.get(name)) is None else _cell(value) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), line(["-" * width for width in widths]), *map(line, cells)])


def plan_json(
    job: Job, plans: Sequence[Priced], matches: Sequence[Match], text: Mapping[str, Any] | None = None,
    trained: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the plan as a JSON document; parameters as in `plan_table`."""
    from workbench.execution.study import flops_ratio, is_equal, plan_rows

    ratio = flops_ratio(plans)
    return {
        "experiment": job.experiment.name, "question": question_text(job.experiment.question, is_equal(ratio)),
        "base": job.base.model_dump(mode="json"), "match": [asdict(match) for match in matches],
        "convention": job.base.budget.convention, "flops_ratio": ratio, "equal_compute": is_equal(ratio),
        "text": dict(text or {}), "search": job.searched and {**job.searched._asdict(), "runs": job.searched.runs},
        "runs": [
            row | {"cell": _cell_of(job, spec), "trained": spec.name in trained}
            for row, (spec, _) in zip(plan_rows(plans), plans, strict=True)
        ],
    }  # fmt: skip


def _memory_of(spec: RunSpec, plan: Plan, host: Host) -> dict[str, str]:
    """Return the estimated memory of each device by column; of several devices also with, or without, --shard."""
    at_once = host.rows_at_once(spec.batch.size)
    if host.devices == 1:
        return {"memory": _bytes(memory(spec, plan.parameters, at_once=at_once))}
    other = f"{'without' if host.shard else 'with'} --shard"
    return {
        "memory each": _bytes(memory(spec, plan.parameters, host.devices, host.shard, at_once)),
        other: _bytes(memory(spec, plan.parameters, host.devices, not host.shard, at_once)),
    }


def _cell_of(job: Job, spec: RunSpec) -> dict[str, Any]:
    """Return the settings in which a run differs from others of its experiment, except objective and seed."""
    keys = dict.fromkeys([*job.experiment.axes, *(key for variant in job.experiment.variants for key in variant)])
    return {
        key: value_at(spec, key) for key in keys if key not in ("objective", "start.parent") and key[:7] != "budget."
    }


def plan_table(
    job: Job, plans: Sequence[Priced], matches: Sequence[Match], host: Host, workers: int = 1,
    text: Mapping[str, Any] | None = None, trained: Collection[str] = (),
) -> str:  # fmt: skip
    """Return the plan as text: the runs, and their cost here with this number of workers.

    `text` are the facts about the training text, empty if it is not prepared yet; `trained` are the names of the specs
    of which the store has trained runs.
    """
    from workbench.bench.estimate import training_seconds
    from workbench.execution.study import flops_ratio, is_equal

    ratio, stated = flops_ratio(plans), str(job.base.budget.convention)
    others = [str(name) for name in CONVENTIONS if name != stated]
    if workers * host.devices > 1:
        host = replace(host, threads=host.threads or threads_for_each(workers * host.devices))
    everything = with_parents(plans)
    seconds = dict(zip((spec.name for spec, _ in everything), training_seconds(everything, host), strict=True))
    parents = len(everything) > len(plans)
    rows = []
    for spec, plan in plans:
        parts, paid, seen = plan.parameters, {}, {}
        if plan.words and plan.epochs:
            seen = {"words": _short(plan.words), "epochs": f"{plan.epochs:.3g}"}
        if parents:
            paid["of parents"] = _short(plan.parent["flops"][stated]) if plan.parent else "-"
        rows.append({
            "objective": spec.objective, **_cell_of(job, spec), "seed": spec.seed,
            "steps": plan.steps if spec.budget.unit != "seconds" else "as time allows",
            "tokens": _short(plan.tokens), **seen, f"FLOPs ({stated})": _short(plan.flops[stated]),
            **paid,
            **{name: _short(plan.flops[name]) for name in others},
            "encoder": _short(parts["encoder"]), "generator": _short(parts.get("generator", 0)),
            "heads": _short(parts["total"] - parts["encoder"] - parts.get("generator", 0)),
            **_memory_of(spec, plan, host),
            "time": clock(seconds[spec.name]),
        })  # fmt: skip
    times = job.searched.runs if job.searched else 1
    total = sum(seconds.values()) * times / min(workers, len(everything) * times)
    left = with_parents([(spec, plan) for spec, plan in plans if spec.name not in trained])
    rest = sum(seconds[spec.name] for spec, _ in left) / min(workers, max(1, len(left)))
    count = "the run" if len(plans) * times == 1 else f"all {len(plans) * times:,} runs"
    count += f" and {len(everything) - len(plans)} that they start from" if parents else ""
    base, shape = job.base, f"recipe {job.base.recipe}, corpus {', '.join(job.base.data.corpus)}"
    if job.experiment.scales:
        shape += ", each scale with its own rows and batch (workbench list scales)"
    else:
        shape = f"scale {base.scale}, {shape}, rows of {base.data.length} tokens, {base.batch.size} rows a step"
    lines = [
        question_text(job.experiment.question, is_equal(ratio)), "", table(rows), "",
        f"{shape}, {_rates([spec for spec, _ in plans])}",
    ]  # fmt: skip
    if text:
        lines.append(f"text: {text['words']:,} words in {text['tokens']:,} tokens; {by_source(text['sources'])}")
    lines += [match.sentence() for match in matches]
    if job.searched:
        lines.append(_search_sentence(*job.searched))
    if ratio is not None and is_equal(ratio):
        least = 100 * (ratio - 1) + 0.05
        lines.append(f"equal compute: the arms' FLOPs ({stated}) differ by less than {least:.1f} %")
    elif ratio is not None:
        lines.append(f"not at equal compute: an arm spends up to {ratio:.2f} times the FLOPs of another ({stated})")
    precisions = dict.fromkeys(host.resolved_precision(spec.encoder.hidden) for spec, _ in plans)
    how = f"{host.resolved_device()}, {' or '.join(precisions)}"
    if host.resolved_device() == "cpu":
        how += f", {plural(host.threads or cores(), 'thread')}"
    if host.devices > 1:
        how += f", {host.devices} devices for each run, without exchanging gradients"
    at_once = f"{workers} runs at a time" if workers > 1 else "one run at a time"
    lines += [
        _measured(base.tasks),
        f"pre-training time for {count}: about {clock(total)} here ({how}, a few steps timed, {at_once})",
    ]
    if trained and not job.searched:  # a search trains other runs than the planned ones
        ending = f", and the others take about {clock(rest)}" if left else ""
        lines.append(f"{len(trained)} of them {'is' if len(trained) == 1 else 'are'} trained already{ending}")
    return "\n".join(lines)


def _search_sentence(trials: int, seeds: int, reported: int) -> str:
    """Return what a search trains in place of each run of the table."""
    best = f", then {plural(reported, 'seed')} of the best settings" if reported else ""
    return f"in place of each run of the table: {plural(trials, 'trial')} of {plural(seeds, 'seed')}{best}"


def _rates(specs: Sequence[RunSpec]) -> str:
    """Return the peak learning rate; if there are several, each with the objectives that are trained with it."""
    named: dict[str, list[str]] = {}
    for spec in specs:
        own = spec.optim.generator_lr
        named.setdefault(f"{spec.optim.lr:g}" + (f" (generator {own:g})" if own else ""), []).append(spec.objective)
    if len(named) < 2:
        return f"peak learning rate {next(iter(named), 'none')}"
    rates = [f"{rate} of {' and '.join(dict.fromkeys(objectives))}" for rate, objectives in named.items()]
    return f"peak learning rates {', '.join(rates)}"


def _measured(spec: TasksSpec) -> str:
    from workbench import tasks

    if not spec.chosen:
        return "tasks none: nothing is measured"
    line, tuned = f"tasks {', '.join(spec.names)}", tasks.fine_tuned_only(spec)
    if not tuned.chosen:
        return f"{line}: nothing is fine-tuned"
    which = "each" if tuned.names == spec.names else f"on {', '.join(tuned.names)}"
    return f"{line}: {spec.seeds} fine-tuning seeds {which}"


SHOWN = ("lr", "layer_decay", "weight_decay", "epochs", "batch", "dropout")  # printed settings of a fine-tuning


def score_rows(scores: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows of `workbench evaluate`: each score, its best baseline, and the settings of the fine-tuning."""
    return [
        {
            "model": row["model"], "task": row["task"], "metric": row["metric"], "seed": row["seed"],
            "score": round(row["value"], 2),
            "best baseline": round(max(row["baselines"].values()), 2) if row["baselines"] else None,
            "settings": row.get("settings"), **{name: row["finetune"].get(name) for name in SHOWN},
            "length": row.get("length"), "read at": row.get("read_at"), "steps": row["steps"],
        }
        for row in scores
    ]  # fmt: skip


def price_table(plan: Plan, scale: str) -> str:
    """Return the tables of `workbench flops`, and what the official script states of the scale beside its formula."""
    rows = [
        {"convention": name, "a step": plan.flops_per_step[name], "the run": plan.flops[name]} for name in plan.flops
    ]
    parts = [{"part": name, "parameters": count} for name, count in plan.parameters.items()]
    words = f", {plan.words:,.0f} words in {plan.epochs:.3g} epochs" if plan.words and plan.epochs else ""
    text = f"{plan.steps:,} steps, {plan.tokens:,} tokens{words}\n\n{table(rows)}\n\n{table(parts)}"
    if scale not in STATED_FLOPS:
        return text
    amount, source = STATED_FLOPS[scale]
    return f"{text}\n\nthe official script gives {scale} as published {amount:.4g} FLOPs: {source}, not its formula"


def bench_table(rows: Sequence[Row]) -> str:
    """Return the tables of `workbench bench`: speed, the parts of a step, and remarks on both."""
    from workbench.report.page.rendering import bench_notes

    measured = [row for row in rows if not row["skipped"]]
    speed = [
        {
            "scale": row["scale"], "objective": row["objective"], "precision": row["precision"],
            "rows": f"{row['rows']} x {row['length']}",
            "tokens/s": round(row["tokens_per_second"]), "s a step": row["seconds_per_step"],
            "from": row["seconds_spread"][0], "to": row["seconds_spread"][1],
            "of ceiling": f"{row['model_flops_utilisation']:.0%}", "peak memory": _bytes(row["peak_memory_bytes"]),
        }
        for row in measured
    ]  # fmt: skip
    parts = [
        {"scale": row["scale"], "objective": row["objective"]} | {k: f"{v:.1%}" for k, v in row["shares"].items()}
        for row in measured
    ]
    ceilings = {(row["device"], row["precision"]): row["ceiling_flops_per_second"] for row in rows}
    top = [
        f"ceiling on {device}, {precision}: {_short(speed)} FLOP/s, in the fastest square matrix product"
        for (device, precision), speed in ceilings.items()
    ]
    tables = [table(speed), "", "where a step's time goes", "", table(parts)] if measured else []
    return "\n".join([*tables, "", *top, *bench_notes(rows)])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value), lines=False)


def _short(number: float) -> str:
    """Return 1,234,567 as 1.23M, and numbers beyond 1e15 in powers of ten."""
    if number < 1e3:
        return f"{number:g}"
    scaled, letter = in_units(number)
    return f"{scaled:.3g}{letter.upper()}" if scaled < 1000 else f"{number:.3g}"


def _bytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def study_text(
    job: Job, noise: Sequence[Noise], designs: Sequence[Sequence[Design]], kept: Sequence[Known] = ()
) -> str:
    """Return a table for each measure, with an explanation of its columns, and a table of what kept studies say."""
    from workbench.execution.study_power import arms_and_family

    arms, _ = arms_and_family(job)
    contrasts = "; ".join(str(declared.contrast) for declared in job.declared)
    lines = [
        f"{arms} arms; "
        + (f"declared: {contrasts}" if contrasts else "no comparison is declared, so every two arms are compared"),
        "gap is the true difference, in points, that a design shows with a probability of 0.8 if all arms have the "
        "same noise; FLOPs and time are for pre-training, without fine-tuning",
    ]
    for one, rows in zip(noise, designs, strict=True):
        lines += ["", str(one), table([_row(design, job.base.budget.convention) for design in rows]), *_moved(rows)]
    if noise:
        lines += [
            "",
            "'gap, auto' and the columns after it are for --seeds auto, with --most-seeds as in the column seeds",
        ]
    if kept:
        lines += [
            "", "what each measure could tell in the kept study whose FLOPs (matmul) are nearest: how many objectives "
            "are above the untrained encoder and a bag of words, and how many seeds show 4, 2 and 1 points",
            table([_kept(one) for one in kept]),
        ]  # fmt: skip
    return "\n".join(lines)


def _kept(one: Known) -> dict[str, Any]:
    return {
        "measure": one.measure, "tells": one.tells, "gap, 4 seeds": "none" if one.gap is None else f"{one.gap:.2f}",
        "seeds for 4, 2, 1": ", ".join(str(seeds or "over 1,000") for seeds in one.seeds_for.values()),
        "FLOPs": f"{one.flops:.2g}", "kept study": one.study,
    }  # fmt: skip


def _moved(designs: Sequence[Design]) -> list[str]:
    """Return the line on what another kind of arithmetic moves, for the fewest and the most seeds."""
    from workbench.report.statistics.paired_comparison import SHARE_IN_WORDS

    ends = dict.fromkeys(design for design in (designs[0], designs[-1]) if design.moved is not None)
    if not ends:
        return []
    amounts = " and ".join(f"{design.moved:.2f} points with {plural(design.seeds, 'seed')}" for design in ends)
    return [
        f"repeating the study with the same seeds on another kind of arithmetic, such as another processor, moves each "
        f"arm's mean by about {amounts} (one standard deviation; {SHARE_IN_WORDS}); the gaps contain this noise"
    ]


def _row(design: Design, convention: str) -> dict[str, Any]:
    row = {
        "seeds": design.seeds, f"FLOPs ({convention})": f"{design.flops:.3g}", "time": clock(design.seconds),
        "gap": "none" if design.gap is None else f"{design.gap:.2f}",
    }  # fmt: skip
    if design.added_gap is None or design.mean_seeds is None or design.mean_seconds is None:
        return row | dict.fromkeys(("gap, auto", "mean seeds", "mean time", "mean seeds if equal"), "-")
    return row | {
        "gap, auto": f"{design.added_gap:.2f}", "mean seeds": f"{design.mean_seeds:.1f}",
        "mean time": clock(design.mean_seconds), "mean seeds if equal": f"{design.idle_seeds:.1f}",
    }  # fmt: skip
