"""Export of the runs of an experiment in BabyLM's layout: models by revision, predictions, and collated files.

OUT/models/RUN/REVISION/                                    a Hugging Face folder each
OUT/results/RUN/REVISION/zero_shot/BACKEND/TASK/SET/        predictions.json
OUT/results/RUN/REVISION/finetune/TASK/                     predictions.json
OUT/results/RUN/all_full_preds_and_fast_scores_BACKEND.json
OUT/scores.csv                                              scores by BabyLM's arithmetic, and ours
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from workbench.errors import DAMAGE, InputError, remedy
from workbench.execution.model_folders import add_tokenizer, new_folder
from workbench.models.export import export_with_head, masked_lm, page, save_tensors
from workbench.models.heads import BinaryHead
from workbench.spec.run_spec import RunSpec
from workbench.store import validation
from workbench.store.atomic import copy_files
from workbench.store.redact import code_in_markdown, for_markdown
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.tasks import minimal_pairs
from workbench.tasks.babylm_glue import PREFIX, ROWS, SUITE
from workbench.tasks.common import sentence_scorers
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.plan import MILLION, WORDS, mark_of_words

log = logging.getLogger("workbench")


def export(store: RunStore, record: str, out: Path, verify: bool = True) -> list[dict[str, Any]]:
    """Write the export to the folder `out`, which must be empty or absent, and return the rows of scores.csv.

    Runs that are damaged or not trained to their end are named in warnings and left out; with `verify` every file
    is compared with its hash. Raises InputError.
    """
    with new_folder(out, "--babylm", store.root) as draft:
        experiment = store.experiment(record)
        runs = undamaged(map(store.get, experiment.runs), verify)
        if not runs:
            raise InputError(
                f"{record} has no trained run to export; run its command again, which trains what is missing"
            )
        spec = experiment.base_spec().tasks
        names = tuple(name for name in spec.names if Path(name).name.partition(".jsonl")[0] in SETS)
        pairs = {each.name: each for each in minimal_pairs.load(names, spec.model_copy(update={"held_out": 0.0}))}
        table = [row for run in runs for row in _run(run, pairs, draft)]
        columns = ("run_id", "revision", "backend", "task", "pipeline", "with_f1", "ours", "ties", "rows", "missing")
        with open(draft / "scores.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(table)
    return table


def undamaged(runs: Iterable[RunDir], verify: bool) -> list[RunDir]:
    """Return the trained runs whose files are undamaged, and name the others in warnings."""
    left = []
    for run in runs:
        if not run.trained:
            log.warning("%s is not trained to its end, so it is left out", run.run_id)
        elif fault := validation.fault(run.path, full=verify):
            fix = remedy(run.path, "the command that trained it")
            DAMAGE.warning("%s is damaged and is left out: %s; %s", run.path, fault, fix)
        else:
            left.append(run)
    return left


def _run(run: RunDir, pairs: Mapping[str, PairSet], out: Path) -> list[dict[str, Any]]:
    by_backend: dict[str, dict[str, list[Predicted]]] = {}
    for revision in revisions(run):
        if run.has_weights(revision.place):
            write(run.path / revision.place, out / "models" / run.run_id / revision.name, revision.name)
        else:
            log.warning("%s: the weights of %s were deleted, so no model is written", run.run_id, revision.name)
        for backend, each in _predicted(run, revision, pairs):
            by_backend.setdefault(backend, {}).setdefault(revision.name, []).append(each)
            path = out / "results" / run.run_id / revision.name / each.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(each.predictions, ensure_ascii=False), encoding="utf-8")
    if absent := missing(run):
        log.warning(
            "%s has no weights of the revisions %s; train it in another store with --evaluate-at words",
            run.run_id, ", ".join(absent),
        )  # fmt: skip
    every = [each for by_revision in by_backend.values() for several in by_revision.values() for each in several]
    for fault in dict.fromkeys(each.counts for each in every if each.counts):
        log.warning("%s: %s, so it is left out of the collated files", run.run_id, fault)
    if not by_backend:
        log.warning("%s has no scores of BabyLM's tasks with predictions, so only models are written", run.run_id)
    tuned = by_backend.pop("finetune", {})
    table = []
    for backend, by_revision in (by_backend or {"mlm": {}} if tuned else by_backend).items():
        names = dict.fromkeys([*by_revision, *tuned])
        whole = {name: [*by_revision.get(name, ()), *tuned.get(name, ())] for name in names}
        path = out / "results" / run.run_id / f"all_full_preds_and_fast_scores_{backend}.json"
        path.write_text(json.dumps(collated(whole, track(run)), ensure_ascii=False), encoding="utf-8")
        table += rows(run.run_id, whole, backend)
    return table


def _predicted(run: RunDir, revision: Revision, pairs: Mapping[str, PairSet]) -> Iterator[tuple[str, Predicted]]:
    """Yield the predictions of a revision with their backend, "finetune" for the first seed of a fine-tuned task."""
    scores = run.scores(revision.place).values()
    for score in sorted(scores, key=lambda score: (score["task"], score["seed"])):
        if score["suite"] == SUITE and "predicted" in score and score["seed"] == 0:
            yield "finetune", of_labels(score["task"], score["predicted"], score)
        given = pairs.get(score["task"])
        if given is None or "chosen" not in score:
            continue
        if score["data"] != given.fingerprint:
            log.warning(
                "%s: %s was scored on other pairs than the files hold now, and is left out", run.run_id, given.name
            )
            continue
        for scorer, signs in score["chosen"].items():
            ours = score["value"] if scorer == score["scorer"] else score["values"][scorer]["accuracy"]
            made = of_pairs(given, scorer, signs, ours)
            yield made.file.split("/")[1], made


# ----------------------------------------
# BabyLM's revisions of a model, `main` and `chck_1M` to `chck_1000M`, and the weights of a run that belong to each.


SMALL = (*range(1, 10), *range(10, 101, 10))  # millions of words seen, of the track strict-small
STRICT = (*SMALL, *range(200, 1001, 100))
MARKS = {mark_of_words(amount): amount // MILLION for amount in WORDS}  # of points kept by `--evaluate-at words`


@dataclass(frozen=True)
class Revision:
    """A revision of a model in BabyLM's sense, such as `chck_10M`; `place` is "points/STEP/", or "" for the end."""

    name: str
    place: str


