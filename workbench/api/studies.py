"""Studies in Python: functions that carry out experiments, and their results as tables, comparisons and reports."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from workbench.api.arguments import LISTS, EvaluateArguments, RunArguments, SubmitArguments, SweepArguments, checked
from workbench.errors import InputError, suggest
from workbench.execution.cluster.job_options import launch_of
from workbench.execution.request import (
    Request,
    Trials,
    carry_out_job,
    carry_out_search,
    host_of,
    run_job,
    search_jobs,
    sweep_job,
)
from workbench.spec.host import KEY, Launch
from workbench.store.run_store import RunStore

if TYPE_CHECKING:
    import pandas as pd

    from workbench.execution.experiment_runner import Outcome
    from workbench.report.load.study_tables import Frames
    from workbench.report.results import Leaderboard, Verdict

TRIALS = ("trials", "sampler", "tuning_seeds", "storage")
HOST = ("device", "precision", "micro_batch", "threads", "compile_", "save_every", "track", "plain", "devices", "shard")


@dataclass(frozen=True)
class Comparison:
    """A comparison of two arms of a study at one budget, by the rule of reports (docs/decisions/0009).

    `difference` is the mean of `a` minus `b` in points, over the pre-training `seeds` that both have, with its
    interval from `low` to `high`, which are None if the noise is unknown; its level is `level` %, 95 unless seeds are
    added by a plan. `p` is corrected for all comparisons that
    count. `verdict` is "ahead" if `a` is ahead, "behind" if `b` is, or "open", which does not mean equal. `detectable`
    is the true difference that this design shows with a probability of 80 %, with the noise of all arms or that of the
    two, whichever takes more. If contrasts were declared, nothing is claimed of a pair that is not `declared`. If not
    `alike`, each arm was scored by a scorer of its own objective, so a difference may be due to the scorers.
    """

    a: str
    b: str
    measure: str
    budget: str
    difference: float
    low: float | None
    high: float | None
    level: float
    p: float | None
    seeds: int
    verdict: str
    declared: bool
    detectable: float | None
    alike: bool = True

    def __str__(self) -> str:
        interval = "" if self.low is None else f" ({self.level:.3g} % interval {self.low:.2f} to {self.high:.2f})"
        p = "" if self.p is None else f", corrected p {self.p:.3g}"
        ahead = "is ahead of" if self.alike else "scores higher, each arm by its own scorer, than"
        words = {"ahead": f"{self.a} {ahead} {self.b}", "behind": f"{self.b} {ahead} {self.a}"}
        claim = words.get(self.verdict, "nothing is shown") if self.declared else "not declared beforehand"
        shown = "" if self.detectable is None else f"; the design shows {self.detectable:.2f} points four times in five"
        return (
            f"{self.measure} at {self.budget}: {self.a} minus {self.b} is {self.difference:+.2f} points{interval}{p} "
            f"over {self.seeds} seeds: {claim}{shown}"
        )


class Study:
    """An experiment in a store. `outcome` is the result of carrying it out, or None if this process did not do so."""

    def __init__(self, store: RunStore, name: str, outcome: Any = None) -> None:
        self._store, self.name, self.outcome = store, name, outcome

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.runs()["state"].value_counts().items())
        return f"<Study {self.name}: {states}>"

    @functools.cached_property
    def _frames(self) -> Frames:
        from workbench.report.load import study_tables

        return study_tables.read_and_warn(self._store, self.name)

    @functools.cached_property
    def _boards(self) -> list[Leaderboard]:
        from workbench.report.comparison import leaderboards

        return leaderboards(self._frames)

    def runs(self) -> pd.DataFrame:
        """Return a row for each run, including untrained encoders: arm, seed, budget, state and compute spent."""
        return self._frames.runs.copy()

    def trials(self) -> pd.DataFrame:
        """Return a row for each trial of a search: objective, trial, score, failed, run_ids and a column for each key.

        The score is the mean over the trial's runs, and None until all have one. A value that was chosen among listed
        ones is text, as it was given. Without a search there are no rows.
        """
        import pandas as pd

        fields = ("objective", "trial", "score", "failed", "run_ids")
        rows = [
            {field: trial.get(field) for field in fields} | trial["values"] for trial in self._frames.record["tuning"]
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(fields))

    def scores(self) -> pd.DataFrame:
        """Return a row for each run, task and fine-tuning seed; docs/columns.md describes the columns."""
        from workbench.report.data_files import long_table

        return long_table(self._frames)

    def curves(self) -> pd.DataFrame:
        """Return the training curves of all runs, averaged over intervals of steps, with a row for each interval."""
        return self._frames.curves.merge(self._frames.runs[["run_id", "arm", "seed"]], on="run_id")

    def points(self) -> pd.DataFrame:
        """Return the scores taken during training and at its end, with a row for each run, task and point."""
        return self._frames.points.copy()

    def measures(self) -> list[str]:
        """Return the names of the measures for `compare`, in the order of the report."""
        return [board.suite for board in self._boards]

    def verdicts(self) -> list[Verdict]:
        """Return the verdict of each measure as typed fields, the one that decides first; none without scores."""
        from workbench.report.verdict import verdicts

        return verdicts(self._boards, self._frames)

    def answer(self) -> str:
        """Return the verdict of the study in one sentence, as the report and `workbench status` give it."""
        from workbench.report.page.facts import no_scores

        return str(next(iter(self.verdicts()), no_scores(self._frames)))

    def compare(self, a: str, b: str, measure: str | None = None, budget: str | None = None) -> Comparison:
        """Compare two arms by a measure (the first by default) at a budget (the largest by default).

        Raises InputError for an arm, a measure or a budget that the study does not have.
        """
        from workbench.report.verdict import detectable

        board = self._board(measure)
        budget = _known(budget or board.budget, board.budgets, f"{self.name} has no budget")
        arms = [cell.arm for cell in board.cells if cell.budget == budget]
        for arm in (a, b):
            _known(arm, arms, f"{self.name} has no arm with scores on {board.suite} at {budget} called")
        pair = next((pair for pair in board.pairs[budget] if {pair.a, pair.b} == {a, b}), None)
        if pair is None:
            raise InputError(f"{a!r} and {b!r} are the same arm; name two different ones")
        sign = 1 if pair.a == a else -1
        level = board.families[budget].level if pair.compared.declared and budget in board.families else 95.0
        estimate, verdict = pair.compared.estimate, pair.compared.verdict
        low, high = (estimate.low, estimate.high) if sign > 0 else (_negated(estimate.high), _negated(estimate.low))
        reversed_verdict = {"ahead": "behind", "behind": "ahead"}.get(verdict, verdict)
        return Comparison(
            a, b, board.label, budget, sign * estimate.mean, low, high, level,
            pair.compared.adjusted, estimate.n,
            verdict if sign > 0 else reversed_verdict, pair.compared.declared, detectable(board, budget, pair),
            board.alike(a, b),
        )  # fmt: skip

    def report(self, out: Path | str | None = None) -> Path:
        """Write the report to the folder `out` (by default reports/NAME), and return the path of its index.html.

        Raises InputError if the folder lies in the store, or if it cannot be written.
        """
        from workbench.execution.request import report_folder
        from workbench.report import write

        folder = report_folder(Path(out) if out is not None else None, self._store.root)
        return write(self._store, self.name, folder or Path("reports") / self.name)

    def _board(self, measure: str | None) -> Leaderboard:
        if not self._boards:
            raise InputError(f"{self.name} has no trained run with a score on every task, so nothing can be compared")
        chosen = _known(measure or self.measures()[0], self.measures(), f"{self.name} has no measure")
        return next(board for board in self._boards if board.suite == chosen)


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _known(word: str, known: Sequence[str], problem: str) -> str:
    if word not in known:
        raise InputError(f"{problem} {word!r}{suggest(word, known)}")
    return word


def run(experiment: str, **arguments: Unpack[RunArguments]) -> Study:
    """Carry out an experiment, as `workbench run` does, and return it. A repeated call continues where it stopped.

    `arguments` are the command's options by name, as `workbench.api.arguments.RunArguments` lists them: objectives
    (names or files), scale, corpus, tasks, evaluate_at, budget, match, seeds (a number or "auto"), most_seeds,
    most_compute, most_epochs; settings (a mapping, as with --set); store (default "runs"), out (the folder of the
    report, default reports/NAME), workers; device, devices, shard, precision, threads, micro_batch, `compile_`, plain,
    save_every, track; launcher ("local" or "slurm"). Raises InputError, before anything is spent, if they cannot be
    used.

        study = wb.run("ablation", objectives=["rtd", "bert-mlm"], budget="flops=1e12", seeds=4, tasks="pairs")
        print(study.compare("rtd", "bert-mlm"))
    """
    given = checked(arguments, RunArguments)
    root, workers, out = _place(given)
    host = replace(host_of(**_taken(given, HOST), launch=_launch(given)), command=_called("run", experiment, arguments))
    return _study(root, carry_out_job(*run_job(_request(given), experiment), root, host, workers, out))


def sweep(
    axis: str | None = None, over: Mapping[str, Iterable[Any] | str] | None = None, **arguments: Unpack[SweepArguments]
) -> Study:
    """Compare settings at equal compute, as `workbench sweep` does: those of an experiment, of `over`, or of both.

    `over` maps keys to values, as in {"generator.width": (0.25, 0.5, 1)}. With `trials`, or with the axis "tune", they
    are the space of a search, in which a text may be a range, as in {"optim.lr": "1e-4..1e-3:log"}; sampler,
    tuning_seeds and storage are then the command's options too. The other `arguments` are those of `run`. Raises
    InputError if they cannot be used.
    """
    from workbench.spec.axes import parse_over

    given = checked(arguments, SweepArguments)
    root, workers, out = _place(given)
    spaces = {key: _word(values) for key, values in (over or {}).items()}
    called = {"over": spaces, **arguments}
    trials = Trials(**_taken(given, TRIALS))
    host = replace(host_of(**_taken(given, HOST), launch=_launch(given)), command=_called("sweep", axis, called))
    space = parse_over([f"{key}={values}" for key, values in spaces.items()])
    request = _request(given)
    if not trials.searches(axis):
        return _study(root, carry_out_job(*sweep_job(request, axis, space), root, host, workers, out))
    jobs, search, count = search_jobs(request, axis, space, trials)
    return _study(root, carry_out_search(jobs, search, count, root, host, workers, out))


def plan(experiment: str, **arguments: Unpack[RunArguments]) -> pd.DataFrame:
    """Return the plan of `run` with a row for each run: steps, tokens, FLOPs, parameters and memory.

    `arguments` are those of `run`; the ones on where and how runs are carried out have no effect. Nothing is run, and
    text is prepared only if its words must be counted. Raises InputError if the options cannot be used.
    """
    import pandas as pd

    from workbench.execution.run_list import plan_rows, plans

    given = checked(arguments, RunArguments)
    _place(given)
    _taken(given, HOST)
    _launch(given)
    job, _ = run_job(_request(given), experiment)
    return pd.DataFrame(plan_rows(plans(job)[0]))


def evaluate(
    encoder: Path | str, tasks: str = "probes", scale: str | None = None, **arguments: Unpack[EvaluateArguments]
) -> pd.DataFrame:
    """Fine-tune any encoder in the Hugging Face layout on tasks, as `workbench evaluate` does; return a row per score.

    `arguments` are settings (a mapping), device and precision. Raises InputError if the encoder or the tasks cannot be
    used, or if a fine-tuning fails.
    """
    import pandas as pd

    from workbench.execution.request import scores_of_encoders

    given = checked(arguments, EvaluateArguments)
    host = host_of(**_taken(given, ("device", "precision")))
    settings = _settings(given)
    scores, failed = scores_of_encoders([str(encoder)], scale, settings, tasks, host)
    if failed:
        raise InputError(f"{failed} of the scores of {encoder} could not be taken; see the log")
    return pd.DataFrame(scores)


def submit(
    name: str, out: Path | str, arm: str | None = None, seed: int | None = None, ensemble: int = 1,
    glue: str | None = None, wnli_majority: bool = False, partial: bool = False, store: Path | str = "runs",
    **arguments: Unpack[SubmitArguments],
) -> dict[str, Any]:  # fmt: skip
    """Write a submission to GLUE's server, as `workbench submit` does; return the card that is written beside it.

    `name` is that of an experiment or of a run; the others are the command's options, and `arguments` are device,
    precision and threads. Raises InputError, before anything is fine-tuned, if a file cannot be made.
    """
    from workbench.execution.glue_submission import submit as submission
    from workbench.execution.glue_submission.choice import SeedChoice, source_of

    given = checked(arguments, SubmitArguments)
    host = host_of(**_taken(given, ("device", "precision", "threads")))
    choice, source = SeedChoice(seed, ensemble), source_of(RunStore.existing(store), name, arm)
    return submission.submit(source, Path(out), choice, glue, wnli_majority, partial, host).to_json()


def _study(root: Path, outcome: Outcome) -> Study:
    return Study(RunStore.existing(root), outcome.record, outcome)


def _called(name: str, experiment: str | None, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the call as words, which the record and every run store in place of a command line."""
    return ("workbench", f"wb.{name}", experiment or "", *(f"{key}={value}" for key, value in arguments.items()))


