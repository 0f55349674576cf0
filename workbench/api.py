"""The Python interface, which has the command line's functions and options under the same names.

Use `import workbench as wb`. Results are tables, comparisons and reports.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from workbench.errors import InputError, plural, suggest
from workbench.execution.study_options import host_of, prepared, report_folder, study_job, study_of
from workbench.options import (
    EvaluateOptions,
    Output,
    RunOptions,
    SubmitOptions,
    SweepOptions,
    checked,
    options_of,
    text_of,
)
from workbench.store.atomic import user_path, write_atomic
from workbench.store.redact import refuse_secrets_in
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore, refuse_other_report

if TYPE_CHECKING:
    import pandas as pd

    from workbench.report.load.study_tables import Frames
    from workbench.report.results import Leaderboard, Results, Verdict
    from workbench.spec.run_spec import RunSpec

P = ParamSpec("P")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")


@dataclass(frozen=True)
class Comparison:
    """A comparison of two arms of a study at one budget, by the rule of reports (docs/decisions/0009).

    `difference` is the mean of `a` minus `b` in points, over the pre-training `seeds` that both have, with its
    interval from `low` to `high`, which are None if the noise is unknown; its level is `level` %, 95 unless seeds are
    added by a plan. `p` is corrected for all comparisons that count. `verdict` is "ahead" if `a` is ahead, "behind" if
    `b` is, or "open", which does not mean equal. `detectable` is the true difference that this design shows with a
    probability of 80 %, by the noise of all arms or by the noise of the two, whichever is larger. If contrasts were
    declared, nothing is claimed of a pair that is not `declared`. If not `alike`, each arm was scored by a scorer of
    its own objective, so a difference may be due to the scorers.
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
            f"over {plural(self.seeds, 'seed')}: {claim}{shown}"
        )