def revisions(run: RunDir) -> list[Revision]:
    """Return the revisions for which a trained run has weights, `main` first, then in the order of words seen."""
    marks = ((place, run.read_json(place + "point.json")["mark"]) for place in run.points())
    places = {MARKS[mark]: place for place, mark in marks if mark in MARKS}
    spec, words = run.spec(), seen(run)
    if words:  # the end of training is a revision if one step more would go beyond its number of words
        end = words + spec.data.words_of(spec.batch.size * spec.data.length)
        places |= {count: "" for count in STRICT if words <= count * MILLION * (1 + 1e-12) < end}
    return [Revision("main", ""), *(Revision(f"chck_{count}M", places[count]) for count in sorted(places))]


def missing(run: RunDir) -> list[str]:
    """Return the revisions for which a run has no weights, up to the number of words that it was trained on."""
    names = {revision.name for revision in revisions(run)}
    most = seen(run) / MILLION
    return [f"chck_{count}M" for count in STRICT if count <= most and f"chck_{count}M" not in names]


def track(run: RunDir) -> tuple[str, ...]:
    """Return all revisions of the run's track: strict-small up to 100 million words seen, else strict."""
    small = seen(run) < 101 * MILLION
    return tuple(f"chck_{count}M" for count in (SMALL if small else STRICT))


def seen(run: RunDir) -> float:
    """Return the number of words that a run was trained on, 0 if the words of its text were not counted."""
    spec = run.spec()
    return spec.data.words_of(run.read_json("done.json")["tokens"]) if spec.data.words else 0.0


# ----------------------------------------
# One revision of a run as a Hugging Face folder that `AutoModelForMaskedLM.from_pretrained` loads.
#
# The masked language model is the part of an objective that learned to predict [MASK]: for BERT MLM the encoder with
# its head, for every objective with a generator the generator. In the second case the encoder, which is what is fine-
# tuned, is in the folder `encoder` beside it, for `AutoModel`.


HEAD = "detection_head.safetensors"


def write(weights: Path, folder: Path, revision: str) -> None:
    """Fill `folder` with a revision whose `encoder` and `heads` are in `weights`. Raises InputError."""
    spec, model = sentence_scorers.put_together(weights / "encoder", "cpu")
    language_model = masked_lm(model)
    folder.mkdir(parents=True)
    if language_model is None:
        copy_files(weights / "encoder", folder)
    else:
        export_with_head(*language_model, folder)
        add_tokenizer(folder, weights / "encoder", spec)
        if language_model[0] is not model.encoder:
            copy_files(weights / "encoder", folder / "encoder")
    head = getattr(model, "head", None)
    if isinstance(head, BinaryHead):
        save_tensors(dict(head.named_parameters()), folder / HEAD)
    (folder / "README.md").write_text(card(spec, model, revision), encoding="utf-8")


