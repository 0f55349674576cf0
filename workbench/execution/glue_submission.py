"""From a run to a submission: which files there will be, the predictions of each, then the zip and its card.

What is missing is found, and test files are checked, before anything is fine-tuned.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import workbench
from workbench import progress
from workbench.errors import Diverged, InputError, LeaseLost, encodable, plural, suggest
from workbench.execution.published_runs import folder_of
from workbench.execution.study_options import writable
from workbench.options import SubmitOptions
from workbench.progress import warn_once
from workbench.report.load import study_tables
from workbench.report.load.run_files import FINISHED
from workbench.report.load.runs_table import find_record, find_run
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import digest, parse_part
from workbench.spec.scoring import mean_score
from workbench.store.atomic import cache_root, dumps, loads, plain, sweep_old, write_together
from workbench.store.cache import alone, discard, is_whole, staged
from workbench.store.environment import code_version
from workbench.store.lease import Lease
from workbench.store.redact import code_in_markdown, for_markdown
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore, check_outside
from workbench.tasks import glue
from workbench.tasks.common.contract import Model, score_digest
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.glue import PARTS, ROWS

log = logging.getLogger("workbench")
Score = Mapping[str, Any]
WNLI = "WNLI"
DATED = (1980, 1, 1, 0, 0, 0)  # of every file in the zip, so that equal predictions give an equal zip


Scores = dict[str, tuple[list[Score], str]]  # of each task those that are submitted, and how they were chosen


def submit(options: SubmitOptions, host: Host) -> Card:
    """Write the submission of a run to the zip --out and its card beside it. Raises InputError for missing files."""
    out, choice, majority = Path(options.out), SeedChoice(options.seed, options.ensemble), options.wnli_majority
    writable(out.parent)
    source = source_of(RunStore.existing(options.runs), options.name, options.arm)
    cards = _outputs(out)
    check_outside(source.run.path.parent, out, "--out")
    run, place = source.run, options.glue or source.run.spec().tasks.glue
    run.check_trained("nothing to submit")
    if (published := run.spec().published) is not None:
        encoder = folder_of(published)
    else:
        run.check_weights("encoder")
        encoder = run.path / "encoder"
    texts, scores, missing = _plan(run, place, choice, majority)
    if not texts or (missing and not options.partial):
        whys: dict[str, list[str]] = {}
        for file, why in missing.items():
            whys.setdefault(why, []).append(file)
        sentence = "; ".join(f"{', '.join(files)}: {why}" for why, files in whys.items())
        advice = "; --partial leaves them out" if texts else ""
        raise InputError(f"{run.run_id} cannot be submitted whole, files are missing: {sentence}{advice}")
    made = dict(_predicted(run, encoder, place, texts, scores, host))
    content = _zip({entry.file: words for entry, words in made.values()})
    card = Card(
        out.name, hashlib.sha256(content).hexdigest(), run.run_id, source.how, run.weight_digests()["encoder"],
        [made[name][0] for name in PARTS if name in made], missing, workbench.__version__,
        str((code_version() or {}).get("commit", "")),
    )  # fmt: skip
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    sweep_old(out.absolute().parent)
    page = card.to_markdown().encode()
    write_together({cards[0]: (dumps(card.to_json()) + "\n").encode(), cards[1]: page, out: content})
    return card


def _outputs(out: Path) -> tuple[Path, Path]:
    if out.suffix.lower() != ".zip":
        raise InputError(f"--out {out}: a submission is a zip file; name it as in --out glue.zip")
    if not encodable(out.name):
        raise InputError(f"--out {out.name!a}: the name is not UTF-8, and the card must hold it; give another name")
    cards = out.with_suffix(".json"), out.with_suffix(".md")
    for path in (out, *cards):
        if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
            raise InputError(f"--out {out}: {path} exists and is not a regular file; name another")
    return cards


def _plan(
    run: RunDir, place: str | None, choice: SeedChoice, majority: bool
) -> tuple[dict[str, Examples], Scores, dict[str, str]]:
    """Return the texts of each part that can be predicted, the scores of each task, and why other files are missing."""
    scores = scores_by_task(run, choice)
    folder = glue.folder_of(place, dict.fromkeys(part.split[0] for part in PARTS.values()), "--glue")
    texts: dict[str, Examples] = {}
    missing: dict[str, str] = {}
    for part in PARTS.values():
        if part.task not in scores and not (majority and part.task == WNLI):
            missing[part.file] = f"{choice.lacking()} on {part.task}"
        elif isinstance(folder, str):
            missing[part.file] = folder
        elif (rows := glue.read_part(folder, part)) is None:
            missing[part.file] = f"no {part.path} in {folder}"
        else:
            texts[part.name] = rows
    if majority:
        scores.pop(WNLI, None)
    return texts, scores, missing


def _predicted(
    run: RunDir, encoder: Path, place: str | None, by_part: Mapping[str, Examples], by_task: Scores, host: Host
) -> Iterator[tuple[str, tuple[Entry, list[str]]]]:
    """Yield for each part its name, its entry of the card and its predictions."""
    weights = run.weight_digests()["encoder"]
    texts: dict[str, dict[str, Examples]] = {}
    for part, rows in by_part.items():
        texts.setdefault(PARTS[part].task, {})[part] = rows
    count = sum(len(scores) for task, (scores, _) in by_task.items() if task in texts)
    with progress.measuring(run.run_id, count) as bar:
        for name, parts in texts.items():
            if name not in by_task:
                yield from _majority(run, parts, place)
                continue
            scores, chosen = by_task[name]
            task, spec = task_of(scores[0], place)
            made = []
            for score in scores:
                step = partial(bar.step, name)
                made.append(repeat(encoder, weights, score, task, spec, parts, host, step))
                bar.scored(name, score["value"])
            dev = tuple(
                Dev(score["seed"], score["value"], next(iter(values.values()))[score["metric"]])
                for score, (_, values) in zip(scores, made, strict=True)
            )
            first, what = scores[0], "scores" if ROWS[name].span else "probabilities"
            how = "one fine-tuned classifier" if len(made) == 1 else f"mean of the {what} of {len(made)} classifiers"
            for part, rows in parts.items():
                averaged = glue.averaged([outputs[part] for outputs, _ in made], ROWS[name])
                entry = Entry(
                    PARTS[part].file, name, run.run_id, len(rows), how, chosen, first["metric"], dev, first["data"],
                    glue.fingerprint_of_texts(rows), first["finetune"], first.get("code", ""),
                )  # fmt: skip
                yield part, (entry, glue.words_of(averaged, ROWS[name]))


def _majority(
    run: RunDir, parts: Mapping[str, Examples], place: str | None
) -> Iterator[tuple[str, tuple[Entry, list[str]]]]:
    """Yield the part of WNLI with the most frequent training label for every row."""
    tasks, missing = glue.read([WNLI], place)
    for why in missing.values():
        raise InputError(f"--wnli-majority needs WNLI's training rows: {why}")
    (task,) = tasks
    counts = Counter(task.train.targets)
    label = task.labels[min(counts, key=lambda each: (-counts[each], each))]
    for name, rows in parts.items():
        how = f"no classifier: the most frequent training label, {label}, for every row"
        test = glue.fingerprint_of_texts(rows)
        entry = Entry(f"{name}.tsv", WNLI, run.run_id, len(rows), how, data=task.fingerprint, test=test)
        yield name, (entry, [label] * len(rows))


def _zip(files: Mapping[str, list[str]]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for part in (part for part in PARTS.values() if part.file in files):
            info = zipfile.ZipInfo(part.file, DATED)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, glue.tsv(files[part.file]))
    return content.getvalue()


def table_rows(card: Card) -> list[dict[str, Any]]:
    """Return the files of a submission as rows of a table for the terminal."""
    return [
        {
            "file": entry.file, "rows": entry.rows, "task": entry.task,
            "seeds": ",".join(str(each.seed) for each in entry.dev) or None, "metric": entry.metric or None,
            "dev": round(sum(each.recorded for each in entry.dev) / len(entry.dev), 2) if entry.dev else None,
        }
        for entry in card.entries
    ]  # fmt: skip


# ---- the card ----

FORMAT = 1


@dataclass(frozen=True)
class Dev:
    """A fine-tuning that a file comes from: its seed, and its headline metric on dev, recorded and repeated here."""

    seed: int
    recorded: float
    repeated: float


@dataclass(frozen=True)
class Entry:
    """One file of a submission, with how its seeds were `chosen` and how it was made.

    `data` and `test` are the fingerprints of the labelled rows and of the texts of the test set; `code` is the
    version that took the score.
    """

    file: str
    task: str
    run: str
    rows: int
    how: str
    chosen: str = ""
    metric: str = ""
    dev: tuple[Dev, ...] = ()
    data: str = ""
    test: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True)
class Card:
    """What a submission holds: its files, those that are missing and why, its run, and the code that made it."""

    zip: str
    sha256: str
    run: str
    run_chosen: str
    encoder: str
    entries: Sequence[Entry]
    missing: Mapping[str, str]
    code: str
    commit: str

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data."""
        return dict(plain({"format": FORMAT, **asdict(self), "complete": not self.missing}))

    def to_markdown(self) -> str:
        """Return the card as a page."""
        commit = f", commit {self.commit[:10]}" if self.commit else ""
        lines = [
            f"# {for_markdown(self.zip)}", "",
            f"Predictions on the test sets of GLUE, SHA-256 `{self.sha256}`.", "",
            f"- run: {code_in_markdown(self.run)} ({for_markdown(self.run_chosen)})",
            f"- encoder: {code_in_markdown(self.encoder)}",
            f"- code: workbench {self.code}{commit}", "",
            "| file | rows | task | seeds | dev, recorded | dev, fine-tuned again | predictions |",
            "|---|---:|---|---|---|---|---|",
            *map(_row, self.entries),
        ]  # fmt: skip
        if self.missing:
            lines += ["", "This submission is partial. Missing:", ""]
            lines += [f"- {for_markdown(file)}: {for_markdown(why)}" for file, why in self.missing.items()]
        return "\n".join(lines) + "\n"