@dataclass(frozen=True, repr=False)
class Plot:
    """A figure of a study, `svg`, which a notebook shows."""

    svg: str

    def __repr__(self) -> str:
        return f"<Plot: an SVG of {len(self.svg):,} characters; save(path) writes it>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Path | str) -> Path:
        """Write the figure to a file, and return its path. Raises InputError unless its name ends in .svg."""
        place = user_path(path, "path")
        if place.suffix != ".svg":
            raise InputError(f"{path}: a plot is written as SVG; end the name in .svg")
        if not place.parent.is_dir():
            raise InputError(f"{path}: there is no folder {place.parent}")
        write_atomic(place, self.svg.encode("utf-8", "replace"))
        return place


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
    def _results(self) -> Results:
        from workbench.report.data_files import from_store

        return from_store(self._store, self.name, loaded=self._frames)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how far the runs are, the answer, and the score of each arm by each measure."""
        from workbench.report.formatting import interval

        states = Counter(str(state) for state in self.runs()["state"])
        progress = ", ".join(f"{count} {state}" for state, count in states.items())
        parts = [
            f"<b>{escape(self.name)}</b>: {escape(self._results.question)}<br>{plural(sum(states.values()), 'run')}: "
            f"{escape(progress)}",
            escape(self.answer()),
        ]
        if boards := self._results.by_verdict:
            means = {(cell.arm, board.suite): cell.estimate for board in boards for cell in board.at(board.budget)}
            head = "".join(f"<th>{escape(f'{board.label}, {board.budget}')}</th>" for board in boards)
            rows = ""
            for arm in dict.fromkeys(arm for arm, _ in means):
                own = (means.get((arm, board.suite)) for board in boards)
                scores = "".join(f"<td>{interval(e.mean, e.half) if e else ''}</td>" for e in own)
                rows += f"<tr><th>{escape(arm)}</th>{scores}</tr>"
            parts.append(f"<table><thead><tr><th>arm</th>{head}</tr></thead><tbody>{rows}</tbody></table>")
        return "".join(f"<p>{part}</p>" if "<table>" not in part else part for part in parts)

    def plot(self, measure: str | None = None) -> Plot:
        """Return the main figure of the report, of the measure that decides or of another one.

        Raises InputError for a measure that the study does not have, or if there are no scores yet.
        """
        from workbench.report import main_figure

        board = self._results.by_verdict[0] if measure is None and self._results.boards else self._board(measure)
        return Plot(main_figure(self._results, board))

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
        return [board.suite for board in self._results.boards]

    def verdicts(self) -> list[Verdict]:
        """Return the verdict of each measure as typed fields, the deciding measure first; none without scores."""
        return list(self._results.verdicts)

    def answer(self, measure: str | None = None) -> str:
        """Return the verdict of the study in one sentence, as the report and `workbench status` give it.

        It is the verdict of the measure that decides, or of another one of `measures`. Raises InputError for a measure
        that the study does not have.
        """
        from workbench.report.page.rendering import no_scores

        if measure is not None:
            _known(measure, self.measures(), f"{self.name} has no measure")
        each = (verdict for verdict in self.verdicts() if measure in (None, verdict.suite))
        return str(next(each, no_scores(self._frames)))

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
        estimate, verdict = pair.compared.estimate, str(pair.compared.verdict)
        low, high = (None if end is None else sign * end for end in (estimate.low, estimate.high)[::sign])
        if sign < 0:
            verdict = {"ahead": "behind", "behind": "ahead"}.get(verdict, verdict)
        return Comparison(
            a, b, board.label, budget, sign * estimate.mean, low, high, level, pair.compared.adjusted, estimate.n,
            verdict, pair.compared.declared, detectable(board, budget, pair), board.alike(a, b),
        )  # fmt: skip

    def report(self, out: Path | str | None = None) -> Path:
        """Write the report to the folder `out` (by default reports/NAME), and return the path of its index.html.

        Raises InputError if the folder lies in the store, or if it cannot be written.
        """
        from workbench.report import write

        folder = report_folder(Output(runs=self._store.root, out=out))
        if folder is None:
            refuse_other_report(folder := Path("reports") / self.name, self._store)
        return write(self._store, self.name, folder)

    def _board(self, measure: str | None) -> Leaderboard:
        boards = self._results.boards
        if not boards:
            raise InputError(f"{self.name} has no trained run with a score on every task, so nothing can be compared")
        chosen = _known(measure or self.measures()[0], self.measures(), f"{self.name} has no measure")
        return next(board for board in boards if board.suite == chosen)


def _known(word: str, known: Sequence[str], problem: str) -> str:
    if word not in known:
        raise InputError(f"{problem} {word!r}{suggest(word, known)}")
    return word


class Run:
    """One run of a store."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.state}>"

    @property
    def run_id(self) -> str:
        """The name of the run, which is also the name of its directory."""
        return self._folder.run_id

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._folder.path

    @property
    def spec(self) -> RunSpec:
        """The run's spec: every setting that decides what it computes. Raises InputError if it cannot be read."""
        return self._folder.spec()

    @property
    def state(self) -> str:
        """The state: new, running, interrupted, trained, done, failed, diverged or damaged."""
        return self._folder.state

    def metrics(self) -> pd.DataFrame:
        """Return metrics.jsonl, a row per logged step: losses, learning rate, tokens and FLOPs so far, and seconds."""
        import pandas as pd

        return pd.DataFrame(self._folder.metrics())

    def scores(self) -> pd.DataFrame:
        """Return the scores at the end of training, with a row for each task and fine-tuning seed."""
        import pandas as pd

        columns = ("task", "suite", "metric", "seed", "value")
        rows = [{key: score.get(key) for key in columns} for score in self._folder.scores().values()]
        return pd.DataFrame(rows, columns=list(columns)).rename(columns={"seed": "fine_tuning_seed"})

    def encoder(self) -> tuple[Any, Any]:
        """Return the trained encoder and its tokenizer, as transformers loads them from the run's directory.

        An encoder of a family without a format of Hugging Face is returned under the same interface.

        Raises InputError if the run has no encoder yet, or if its files have changed since they were written.
        """
        from transformers import AutoModel, AutoTokenizer

        from workbench.data.tokenizer import load_published_tokenizer
        from workbench.models import families
        from workbench.tasks.common.encoder_folders import load_encoder

        folder = self.path / "encoder"
        if not folder.is_dir():
            raise InputError(f"{self.run_id} is {self.state} and has no encoder; train it to its end first")
        self._folder.check_weights("encoder")
        families.PLUGS.keep(self.spec.encoder.source, self.path / "encoder.py")  # unless the file is known here
        if families.family_of(self.spec.encoder).to_hub is None:
            return load_encoder(folder, self.spec.encoder.dropout).eval(), load_published_tokenizer(folder)
        return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


class Store:
    """A store of runs: the folder that `--runs` names. Raises InputError if there is none; nothing is written."""

    def __init__(self, root: Path | str = "runs") -> None:
        self._store = RunStore.existing(root)

    def __repr__(self) -> str:
        return f"<Store {self._store.root}: {len(self._store.runs())} runs>"

    @property
    def root(self) -> Path:
        """The folder of the store."""
        return self._store.root

    def view(
        self, host: str = "127.0.0.1", port: int | None = None, browser: bool = True, allow_edit: bool = False
    ) -> None:
        """Serve the pages of `workbench view` until Ctrl-C, and print their address.

        With `allow_edit`, they can change notes and tags, and archive runs. Raises InputError if the address cannot be
        used.
        """
        from workbench.view import view

        view(self._store, host, port, browser, allow_edit)

    def run(self, name: str) -> Run:
        """Return a run by its name, or by a part that no other name has. Raises InputError if there is no such run."""
        from workbench.report.load.runs_table import find_run

        return Run(find_run(self._store, name))

    def runs(self, where: Sequence[str] = (), sort: str | None = None) -> pd.DataFrame:
        """Return a table with a row for each run: state, settings by dotted key, compute spent, and mean scores.

        `where` has conditions as in `workbench runs --where` ("objective=rtd", "seed<3"). `sort` is a column,
        with a minus before it for the largest first. Raises InputError for a condition that no run can meet.
        """
        import pandas as pd

        from workbench.report.load import runs_table

        conditions = (where,) if isinstance(where, str) else where
        return pd.DataFrame(runs_table.filtered(runs_table.rows(self._store), conditions, sort))

    def studies(self) -> list[str]:
        """Return the names of the experiments' records, the last updated one first."""
        records = sorted(self._store.experiments(), key=lambda each: each.updated, reverse=True)
        return [record.name for record in records]

    def study(self, name: str) -> Study:
        """Return an experiment by its name, or by the name of its record. Raises InputError if there is none."""
        from workbench.report.load.runs_table import find_record

        return Study(self._store, find_record(self._store, name))


