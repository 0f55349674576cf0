"""From a run to a submission: which files there will be, the predictions of each, then the zip and its card.

What is missing is found, and test files are checked, before anything is fine-tuned.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import workbench
from workbench import progress
from workbench.errors import InputError, encodable
from workbench.execution.glue_submission.card import Card, Dev, Entry
from workbench.execution.glue_submission.choice import Score, SeedChoice, Source, scores_by_task
from workbench.execution.glue_submission.repeated import repeat, task_of
from workbench.execution.published_runs import folder_of
from workbench.spec.host import Host
from workbench.store.atomic import dumps, sweep_old, write_together
from workbench.store.environment import code_version
from workbench.store.run_directory import RunDir
from workbench.store.run_store import check_outside
from workbench.tasks import glue
from workbench.tasks.common.examples import Examples
from workbench.tasks.glue import PARTS, Part

WNLI = "WNLI"
DATED = (1980, 1, 1, 0, 0, 0)  # of every file in the zip, so that equal predictions give an equal zip


@dataclass(frozen=True)
class Planned:
    """The texts of each part that can be predicted, the scores of each task, and why other files are missing."""

    texts: Mapping[str, Examples]
    scores: Mapping[str, tuple[list[Score], str]]
    missing: Mapping[str, str]


def submit(
    source: Source, out: Path, choice: SeedChoice, glue_place: str | None, majority: bool, partial_zip: bool, host: Host
) -> Card:
    """Write the submission of a run to the zip `out`, and its card beside it; return the card.

    `glue_place` is the folder of GLUE, or its name on the hub, by default the one of the run's tasks. With `majority`,
    WNLI gets its most frequent training label. Raises InputError if a file is missing, unless `partial_zip`.
    """
    cards = _outputs(out)
    check_outside(source.run.path.parent, out, "--out")
    run, place = source.run, glue_place or source.run.spec().tasks.glue
    run.check_trained("nothing to submit")
    encoder = _encoder(run)
    planned = _plan(run, place, choice, majority)
    if not planned.texts or (planned.missing and not partial_zip):
        whys = {
            why: [file for file in planned.missing if planned.missing[file] == why] for why in planned.missing.values()
        }
        sentence = "; ".join(f"{', '.join(files)}: {why}" for why, files in whys.items())
        advice = "; --partial leaves them out" if planned.texts else ""
        raise InputError(f"{run.run_id} cannot be submitted whole, files are missing: {sentence}{advice}")
    made = dict(_predicted(run, encoder, place, planned, host))
    content = _zip({entry.file: words for entry, words in made.values()})
    card = Card(
        out.name, hashlib.sha256(content).hexdigest(), run.run_id, source.how, run.weight_digests()["encoder"],
        [made[name][0] for name in PARTS if name in made], planned.missing, workbench.__version__,
        str((code_version() or {}).get("commit", "")),
    )  # fmt: skip
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    sweep_old(out.absolute().parent)
    page = card.to_markdown().encode()
    write_together({cards[0]: (dumps(card.to_json()) + "\n").encode(), cards[1]: page, out: content})
    return card


def _outputs(out: Path) -> tuple[Path, Path]:
    """Return the paths of the card's two files. Raises InputError if the zip or one of them cannot be written."""
    if out.suffix.lower() != ".zip":
        raise InputError(f"--out {out}: a submission is a zip file; name it as in --out glue.zip")
    if not encodable(out.name):
        raise InputError(f"--out {out.name!a}: the name is not UTF-8, and the card must hold it; give another name")
    cards = out.with_suffix(".json"), out.with_suffix(".md")
    for path in (out, *cards):
        if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
            raise InputError(f"--out {out}: {path} exists and is not a regular file; name another")
    return cards


def _encoder(run: RunDir) -> Path:
    """Return the folder with the encoder of a run, unchanged since it was measured. Raises InputError."""
    published = run.spec().published
    if published is not None:
        return folder_of(published)
    run.check_encoder()
    return run.path / "encoder"


def _plan(run: RunDir, place: str | None, choice: SeedChoice, majority: bool) -> Planned:
    """Return what can be submitted. Raises InputError for a test file that the server would refuse."""
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
    return Planned(texts, scores, missing)


def _predicted(
    run: RunDir, encoder: Path, place: str | None, planned: Planned, host: Host
) -> Iterator[tuple[str, tuple[Entry, list[str]]]]:
    """Yield for each part its name, its entry of the card and its predictions."""
    weights = run.weight_digests()["encoder"]
    tasks = dict.fromkeys(PARTS[name].task for name in planned.texts)
    count = sum(len(planned.scores[task][0]) for task in tasks if task in planned.scores)
    with progress.measuring(run.run_id, count) as bar:
        for name in tasks:
            parts = {part: rows for part, rows in planned.texts.items() if PARTS[part].task == name}
            if name not in planned.scores:
                yield from _majority(run, parts, place)
                continue
            scores, chosen = planned.scores[name]
            task, spec = task_of(scores[0], place)
            made = []
            for score in scores:
                step = partial(bar.step, name)
                made.append(repeat(encoder, weights, score, task, spec, parts, host, step))
                bar.scored(name, score["value"])
            for part, rows in parts.items():
                outputs = glue.averaged([each.outputs[part] for each in made], glue.ROWS[name])
                dev = tuple(
                    Dev(score["seed"], score["value"], next(iter(each.values.values()))[score["metric"]])
                    for score, each in zip(scores, made, strict=True)
                )
                entry = _entry(PARTS[part], run, rows, scores, chosen, dev)
                yield part, (entry, glue.words_of(outputs, glue.ROWS[name]))


def _entry(part: Part, run: RunDir, rows: Examples, scores: list[Score], chosen: str, dev: tuple[Dev, ...]) -> Entry:
    """Return the entry of the card for a part that fine-tuned classifiers predict."""
    first = scores[0]
    what = "scores" if glue.ROWS[part.task].span else "probabilities"
    how = "one fine-tuned classifier" if len(scores) == 1 else f"mean of the {what} of {len(scores)} classifiers"
    return Entry(
        part.file, part.task, run.run_id, len(rows), how, chosen, first["metric"], dev, first["data"],
        glue.fingerprint_of_texts(rows), first["finetune"], first.get("code", ""),
    )  # fmt: skip


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
    """Return the content of a flat zip of files of predictions, which is the same for the same predictions."""
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