def _row(entry: Entry) -> str:
    seeds = ", ".join(str(each.seed) for each in entry.dev) or "-"
    recorded = ", ".join(f"{each.recorded:.2f}" for each in entry.dev)
    repeated = ", ".join(f"{each.repeated:.2f}" for each in entry.dev)
    how = entry.how + (f"; {entry.chosen}" if entry.chosen else "")
    dev = [f"{entry.metric} {recorded}", repeated] if entry.dev else ["-", "-"]
    words = [entry.file, f"{entry.rows:,}", entry.task, seeds, *dev, how]
    return f"| {' | '.join(map(for_markdown, words))} |"


# ---- which run and which fine-tunings ----


@dataclass(frozen=True)
class Source:
    """The run whose encoder is submitted, and a sentence on how it was chosen."""

    run: RunDir
    how: str


@dataclass(frozen=True)
class SeedChoice:
    """Which fine-tuning seeds are submitted: this one, or the best ones on dev, as many as `ensemble`."""

    seed: int | None = None
    ensemble: int = 1

    def __post_init__(self) -> None:
        if self.seed is not None and self.ensemble > 1:
            raise InputError(
                f"--seed {self.seed} names one fine-tuning and --ensemble {self.ensemble} averages several; keep one"
            )

    def taken(self, scores: Sequence[Score]) -> list[Score]:
        """Choose the scores to submit among all `scores` of a task under one setting; [] if there are too few."""
        if self.seed is not None:
            return [score for score in scores if score["seed"] == self.seed]
        best = sorted(scores, key=lambda score: (-score["value"], score["seed"]))[: self.ensemble]
        return best if len(best) == self.ensemble else []

    def lacking(self) -> str:
        """Return, for the message about a task without such scores, what is missing."""
        if self.seed is not None:
            return f"no score with fine-tuning seed {self.seed}"
        return "no score" if self.ensemble == 1 else f"fewer than {plural(self.ensemble, 'fine-tuning seed')}"

    def rule(self, available: int) -> str:
        """Return how the seeds of a task with scores of this many seeds were chosen."""
        if self.seed is not None:
            return f"seed {self.seed}, as given"
        if self.ensemble > 1:
            return f"an ensemble of {self.ensemble}, the best on dev of {plural(available, 'fine-tuning seed')}"
        return f"the best on dev of {plural(available, 'fine-tuning seed')}"


