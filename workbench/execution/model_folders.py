"""A trained run as models of Hugging Face with their heads, for others to use, to go on from, or to publish."""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.data import hugging_face
from workbench.data.model_files import TOKENIZER_FILES
from workbench.errors import InputError, plural
from workbench.models import export
from workbench.models.export import Terms, add_origin, export_with_head, masked_lm
from workbench.models.heads import BinaryHead
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import disk_errors, draft_in, place_first, sweep_old, sync_tree
from workbench.store.redact import code_in_markdown, for_markdown, on_one_line
from workbench.store.run_directory import RunDir
from workbench.store.run_store import check_outside

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

DISCRIMINATOR, GENERATOR, MASKED_LM = "discriminator", "generator", "masked-lm"
CLASSES = {DISCRIMINATOR: "ElectraForPreTraining", GENERATOR: "ElectraForMaskedLM", MASKED_LM: "ElectraForMaskedLM"}
TASKS = {DISCRIMINATOR: "feature-extraction", GENERATOR: "fill-mask", MASKED_LM: "fill-mask"}
SUITES = {  # the hub's names of what a suite tests; all others are text-classification
    "tagging": "token-classification", "squad": "question-answering", "similarity": "sentence-similarity",
    "retrieval": "text-ranking",
}  # fmt: skip
METRICS = {"matthews": "matthews_correlation", "spearman": "spearmanr", "pearson": "pearsonr"}  # the hub's names
USES = {
    DISCRIMINATOR: "It detects replaced tokens, and is what to fine-tune.",
    GENERATOR: "It fills masks. It was the generator of its run, whose encoder is what to fine-tune.",
    MASKED_LM: "It fills masks, and can be fine-tuned.",
}


def write(run: RunDir, out: Path, terms: Terms | None = None, hub_name: str = "") -> list[Path]:
    """Write the models of a trained run with heads and cards into the new folder `out`, and return their folders.

    The cards state the `terms`, and load each model from the hub if `hub_name` is the name to push them under.
    Raises InputError if the run is damaged, not trained or has no such model, and OSError.
    """
    from workbench.tasks.common.sentence_scorers import put_together

    run.check_trained("no model to export")
    with new_folder(out, "--checkpoint", run.path.parent) as draft:
        spec, model = put_together(run.path / "encoder", "cpu")
        names = _fill(draft, run, spec, model, terms, hub_name)
    return [out / name for name in names]


@contextlib.contextmanager
def new_folder(out: Path, option: str, store: Path) -> Iterator[Path]:
    """Yield a draft that becomes the new folder `out` of an option after the block. Raises InputError, OSError."""
    check_outside(store, out, option)
    taken = InputError(f"{option} {out} exists and is not an empty folder; name a new one")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise taken
    above = next(place for place in out.absolute().parents if place.is_dir())  # folders below are made at the end
    sweep_old(above)
    draft = draft_in(above)
    try:
        with disk_errors(out):
            yield draft
            sync_tree(draft)
            out.absolute().parent.mkdir(parents=True, exist_ok=True)
            if not place_first(draft, out.absolute()):
                raise taken
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def push(run: RunDir, name: str, private: bool, terms: Terms | None = None, dry_run: bool = False) -> list[str]:
    """Upload the models of a trained run to the hub, and return their addresses.

    With `dry_run`, nothing is sent; the name, files and card of each model are returned. Raises InputError.
    """
    hugging_face.check_new(name)
    with tempfile.TemporaryDirectory(prefix="workbench-") as temporary:
        folders = write(run, Path(temporary) / "models", terms, name)
        named = [(folder, name if len(folders) == 1 else f"{name}-{folder.name}") for folder in folders]
        if not dry_run:
            return [hugging_face.upload(folder, own, private) for folder, own in named]
        seen, texts = "private if it is new" if private else "public if it is new", []
        for folder, own in named:
            files = [f"  {file.stat().st_size:>13,} bytes  {file.name}" for file in sorted(folder.iterdir())]
            card = (folder / "README.md").read_text(encoding="utf-8")
            texts.append("\n".join([f"{own} ({seen}) would get {plural(len(files), 'file')}:", *files, "", card]))
        return texts


def _fill(draft: Path, run: RunDir, spec: RunSpec, model: Any, terms: Terms | None, hub_name: str) -> list[str]:
    language_model, head = masked_lm(model), getattr(model, "head", None)
    names = [DISCRIMINATOR] if isinstance(head, BinaryHead) else []
    if language_model is not None:
        names.append(MASKED_LM if language_model[0] is model.encoder and not names else GENERATOR)
    if not names:
        raise InputError(
            f"{run.run_id}: the objective {spec.objective} has neither a head that detects replaced tokens nor one "
            f"that predicts [MASK]; AutoModel loads the folder encoder of the run"
        )
    for name in names:
        folder, place = draft / name, hub_name or "."
        if hub_name and len(names) > 1:
            place = f"{hub_name}-{name}"
        folder.mkdir(parents=True)
        if name == DISCRIMINATOR:
            export_with_head(model.encoder, head, folder)  # type: ignore[arg-type]
        elif language_model is not None:
            export_with_head(*language_model, folder)
        add_tokenizer(folder, run.path / "encoder", spec)
        (folder / "README.md").write_text(card(run, spec, name, terms, place), encoding="utf-8")
    return names


def add_tokenizer(folder: Path, encoder: Path, spec: RunSpec) -> None:
    """Add to an exported model the tokenizer of its encoder's folder, and the run that it comes from."""
    add_origin(folder, spec)
    for file in encoder.iterdir():
        if file.name in TOKENIZER_FILES:
            shutil.copyfile(file, folder / file.name)