def _place(given: dict[str, Any]) -> tuple[Path, int, Path | None]:
    """Remove store, workers and out from the arguments, and return them."""
    out = given.pop("out", None)
    return Path(given.pop("store", "runs")), given.pop("workers", 1), None if out is None else Path(out)


def _launch(given: dict[str, Any]) -> Launch | None:
    """Remove the launcher and the settings `launch.*` from the arguments, and return the options of jobs."""
    settings = dict(given.get("settings") or {})
    given["settings"] = {key: value for key, value in settings.items() if not key.startswith(KEY)}
    jobs = [f"{key}={value}" for key, value in settings.items() if key.startswith(KEY)]
    return launch_of(given.pop("launcher", "local"), jobs)[1]


def _taken(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: given.pop(name) for name in names if name in given}


def _settings(given: dict[str, Any]) -> list[str]:
    """Remove `settings` from the arguments, and return them as texts "key=value" for --set."""
    return [f"{key}={_word(value)}" for key, value in (given.pop("settings", None) or {}).items()]


def _word(value: Any) -> str:
    """Return a value as text for the command line, and several values joined by commas."""
    several = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    return ",".join(map(str, value)) if several else str(value)


def _request(given: dict[str, Any]) -> Request:
    """Return the request of these keyword arguments."""
    settings = _settings(given)
    for name in LISTS:
        if isinstance(given.get(name), str):
            given[name] = (given[name],)
    if given.get("seeds") is not None:
        given["seeds"] = str(given["seeds"])
    chosen = _taken(given, [name for name in Request.__dataclass_fields__ if name != "settings"])
    return Request(settings=settings, **{name: value for name, value in chosen.items() if value is not None})