def source_of(store: RunStore, word: str, arm: str | None) -> Source:
    """Return the run that a word means: a run, or the best one of an experiment's arm. Raises InputError."""
    if all(word not in (record.name, record.experiment) for record in store.experiments()):
        run = find_run(store, word)
        if arm is not None:
            raise InputError(f"--arm {arm} chooses among the arms of an experiment, and {run.run_id} is a run")
        return Source(run, "named by its user")
    return _best_of_arm(store, study_tables.read_and_warn(store, find_record(store, word), verify=False), arm)


def _best_of_arm(store: RunStore, experiment: study_tables.Frames, arm: str | None) -> Source:
    """Return the run of an arm with the most GLUE tasks, and of those the one with the best mean on dev."""
    runs = [row for row in experiment.rows("runs") if row["role"] == "arm" and row["state"] in FINISHED]
    arms = list(dict.fromkeys(str(row["arm"]) for row in runs))
    name = experiment.record["name"]
    if arm is None and len(arms) > 1:
        raise InputError(f"{name} has the arms {', '.join(arms)}; choose one with --arm")
    if arm is not None and arm not in arms:
        raise InputError(f"--arm {arm}: {name} has no trained run of such an arm{suggest(arm, arms)}")
    able = [row["run_id"] for row in runs if arm in (None, row["arm"])]
    values: dict[str, dict[str, list[float]]] = {run_id: {} for run_id in able}
    for score in experiment.rows("scores"):
        if score["run_id"] in values and score["suite"] == "glue" and score["task"] in ROWS:
            values[score["run_id"]].setdefault(str(score["task"]), []).append(score["value"])
    means = {
        run_id: (len(of_run), mean_score("glue", {task: fmean(each) for task, each in of_run.items()})[1])
        for run_id, of_run in values.items()
        if of_run
    }
    if not means:
        raise InputError(f"{name} has no trained run with a score on GLUE; measure its models with --tasks glue first")
    best = max(means, key=lambda run_id: means[run_id])
    tasks, mean = means[best]
    how = f"the best mean on dev, {mean:.2f} over {plural(tasks, 'task')}, of {plural(len(means), 'run')} of {name}"
    return Source(store.get(best), how + (f", arm {arm or arms[0]}"))