def card(spec: RunSpec, model: nn.Module, revision: str) -> str:
    """Return a model card that describes which part of the objective each file holds."""
    objective, corpus = code_in_markdown(spec.objective), for_markdown(", ".join(spec.data.corpus))
    language_model = masked_lm(model)
    if language_model is None:
        lines = [
            f"- `model.safetensors`: the encoder, for `AutoModel`. The objective {objective} has no part that "
            "learned to predict [MASK], so `AutoModelForMaskedLM` adds a random head"
        ]
    elif language_model[0] is getattr(model, "encoder", None):
        lines = ["- `model.safetensors`: encoder and masked language model in one, for `AutoModelForMaskedLM`"]
    else:
        lines = [
            "- `model.safetensors`: the **generator**, for `AutoModelForMaskedLM`: the only part that learned to "
            "predict [MASK]. Its scores are not those of the encoder.",
            "- `encoder/`: the **encoder**, for `AutoModel`: this is what to fine-tune",
        ]
    if isinstance(head := getattr(model, "head", None), BinaryHead):
        lines.append(
            f"- `{HEAD}`: the head that detects replaced tokens from the encoder's states: "
            "logit = out.weight h + out.bias"
            + (", where h = gelu(dense.weight h + dense.bias)" if head.dense is not None else "")
            + " for each state h; a logit above 0 means replaced"
        )
    body = f"""# {for_markdown(spec.name)}, revision {for_markdown(revision)}

Pre-trained with the objective {objective} on {corpus}; rows of {spec.data.length} tokens.

{chr(10).join(lines)}
"""
    return page(spec, body, "fill-mask" if language_model is not None else "feature-extraction")


# ----------------------------------------
# Predictions in the format of BabyLM's evaluation pipeline, and scores by its arithmetic beside ours.
#
# The prediction for a minimal pair is the sentence that was chosen. If both have the same score, the pipeline of 2025
# and of early 2026 chooses the right one, so that one is written for a tie; reported beside it are the number of ties
# and our score, in which each counts half.


Predictions = dict[str, dict[str, list[dict[str, Any]]]]
MLM = ("pll", "generator-pll")  # the scorers that the pipeline calls the backend `mlm`


@dataclass(frozen=True)
class Dataset:
    """Set of minimal pairs of the pipeline: its folder, its key when collated, and the number of rows it must have."""

    folder: str
    key: str
    rows: int
    parts: int
    fast: bool = False


SETS = {  # under the names of our tasks
    "blimp-filtered": Dataset("blimp/blimp_filtered", "blimp", 59_875, 67),
    "supplement_filtered": Dataset("blimp/supplement_filtered", "blimp_supplement", 5_218, 5),
    "blimp-fast": Dataset("blimp/blimp_fast", "blimp", 67 * 200, 67, fast=True),
    "supplement_fast": Dataset("blimp/supplement_fast", "blimp_supplement", 5 * 50, 5, fast=True),
}


@dataclass(frozen=True)
class Predicted:
    """One file of predictions and its scores: `value` and `f1` by the pipeline's arithmetic, `ours` as in the run.

    `counts` is the fault in the number of rows, "" if it is the number that the pipeline expects.
    """

    file: str
    key: str
    predictions: Predictions
    value: float
    ours: float
    rows: int
    ties: int
    counts: str
    fast: dict[str, float] | None = None
    f1: float | None = None


def of_pairs(pairs: PairSet, scorer: str, signs: str, ours: float) -> Predicted:
    """Return the predictions for minimal pairs from the choices that a score holds ("+", "-", "=")."""
    dataset = SETS[pairs.name]
    predictions: Predictions = {}
    right: dict[str, list[bool]] = {}
    for sign, good, bad, uid in zip(signs, pairs.good, pairs.bad, pairs.groups["paradigm"], strict=True):
        chosen = bad if sign == "-" else good
        rows = predictions.setdefault(uid, {"predictions": []})["predictions"]
        rows.append({"id": f"{uid}_{len(rows)}", "pred": chosen})
        right.setdefault(uid, []).append(chosen.strip() == good.strip())
    shares = {uid: sum(hits) / len(hits) for uid, hits in right.items()}
    counts = _counts(pairs.name, len(signs), dataset.rows, len(predictions), dataset.parts)
    return Predicted(
        f"zero_shot/{'mlm' if scorer in MLM else scorer}/{dataset.folder}/predictions.json", dataset.key, predictions,
        100 * sum(shares.values()) / len(shares), ours, len(signs), signs.count("="), counts,
        shares if dataset.fast else None,
    )  # fmt: skip


