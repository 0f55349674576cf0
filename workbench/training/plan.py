"""The plan of a run: its steps, tokens, FLOPs, parameters and memory, and the points at which its weights are kept."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import objectives
from workbench.errors import DamagedRun, InputError, blaming
from workbench.models.flops import number
from workbench.spec.parts import CONVENTIONS, Convention, Part, ScheduleSpec
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.stages import Plan as Plan
from workbench.spec.stages import ResolvedSpec
from workbench.store import validation
from workbench.store.atomic import sealed, write_new
from workbench.store.run_directory import RunDir
from workbench.store.validation import check_fields

if TYPE_CHECKING:
    from torch import nn

# The speed of whole training steps as a share of the measured speed of matrix products (docs/log.md).
EFFICIENCY = 0.35
JUMP = 0.005  # of a schedule, the largest distance between the end of one phase of training and the begin of the next


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("steps", "tokens", "rows", "picks", "warmup_steps", "memory_bytes"), (int, float)),
    **dict.fromkeys(("flops", "flops_per_step", "parameters", "budget"), dict),
}


def plan_from_json(raw: Mapping[str, Any]) -> Plan:
    """Return the plan with the content of plan.json. Raises ValueError if a field is missing or of another type."""
    check_fields("plan.json", raw, _KINDS)
    return Plan(**{field.name: raw[field.name] for field in fields(Plan) if field.name in raw})


def plan_of(run: RunDir) -> Plan:
    """Return the plan in plan.json. Raises InputError if it cannot be used."""
    raw = run.read_json("plan.json")
    with usable(run):
        return plan_from_json(raw)


@contextlib.contextmanager
def usable(run: RunDir) -> Iterator[None]:
    """Turn a ValueError on a file of the run into a DamagedRun error that says what to do."""
    try:
        yield
    except ValueError as error:
        raise DamagedRun(f"{run.path}: {error}; move that folder away and give the same command again") from None


def plan(spec: ResolvedSpec, seconds_per_step: float | None = None, before: Plan | None = None) -> Plan:
    """Return the plan of a spec: what it spends (`spending`), its parameters and its memory."""
    return sized(spec, spending(spec, seconds_per_step, before))


def sized(spec: RunSpec, spent: Plan) -> Plan:
    """Return what a run spends together with the parameters of its model and its memory."""
    parameters = count_parameters(spec)
    return replace(spent, parameters=parameters, memory_bytes=memory(spec, parameters))


def spending(spec: ResolvedSpec, seconds_per_step: float | None = None, before: Plan | None = None) -> Plan:
    """Return the plan of a spec without its parameters and memory, for which a model has to be built.

    `seconds_per_step`, as measured, turns a budget in seconds into steps. `before` is the parent's plan; without it,
    the parent's spending is computed here. Raises InputError if the budget is too small for one step, the warm-up
    longer than the run, or a package for `optim.kind` missing.
    """
    if spec.optim.kind == "lamb" and importlib.util.find_spec("pytorch_optimizer") is None:
        raise InputError(
            "optim.kind=lamb needs the package pytorch-optimizer, which is not installed: pip install "
            "'encoder-workbench[lamb]', or choose optim.kind=adamw or muon"
        )
    row, per_step = objectives.cost(spec), dict[Convention, int | Fraction]()
    for name in CONVENTIONS:
        per_step[name] = spec.batch.size * row.train(name)
    origin = spec.parent()
    if origin is not None and before is None:
        before = spending(origin)
    own = _steps(spec, per_step, seconds_per_step, before)
    first = before.steps if before is not None and spec.start is not None and spec.start.take == "all" else 0
    rows = own * spec.batch.size
    spent: Mapping[str, int | float] = before.flops if before is not None else dict.fromkeys(CONVENTIONS, 0)
    tokens = rows * spec.data.length + (before.tokens if before is not None else 0)
    words, parent = None, None
    if spec.data.words:  # those of the parent are known from its own rows, which may have another length
        apart = (before.words, before.tokens) if before is not None and before.words is not None else (0.0, 0)
        words = apart[0] + spec.data.words_of(tokens - apart[1])
    if origin is not None and before is not None:
        before_steps = _steps_spent(before)
        parent = {"run_id": origin.name, "steps": before_steps, "tokens": before.tokens, "flops": before.flops}
    if origin is not None:
        _check_continues(spec, origin, first, first + own)
    flops, flops_per_step = dict[str, int | float](), dict[str, int | float]()
    for name, amount in per_step.items():
        flops[name] = number(own * amount + Fraction(spent[name]))
        flops_per_step[name] = number(amount)
    return Plan(
        steps=first + own,
        tokens=tokens,
        rows=rows,
        picks=spec.picks,
        warmup_steps=warmup_steps(spec.schedule, round((first + own) / spec.schedule.until)),
        flops=flops,
        flops_per_step=flops_per_step,
        parameters={},
        memory_bytes=0,
        budget={spec.budget.unit: spec.budget.amount, "convention": spec.budget.convention},
        first=first,
        parent=parent,
        words=words,
        epochs=words / spec.data.words if words is not None else None,
    )


def _check_continues(spec: RunSpec, origin: RunSpec, first: int, steps: int) -> None:
    """Raise InputError if the learning rate would jump between two phases of a training (`StartSpec`).

    The first phase ends after `first` of all `steps`. A budget in FLOPs or tokens gives the phases other shares of the
    steps than of the budget, as longer rows cost more.
    """
    if spec.start is None or spec.start.take != "all" or not steps:
        return
    until, share, kind = origin.schedule.until, first / steps, spec.schedule.kind
    if until == 1 and origin.data.length == spec.data.length:
        return
    if kind == "wsd" and round(spec.schedule.decay * steps) > steps - first:
        raise InputError(
            f"schedule.decay={spec.schedule.decay:g} would begin before this run does, at {share:.4g} of all steps; "
            f"set schedule.decay={1 - share:.4g} at most"
        )
    if kind in ("linear", "cosine") and abs(until - share) > JUMP:
        raise InputError(
            f"start.parent.schedule.until={until:g}: the learning rate would jump where this run begins, after "
            f"{share:.4g} of all {steps:,} steps; set start.parent.schedule.until={share:.4g}"
        )


def with_parents(plans: Iterable[tuple[ResolvedSpec, Plan]]) -> list[tuple[ResolvedSpec, Plan]]:
    """Return these runs and all runs that they start from, each once, with their plans."""
    runs: dict[str, tuple[ResolvedSpec, Plan]] = {}
    for spec, own_plan in plans:
        runs[spec.name] = spec, own_plan
        origin = spec.parent()
        while origin is not None and origin.name not in runs:
            runs[origin.name] = origin, plan(origin)
            origin = origin.parent()
    return list(runs.values())


def price(base: RunSpec, word: str) -> Plan:
    """Return the plan of one run of an objective, given by name or file, for `workbench flops`."""
    name, source = objectives.find(word)
    return plan(objectives.with_options(base.replace(objective=name, source=source)))


def warmup_steps(schedule: ScheduleSpec, steps: int) -> int:
    """Return the number of warm-up steps; by default the paper's 10,000, but at most a tenth of the run.

    Raises InputError if the warm-up is as long as the run or longer.
    """
    warmup = schedule.warmup
    if warmup is None:
        return min(10_000, steps // 10)
    result = int(warmup) if warmup >= 1 else int(warmup * steps)
    if steps and result >= steps:
        raise InputError(
            f"schedule.warmup={warmup:g} steps do not fit into the run's {steps} steps; "
            f"give a share of the run, as in --set schedule.warmup=0.1, or a larger --budget"
        )
    return result


def count_parameters(spec: RunSpec) -> dict[str, int]:
    """Return the number of parameters of each part and in total.

    Shared parameters count in the first part that has them: encoder, then generator, then heads.
    """
    from workbench.models import published_pair

    key = _sizes(spec)
    if key not in _counted:
        objective = outline(spec)
        if spec.pair is not None:
            published_pair.check_objective(objective, spec)
        part_of = dict[Any, str]()  # of each weight the first part that has it
        parts = {"encoder": 0, **dict.fromkeys(dict(objective.named_children()), 0)}
        for name in parts:
            for weight in getattr(objective, name).parameters():
                part_of.setdefault(weight, name)
        for weight, name in part_of.items():
            parts[name] += weight.numel()
        total = 0
        for weight in objective.parameters():
            total += weight.numel()
        _counted[key] = parts | {"total": total}
    return dict(_counted[key])


_counted: dict[str, dict[str, int]] = {}  # a cache, since building a model takes 12 ms and a sweep may have many runs


def _sizes(spec: RunSpec) -> str:
    """Return a hash of the settings on which the number of parameters depends.

    For an objective that is not part of the package, these are all except seed, budget, optimizer and schedule.
    """
    if spec.source:
        given = spec.identity()
        return digest({key: given[key] for key in given if key not in ("seed", "budget", "optim", "schedule")})
    parts: tuple[Part, ...] = (spec.encoder, spec.generator_encoder, spec.data.special)
    rest: list[Any] = [spec.objective, spec.generator.kind, spec.tying, spec.head, spec.recipe, spec.generator_frozen]
    rest += [spec.pair.files] if spec.pair is not None else []
    for part in parts:
        rest.append(part.model_dump(mode="json", exclude={"dropout", "attention_dropout", "init"}))
    return digest(rest)


def outline(spec: RunSpec) -> nn.Module:
    """Return the objective of a run on the meta device, where its weights have shapes and no values.

    Raises InputError if an objective that is not part of the package cannot be built.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    from workbench.models.encoder import build_encoder

    class Undrawn(TorchFunctionMode):
        """No random weights are drawn: they have no values, and drawing them would import torch's slow compiler."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in ("normal_", "uniform_"):
                return args[0] if args else kwargs["tensor"]
            return func(*args, **(kwargs or {}))

    reported = blaming(objectives.file_of(objectives.load(spec)), "Objective(encoder, spec, options) raised")
    with torch.device("meta"), Undrawn(), reported:
        return objectives.build(spec, build_encoder(spec))


def spent_by(plan: Plan, spec: RunSpec, step: int) -> dict[str, Any]:
    """Return the tokens and FLOPs spent up to a step of a run, including its parents', and the step itself."""
    before: Mapping[str, Any] = plan.parent or {"tokens": 0, "flops": dict.fromkeys(plan.flops_per_step, 0)}
    own = step - plan.first
    return {
        "step": step,
        "tokens": before["tokens"] + own * spec.batch.size * spec.data.length,
        "flops": {name: before["flops"][name] + own * cost for name, cost in plan.flops_per_step.items()},
    }