def scores_by_task(run: RunDir, wanted: SeedChoice) -> Scores:
    """Return for each GLUE task the scores of one setting that are fine-tuned again, and how they were chosen."""
    groups: dict[str, dict[str, list[Score]]] = {}
    for score in run.scores().values():  # scores on held-out training rows, by which a search chooses, do not count
        if score["task"] in ROWS and score["value"] is not None and "held-out" not in score["values"]:
            groups.setdefault(score["task"], {}).setdefault(score["digest"], []).append(score)
    chosen = {}
    for task, by_digest in groups.items():
        able = [scores for scores in by_digest.values() if wanted.taken(scores)]
        if able:
            scores = max(able, key=lambda scores: max(score["value"] for score in wanted.taken(scores)))
            rule = wanted.rule(len(scores))
            several = f", under the best of {len(able)} settings" if len(able) > 1 else ""
            chosen[task] = (wanted.taken(scores), rule + several)
    return chosen


# ---- the fine-tunings, carried out again ----

ROUNDING = 1.0  # points by which a score may differ on another device or in another precision
SAME = 1e-4  # points by which a metric of the same predictions may differ in its last digits
RECORD = "score.json"


# The outputs (N, labels) of a repeated fine-tuning for each part, and its metrics on dev.
Repeated = tuple[Mapping[str, Any], Mapping[str, Mapping[str, float]]]


def task_of(score: Mapping[str, Any], place: str | None) -> tuple[Task, TasksSpec]:
    """Return the task and the settings of a recorded score. Raises InputError if its data or settings have changed."""
    name = score["task"]
    settings = {**score["finetune"], "names": name, "glue": place}
    spec = parse_part(TasksSpec, settings, "tasks")
    tasks, missing = glue.read([name], place, spec.rows)
    for why in missing.values():
        raise InputError(f"{name} cannot be fine-tuned again: {why}; name GLUE's folder with --glue DIR")
    (task,) = tasks
    if task.fingerprint != score["data"]:
        raise InputError(
            f"{name}: the rows in {place or glue.HUB} are not those of the recorded score (data fingerprint "
            f"{task.fingerprint} instead of {score['data']}); name the folder that it was taken with: --glue DIR"
        )
    if score_digest(task, spec) != score["digest"]:
        raise InputError(
            f"{name}: the recorded score has settings that this version of workbench does not have ({score['code']}); "
            f"take it again with workbench evaluate"
        )
    return task, spec