def card(run: RunDir, spec: RunSpec, name: str, terms: Terms | None = None, place: str = ".") -> str:
    """Return the model card of one exported model: what it is, its data, compute, scores, origin and limits.

    Scores are those of the run's encoder; a generator's metadata has none. `place` is what `from_pretrained` loads.
    """
    done, kind = run.read_json("done.json"), CLASSES[name]
    flops = ", ".join(f"{float(amount):.4g} ({convention})" for convention, amount in done["flops"].items())
    before = f"\n- before: {for_markdown(spec.pair.spent_before())}" if spec.pair is not None else ""
    measured = _by_measure(run.scores())
    body = f"""# {for_markdown(run.run_id)}, {name}

An `{kind}` with its head, pre-trained with the objective {code_in_markdown(spec.objective)}. {USES[name]}

- text: {export.corpus_line(spec)}
- training: {plural(done["steps"], "step")}, {plural(done["tokens"], "token")}, seed {spec.seed}
- training FLOPs, by convention: {flops}{before}

## Use

```python
from transformers import AutoTokenizer, {kind}

model, tokenizer = {kind}.from_pretrained("{place}"), AutoTokenizer.from_pretrained("{place}")
logits = model(**tokenizer("Some text.", return_tensors="pt")).logits
```

## Scores

{_table(measured)}

## How it was made

{_origin(run.read_json("env.json"))}

## Limits

{_limits(spec, terms or Terms(), run.warnings())}
"""
    base = None if spec.pair is None else spec.pair.names[name == GENERATOR]
    model = f"{run.run_id}-{name}" if place == "." else place.rpartition("/")[2]
    results = [] if name == GENERATOR else _results(measured)
    return export.page(spec, body, TASKS[name], ["electra", TASKS[name]], terms, results, model, base)


def _by_measure(scores: Mapping[str, Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the scores that have a value, together where they differ in the seed of fine-tuning alone."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for score in scores.values():
        if score["value"] is not None:
            groups.setdefault((score["task"], score["metric"], score.get("digest", "")), []).append(score)
    return [groups[key] for key in sorted(groups)]


def _mean(scores: Iterable[Mapping[str, Any]]) -> float:
    values = [score["value"] for score in scores]
    return math.fsum(values) / len(values)


def _table(measured: list[list[Mapping[str, Any]]]) -> str:
    if not measured:
        return "Its run has no scores."
    rows = [
        f"| {for_markdown(group[0]['task'])} | {for_markdown(group[0]['metric'])} | {_mean(group):.2f} | {len(group)} |"
        for group in measured
    ]
    head = ["Scores of the run's encoder, times 100:", "", "| task | metric | mean | scores |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _results(measured: list[list[Mapping[str, Any]]]) -> list[EvalResult]:
    """Return the scores for the hub's `model-index`; each names its data and settings by our fingerprints of them."""
    from huggingface_hub import EvalResult

    results = []
    for group in measured:
        one = group[0]
        results.append(EvalResult(  # the hub tells results apart by type, configuration and revision of the dataset
            task_type=SUITES.get(one["suite"], "text-classification"), dataset_type=on_one_line(one["suite"]),
            dataset_name=on_one_line(one["task"]), dataset_config=on_one_line(one["task"]),
            dataset_revision=one.get("data"), metric_type=METRICS.get(one["metric"], one["metric"]),
            metric_name=f"{one['metric']} x 100, mean over {plural(len(group), 'fine-tuning seed')}",
            metric_value=round(_mean(group), 4),
            metric_args={"settings": one.get("digest", ""), "scores": len(group)},
        ))  # fmt: skip
    return results


def _origin(environment: Mapping[str, Any]) -> str:
    git = environment.get("git") or {}
    commit = f" (commit {git['commit'][:10]}{', changed' if git.get('dirty') else ''})" if git.get("commit") else ""
    versions = {"Python": environment.get("python"), **environment.get("versions", {})}
    listed = ", ".join(for_markdown(f"{name} {version}") for name, version in versions.items() if version)
    machine = environment.get("machine", {})
    processor = (machine.get("gpu") or {}).get("name") or machine.get("cpu")
    lines = [f"- versions: workbench {for_markdown(environment.get('workbench', 'unknown'))}{commit}, {listed}"]
    if command := environment.get("command"):
        lines.insert(0, f"- command: {code_in_markdown(shlex.join(command))}")
    if processor:
        lines.append(f"- computed on: {for_markdown(processor)}, {for_markdown(environment.get('precision', ''))}")
    return "\n".join(lines)


def _limits(spec: RunSpec, terms: Terms, warnings: Iterable[str]) -> str:
    codes = ", ".join(export.languages(spec, terms)) or "not stated; those of its text"
    licence = (
        "not stated. The text may have terms of its own"
        if terms.licence == Terms().licence
        else f"{terms.licence}, as its publisher states; nothing here has compared it with the terms of the text"
    )
    lines = [
        f"texts: {export.length_line(spec)}", f"languages: {codes}", f"licence: {licence}",
        "it is one pre-training seed of a comparison: another seed of the same settings scores otherwise",
        "nobody has looked for biased, false or personal content that it may have learnt from its text",
        *(f"warning at the end of training: {for_markdown(warning)}" for warning in warnings),
    ]  # fmt: skip
    return "\n".join(f"- {line}" for line in lines)