def _steps_spent(plan: Plan) -> int:
    """Return the number of steps of a run and of all runs that it starts from."""
    return plan.steps - plan.first + (plan.parent["steps"] if plan.parent else 0)


def _paid(spec: RunSpec, before: Plan) -> Fraction:
    """Return the amount of the budget, in its unit, that the parent and its own parents spend. Raises InputError."""
    unit = spec.budget.unit
    if unit == "seconds":
        if unit not in before.budget:
            raise InputError(
                "if the budget is in seconds, the parent's must be in seconds too; leave start.parent.budget out"
            )
        return Fraction(before.budget[unit])
    if unit == "steps":
        return Fraction(_steps_spent(before))
    return amount_in(unit, spec, before.tokens, before.flops)


def amount_in(unit: str, spec: RunSpec, tokens: int, flops: Mapping[Any, int | float | Fraction]) -> Fraction:
    """Return the amount in `unit`: the tokens, their number of words, or the FLOPs under the budget's convention."""
    if unit == "words":
        return tokens * spec.data.words_per_token()
    return Fraction(tokens if unit == "tokens" else flops[spec.budget.convention])


def _steps(
    spec: RunSpec, per_step: Mapping[Convention, int | Fraction], seconds_per_step: float | None, before: Plan | None
) -> int:
    """Return the number of steps that the run's budget allows after its parent's part.

    It is 0 for a budget in seconds while the time of a step is unknown. Raises InputError if no step is left.
    """
    budget = spec.budget
    left = Fraction(budget.amount) - (_paid(spec, before) if spec.start is not None and before is not None else 0)
    if budget.unit == "steps":
        if spec.start is not None and left < 1:
            raise InputError(f"--budget steps={budget.amount:g} leaves no step for the run after those of its parent")
        return int(left)
    if budget.unit == "seconds":
        if seconds_per_step is None:
            return 0  # not known before the time of a step is measured, at the start of the run
        cost = Fraction(seconds_per_step)
    else:
        cost = amount_in(budget.unit, spec, spec.batch.size * spec.data.length, per_step)
    steps = int(left // cost)
    if steps < 1:
        parents = " after what its parent spends" if spec.start is not None else ""
        raise InputError(
            f"--budget {budget.unit}={budget.amount:g}{parents} is less than one step, which takes {float(cost):.4g} "
            f"{budget.unit}; give more, or a smaller --set batch.size"
        )
    return steps


def memory(
    spec: RunSpec, parameters: Mapping[str, int], devices: int = 1, shard: bool = False, at_once: int | None = None
) -> int:
    """Return an estimate of the peak memory of a step on each of several devices, in bytes.

    Each computes `at_once` of its rows at a time, all of them if it is None.

    It consists of weights, gradients and two Adam moments in fp32, and of activations kept for the backward pass. With
    `shard` each device has a part of these four, and at most whole weights and gradients as well while it computes a
    step: those of layers are whole one after another where that is possible (`distributed.layers_of`).
    """
    rows, length = at_once or spec.batch.size // devices, spec.data.length
    each = 16 / devices + 8 if shard else 16

    activations = 0
    for encoder in [spec.encoder, *([spec.generator_encoder] if parameters.get("generator") else [])]:
        of_token = 34 * encoder.hidden + 5 * encoder.head_count * length
        activations += rows * length * encoder.layers * of_token * 2
    logits = rows * spec.picks * spec.encoder.vocab * 4 * 3
    return round(each * parameters["total"]) + activations + logits


# ----------------------------------------
# Weights kept at points during training, so that these points can be evaluated after training.
#
# RUN/points/00000100/encoder    the encoder, in the same format as at the end of the run
# RUN/points/00000100/heads      the objective's other weights
# RUN/points/00000100/point.json steps, tokens and FLOPs up to the point, and the hashes of its weights
# RUN/points/00000100/scores     the scores of the point
#
# The folder of a point appears complete, by one rename. A run that resumes from a checkpoint deletes the points after
# it and writes them again when it reaches them, so that all points of a run come from one training.

FORMAT = 1
DESCRIPTIONS = 8192  # bytes of the JSON files of a point and of the heads of its two files of weights, at most


@dataclass(frozen=True)
class Snapshots:
    """The points at which a run keeps its weights; `tokenizer` is a folder whose files are exported with them."""

    run: RunDir
    spec: RunSpec
    plan: Plan
    tokenizer: Path
    points: Sequence[Point]

    def begin(self, done: int) -> None:
        """Delete the points after step `done`, where training continues. Raises DamagedRun for damaged earlier ones."""
        for place in validation.points(self.run.path):
            if step_of(place) > done:
                self.run.remove(place.rstrip("/"))
            else:
                self.run.check_point(place)

    def due(self, step: int) -> bool:
        """Return whether the weights are kept at this step."""
        return any(point.step == step for point in self.points)

    def room(self, done: int, parameters: int) -> int:
        """Return the largest number of bytes that the points after step `done` take on disk."""
        if not self.points:
            return 0
        tokenizer = sum(file.stat().st_size for file in self.tokenizer.iterdir() if file.is_file())
        return sum(point.step > done for point in self.points) * (4 * parameters + 2 * tokenizer + DESCRIPTIONS)

    def keep(self, model: nn.Module, step: int, seconds: float) -> None:
        """Write the weights of a point. Raises LeaseLost if another process took the run over, or OSError."""
        from workbench.models.export import export, export_heads  # which loads torch

        point = next(point for point in self.points if point.step == step)
        facts = {"steps": step, **spent_by(self.plan, self.spec, step)}
        with self.run.staged(f"points/{step:08d}") as draft:
            encoder, heads = draft / "encoder", draft / "heads"
            encoder.mkdir()
            heads.mkdir()
            export(model.encoder, self.tokenizer, encoder, self.spec, facts)  # type: ignore[arg-type]
            export_heads(model, heads)
            record = facts | {"mark": point.mark, "seconds": seconds}
            record |= {"encoder": validation.hashes(encoder), "heads": validation.hashes(heads)}
            write_new(draft / "point.json", sealed({"format": FORMAT, **record, "run_id": self.run.run_id}))


# ----------------------------------------
# The points of training at which a run keeps its weights, so that scores can be shown as curves over compute.
#
# `--evaluate-at` (tasks.at) has four kinds of values. `log:N` takes N points at equal distances on a logarithmic axis,
# from 1 % of the run's compute on; the end of training, which every run has, is one more. `words` is BabyLM's
# schedule: after 1, 2, ... 10, 20, ... 100, 200, ... 1,000 million words. `auto` takes log:6, or fewer points if their
# scores would cost too much compute (see `workbench.tasks.common.cost`). `none` takes none.
#
# The points depend only on a spec and its plan, so that every command and every worker process computes the same ones.


MILLION = 1_000_000
DECADES = 2  # of compute that the points of `log:N` cover
WORDS = tuple(map(MILLION.__mul__, (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))))


