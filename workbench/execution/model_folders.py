"""A trained run as models of Hugging Face with their heads, for others to use, to go on from, or to publish."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.data.hugging_face import TOKENIZER_FILES, hub
from workbench.errors import InputError, plural
from workbench.models.export import add_origin, export_discriminator, export_masked_lm, masked_lm
from workbench.models.heads import BinaryHead
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import disk_errors, draft_in, place_first, sweep_old, sync_tree
from workbench.store.redact import code_in_markdown, for_markdown
from workbench.store.run_directory import RunDir
from workbench.store.run_store import check_outside

DISCRIMINATOR, GENERATOR, MASKED_LM = "discriminator", "generator", "masked-lm"
CLASSES = {DISCRIMINATOR: "ElectraForPreTraining", GENERATOR: "ElectraForMaskedLM", MASKED_LM: "ElectraForMaskedLM"}
TASKS = {DISCRIMINATOR: "feature-extraction", GENERATOR: "fill-mask", MASKED_LM: "fill-mask"}
USES = {
    DISCRIMINATOR: "It detects replaced tokens, and is what to fine-tune.",
    GENERATOR: "It fills masks. It was the generator of its run, whose encoder is what to fine-tune.",
    MASKED_LM: "It fills masks, and can be fine-tuned.",
}


def write(run: RunDir, out: Path) -> list[Path]:
    """Write the models of a trained run into the new folder `out`, and return their folders.

    These are a discriminator and its generator, or one masked language model, each with head, tokenizer and model card.
    Raises InputError if the run is damaged or not trained, or its objective has no such part, and OSError.
    """
    from workbench.tasks.zero_shot.scorer import put_together

    run.check_trained("no model to export")
    check_outside(run.path.parent, out, "--checkpoint")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--checkpoint {out} exists and is not an empty folder; name a new one")
    spec, model = put_together(run.path / "encoder", "cpu")
    above = next(place for place in out.absolute().parents if place.is_dir())
    sweep_old(above)
    draft = draft_in(above)
    try:
        with disk_errors(out):
            names = _fill(draft, run, spec, model)
            sync_tree(draft)
            out.absolute().parent.mkdir(parents=True, exist_ok=True)
            if not place_first(draft, out.absolute()):
                raise InputError(f"--checkpoint {out} was made by another process; name a new folder")
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [out / name for name in names]


def push(run: RunDir, name: str, private: bool) -> list[str]:
    """Upload the models of a trained run to the hub, and return their addresses.

    A discriminator and a generator become NAME-discriminator and NAME-generator, a single model NAME. Raises
    InputError.
    """
    hub.check_new(name)
    with tempfile.TemporaryDirectory(prefix="workbench-") as temporary:
        folders = write(run, Path(temporary) / "models")
        single = len(folders) == 1
        return [hub.upload(folder, name if single else f"{name}-{folder.name}", private) for folder in folders]


def _fill(draft: Path, run: RunDir, spec: RunSpec, model: Any) -> list[str]:
    """Write the models of an objective into a folder, and return their names."""
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
        (draft / name).mkdir(parents=True)
        if name == DISCRIMINATOR:
            export_discriminator(model.encoder, head, draft / name)  # type: ignore[arg-type]
        elif language_model is not None:
            export_masked_lm(*language_model, draft / name)
        add_origin(draft / name, spec)
        for file in (run.path / "encoder").iterdir():
            if file.name in TOKENIZER_FILES:
                shutil.copyfile(file, draft / name / file.name)
        (draft / name / "README.md").write_text(card(run, spec, name), encoding="utf-8")
    return names


def card(run: RunDir, spec: RunSpec, name: str) -> str:
    """Return the model card of one exported model: what it is, its data, its compute and the scores of its run."""
    done = run.read_json("done.json")
    flops = ", ".join(f"{float(amount):.4g} ({convention})" for convention, amount in done["flops"].items())
    corpus = for_markdown(", ".join(spec.data.corpus))
    before = f"\n- before: {for_markdown(spec.pair.spent_before())}" if spec.pair is not None else ""
    return f"""---
library_name: transformers
pipeline_tag: {TASKS[name]}
tags: [electra, {TASKS[name]}]
---
# {for_markdown(run.run_id)}, {name}

An `{CLASSES[name]}` with its head, pre-trained with the objective {code_in_markdown(spec.objective)}. {USES[name]}

- text: {corpus} (fingerprint `{spec.data.fingerprint}`), rows of {spec.data.length} tokens
- training: {plural(done["steps"], "step")}, {plural(done["tokens"], "token")}, seed {spec.seed}
- training FLOPs, by convention: {flops}{before}

{_scores(run.scores())}
"""


def _scores(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of the scores of a run, means over fine-tuning seeds, or a sentence if there are none."""
    values: dict[tuple[str, str], list[float]] = {}
    for score in scores.values():
        if score["value"] is not None:
            values.setdefault((score["task"], score["metric"]), []).append(score["value"])
    if not values:
        return "Its run has no scores."
    rows = [
        f"| {for_markdown(task)} | {for_markdown(metric)} | {math.fsum(v) / len(v):.2f} | {len(v)} |"
        for (task, metric), v in values.items()
    ]
    head = ["Scores of the run's encoder, times 100:", "", "| task | metric | mean | scores |", "|---|---|---|---|"]
    return "\n".join([*head, *sorted(rows)])