def of_labels(task: str, predicted: Sequence[int], score: Mapping[str, Any]) -> Predicted:
    """Return the predictions of a fine-tuned task from the labels that a score holds."""
    name = task.removeprefix(PREFIX)
    rows = [{"id": f"{name}_{place}", "pred": label} for place, label in enumerate(predicted)]
    values = score["values"]["valid"]
    counts = _counts(name, len(rows), ROWS[name].rows, 1, 1)
    return Predicted(
        f"finetune/{name}/predictions.json", "glue", {name: {"predictions": rows}}, values["accuracy"], score["value"],
        len(rows), 0, counts, None, values.get("f1"),
    )  # fmt: skip


def _counts(name: str, rows: int, expected: int, parts: int, expected_parts: int) -> str:
    """Return how the number of rows differs from the number that BabyLM's pipeline requires, "" if it does not."""
    if (rows, parts) == (expected, expected_parts):
        return ""
    found, wanted = (f" in {parts}", f" in {expected_parts}") if expected_parts > 1 else ("", "")
    return f"{name} has {rows:,} rows{found} where BabyLM expects {expected:,}{wanted}"


# ----------------------------------------
# All predictions of a run in the one file that BabyLM's leaderboard accepts, and a table of their scores.


FAST = (
    "blimp", "blimp_supplement", "ewok", "entity_tracking_filtered", "global_piqa_parallel", "global_piqa_nonparallel",
    "reading",
)  # fmt: skip
FULL = (
    "blimp", "blimp_supplement", "ewok", "entity_tracking_filtered", "comps", "global_piqa_parallel",
    "global_piqa_nonparallel", "reading", "aoa_surprisals", "aoa",
)  # fmt: skip


def collated(by_revision: Mapping[str, Sequence[Predicted]], track: Sequence[str]) -> dict[str, Any]:
    """Return the content of `all_full_preds_and_fast_scores_BACKEND.json`, null for tasks that BabyLM would refuse."""
    main = [each for each in by_revision.get("main", ()) if each.fast is None and not each.counts]
    content: dict[str, Any] = {key: None for key in FULL}
    content |= {each.key: each.predictions for each in main if each.key != "glue"}
    content["glue"] = {name: rows for each in main if each.key == "glue" for name, rows in each.predictions.items()}
    fast = {
        name: {each.key: each.fast for each in several if each.fast is not None and not each.counts}
        for name, several in by_revision.items()
    }
    content["fast_eval_results"] = {key: [fast.get(name, {}).get(key) for name in track] for key in FAST}
    return content


def rows(run_id: str, by_revision: Mapping[str, Sequence[Predicted]], backend: str) -> list[dict[str, Any]]:
    """Return a table row for each file of predictions, and a row with the mean over tasks for each revision.

    `pipeline` is BabyLM's accuracy: the mean over paradigms, where a tie counts as right; in `ours` a tie counts as
    half. `with_f1` is F1 for tasks whose F1 is in BabyLM's tables, and `pipeline` for the others.
    """
    table = []
    for revision, several in by_revision.items():
        names = {"run_id": run_id, "revision": revision, "backend": backend}
        by_kind: dict[str, list[dict[str, Any]]] = {"tasks": [], "fast sets": []}
        for each in several:
            row = names | {
                "task": each.file.split("/")[-2], "pipeline": each.value,
                "with_f1": each.value if each.f1 is None else each.f1, "ours": each.ours, "ties": each.ties,
                "rows": each.rows, "missing": each.counts,
            }  # fmt: skip
            table.append(row)
            by_kind["tasks" if each.fast is None else "fast sets"].append(row)
        for word, chosen in by_kind.items():
            if len(chosen) > 1:
                mean = {key: sum(row[key] for row in chosen) / len(chosen) for key in ("pipeline", "with_f1", "ours")}
                sums = {key: sum(row[key] for row in chosen) for key in ("ties", "rows")}
                table.append(names | {"task": f"mean of {len(chosen)} {word}", **mean, **sums, "missing": ""})
    return table