@dataclass(frozen=True)
class Point:
    """A step of a run before its last one; `mark` is its name in the schedule, such as `10 %`, equal in all runs."""

    step: int
    mark: str


def log_points(plan: Plan, count: int, convention: str) -> list[Point]:
    """Return the points of `log:count`; the FLOPs of runs that this one starts from are part of its compute."""
    per_step = Fraction(plan.flops_per_step[convention])
    before = Fraction(plan.parent["flops"][convention]) if plan.parent else Fraction(0)
    own = plan.steps - plan.first
    shares = sorted(Fraction(10 ** (-DECADES * i / count)).limit_denominator(10**9) for i in range(1, count + 1))
    targets = ((share, (share * (before + own * per_step) - before) / per_step) for share in shares)
    return _within(plan, ((plan.first + round(steps), f"{100 * float(share):.3g} %") for share, steps in targets))


def word_points(spec: RunSpec, plan: Plan) -> list[Point]:
    """Return the points of `words`: for each number of words, the last step by which no more words were seen.

    Words seen by the runs that this one starts from are included. Raises InputError if the words of the corpus are not
    counted.
    """
    of_token = spec.data.words_per_token()
    before = plan.parent["tokens"] * of_token if plan.parent else 0
    of_step = spec.batch.size * spec.data.length * of_token
    marks = ((plan.first + int((amount - before) // of_step), mark_of_words(amount)) for amount in WORDS)
    return _within(plan, marks)


def mark_of_words(amount: int) -> str:
    """Return the mark of a point of the schedule `words`, such as "20 M words"."""
    return f"{amount // MILLION:,} M words"


def _within(plan: Plan, marks: Iterable[tuple[int, str]]) -> list[Point]:
    """Return the points that lie within a run's own training and before its end, at most one for each step."""
    points = {step: Point(step, mark) for step, mark in marks if plan.first < step < plan.steps}
    return [points[step] for step in sorted(points)]


def step_of(place: str) -> int:
    """Return the step of a point from its place, such as "points/00000100/"."""
    return int(place.split("/")[1])