def _takes(group: Callable[P, O]) -> Callable[[Callable[[O], R]], Callable[P, R]]:
    """Return a decorator by which a function of a group of options is called with the options themselves.

    The function then has the signature of the group, and its documentation lists the options.
    """
    kind: type = group  # type: ignore[assignment]

    def decorate(function: Callable[[O], R]) -> Callable[P, R]:
        signature = inspect.signature(kind)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind_partial(*args).arguments | kwargs
            for name, value in given.items():
                if name != "notify":  # which no record keeps
                    refuse_secrets_in(value, name)
            return function(checked(kind, given))

        call.__signature__ = signature.replace(return_annotation=function.__annotations__["return"])  # type: ignore[attr-defined]
        listed = [f"    {name}: {declared.help}" for name, declared in options_of(kind).items()]
        call.__doc__ = f"{function.__doc__}\n    Options, under the names of the command line:\n\n" + "\n".join(listed)
        return call

    return decorate


@_takes(RunOptions)
def run(options: RunOptions) -> Study:
    """Carry out an experiment, as `workbench run` does, and return it. A repeated call continues where it stopped.

    Values are Python's: `set` is a mapping, and `objective` and `corpus` take one name or several. Raises InputError,
    before anything is spent, if the options cannot be used.

        study = wb.run("ablation", objective=["rtd", "bert-mlm"], budget="flops=1e12", seeds=4, tasks="pairs")
        print(study.compare("rtd", "bert-mlm"))
    """
    return _carried_out("run", options)


@_takes(SweepOptions)
def sweep(options: SweepOptions) -> Study:
    """Compare settings at equal compute, as `workbench sweep` does: those of an experiment, of `over`, or of both.

    `over` maps keys to values, as in {"generator.width": (0.25, 0.5, 1)}. With `trials`, or with the axis "tune", they
    are the space of a search, in which a text may be a range, as in {"optim.lr": "1e-4..1e-3:log"}. Raises InputError
    if the options cannot be used.
    """
    return _carried_out("sweep", options)


@_takes(RunOptions)
def plan(options: RunOptions) -> pd.DataFrame:
    """Return the plan of `run` with a row for each run: steps, tokens, FLOPs, parameters and memory.

    Options on where and how runs are carried out have no effect. Nothing is run, and text is prepared only if its words
    must be counted. Raises InputError if the options cannot be used.
    """
    import pandas as pd

    from workbench.execution.study import plan_rows

    job, _ = study_job(options)
    return pd.DataFrame(plan_rows(job.priced[0]))


@_takes(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> pd.DataFrame:
    """Fine-tune encoders in the Hugging Face layout on tasks, as `workbench evaluate` does; return a row per score.

    Raises InputError if an encoder or the tasks cannot be used, or if a fine-tuning fails.
    """
    import pandas as pd

    from workbench.execution.study_options import scores_of_encoders

    scores, failed = scores_of_encoders(options)
    if failed:
        raise InputError(f"{failed} of the scores of {text_of(options.encoder)} could not be taken; see the log")
    return pd.DataFrame(scores)


@_takes(SubmitOptions)
def submit(options: SubmitOptions) -> dict[str, Any]:
    """Write a submission to GLUE's server, as `workbench submit` does; return the card that is written beside it.

    Raises InputError, before anything is fine-tuned, if a file cannot be made.
    """

    from workbench.execution import glue_submission

    return glue_submission.submit(options, host_of(options)).to_json()


def _carried_out(name: str, options: RunOptions | SweepOptions) -> Study:
    """Carry out the study of a call, which the record and every run store as words in place of a command line."""
    given = {each.name: value for each in fields(options) if (value := getattr(options, each.name)) != each.default}
    first = given.pop("experiment", given.pop("axis", ""))
    given.pop("notify", None)  # which may hold a secret
    command = ("workbench", f"wb.{name}", str(first), *(f"{key}={value}" for key, value in given.items()))
    host = replace(host_of(options), command=command)
    job, _, carry_out = study_of(options)
    study, told = prepared(options, host, job, carry_out)
    with told as outcomes:
        outcomes.append(study())
    return Study(RunStore.existing(options.runs), outcomes[0].record, outcomes[0])