def repeat(
    encoder: Path, weights: str, score: Mapping[str, Any], task: Task, spec: TasksSpec, parts: Mapping[str, Examples],
    host: Host, progress: Callable[[int, int], None],
) -> Repeated:  # fmt: skip
    """Fine-tune again as for a recorded score and predict the parts. Raises InputError if the dev score differs."""
    import numpy as np

    texts = {name: glue.fingerprint_of_texts(rows) for name, rows in parts.items()}
    computed = [host.resolved_device(), host.resolved_precision(), host.threads, host.plain, workbench.__version__]
    key = digest([weights, score["digest"], score["seed"], texts, computed], 16)
    folder = cache_root() / "submissions" / f"{task.name}-{score['seed']}-{key}"
    if not is_whole(folder):
        _compute_alone(folder, encoder, weights, task, spec, score["seed"], parts, host, progress)
    outputs = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in parts}
    values = loads((folder / RECORD).read_bytes())
    _compare(score, values)
    return outputs, values


@dataclass
class Repeating:
    """The folder of the cache for the state of a repeated fine-tuning, while this process holds its lease."""

    folder: Path
    owner: Lease | None

    def file(self, name: str) -> Path:
        """Return the path of a file or folder of this name in the folder."""
        return self.folder / name

    def remove(self, name: str) -> None:
        """Delete a file or folder of this name in the folder, if it exists."""
        discard(self.file(name))


def _compute_alone(
    folder: Path, encoder: Path, weights: str, task: Task, spec: TasksSpec, seed: int, parts: Mapping[str, Examples],
    host: Host, progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Write the outcome of a fine-tuning to the cache, going on from its saved state; one process at a time."""
    import numpy as np

    from workbench.tasks.common.classification import finetune_and_predict
    from workbench.tasks.common.fine_tuning import Unfinished

    place = cache_root() / "repeating" / folder.name
    waiting = f"another process fine-tunes on {task.name} (seed {seed}); waiting for it"
    try:
        with alone(place, lambda: warn_once(waiting)) as lease:
            if not is_whole(folder):
                state = Unfinished(Repeating(place, lease), f"{folder.name}.json", {"encoder": weights})
                score, outputs = finetune_and_predict(task, parts, Model(encoder, spec, seed, progress, state), host)
                with staged(folder) as draft:
                    for name, array in outputs.items():
                        np.save(draft / f"{name}.npy", array, allow_pickle=False)
                    (draft / RECORD).write_text(dumps(score.values), encoding="utf-8")
                state.delete()
    except Diverged as error:
        raise InputError(f"{task.name}: the recorded fine-tuning with seed {seed} diverges here: {error}") from None
    except LeaseLost as error:
        raise InputError(f"{error}; give the same command again") from None
    shutil.rmtree(place, ignore_errors=True)


def _compare(score: Mapping[str, Any], values: Mapping[str, Mapping[str, float]]) -> None:
    """Log a warning if the metrics on dev differ from the recorded ones. Raises InputError beyond rounding."""
    made, recorded = (
        {(part, name): value for part, of_part in each.items() for name, value in of_part.items()}
        for each in (values, score["values"])
    )
    if made.keys() == recorded.keys() and all(abs(made[key] - recorded[key]) <= SAME for key in made):
        return
    metric, part = score["metric"], next(iter(score["values"]))
    now, before = values[part][metric], score["value"]
    what = (
        f"{score['task']}, seed {score['seed']}: fine-tuned again, {metric} on {part} is {now:.4f} and not {before:.4f}"
    )
    if abs(now - before) > ROUNDING:
        raise InputError(
            f"{what}, as recorded: this is not the model that was chosen; use the --device and --precision with which "
            f"it was measured, or measure it again here with workbench evaluate"
        )
    log.warning("%s, as another device, precision or number of threads rounds differently; the card says so", what)
