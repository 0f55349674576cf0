"""Export of an encoder as a Hugging Face model: weights, tokenizer, and a model card with its origin."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from workbench import __version__
from workbench.data.model_files import TOKENIZER_FILES
from workbench.data.sources import HUB_NAME
from workbench.errors import InputError, plural
from workbench.models.encoder import Encoder, plain_weights
from workbench.models.families import built_in, family_of
from workbench.models.generators import Generator, Ngrams, WordFrequencies
from workbench.models.heads import BinaryHead, MlmHead
from workbench.models.own_layout import WEIGHTS, add_entry
from workbench.spec.parts import TUNING_FIELDS
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import read_object, write_new
from workbench.store.checkpoint import content, library_errors, save_copies
from workbench.store.redact import code_in_markdown, for_markdown, on_one_line

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def export(encoder: Encoder, tokenizer: Path, folder: Path, spec: RunSpec, facts: dict[str, Any]) -> None:
    """Write the encoder, its tokenizer and a model card into `folder`, which the caller then moves into place.

    `facts` are the steps, tokens and FLOPs of the run. Raises OSError.
    """
    with library_errors(folder):
        encoder.save(folder)
    add_origin(folder, spec)
    for file in tokenizer.iterdir():
        if file.name in TOKENIZER_FILES:
            shutil.copyfile(file, folder / file.name)
    limit_length(folder / "tokenizer_config.json", spec.encoder.positions)
    (folder / "README.md").write_text(encoder_card(spec, facts), encoding="utf-8")


def export_heads(objective: nn.Module, folder: Path) -> None:
    """Write the weights of an objective that are not in its encoder, its heads and its generator, into `folder`.

    Together with the exported encoder they suffice to score sentences. Names are those of `named_parameters`; what is
    counted and not learned is saved as `log_share` (tokens) and as `pairs` and `counts` (pairs of neighbours).
    """
    encoder: nn.Module = objective.encoder  # type: ignore[assignment]
    own = {id(weight) for weight in encoder.parameters()}
    weights = {name: weight for name, weight in objective.named_parameters() if id(weight) not in own}
    for name, part in objective.named_modules():
        if isinstance(part, WordFrequencies):
            weights[f"{name}.log_share"] = part.log_share  # type: ignore[assignment]
        elif isinstance(part, Ngrams):
            weights |= {f"{name}.pairs": part.pairs, f"{name}.counts": part.counts}  # type: ignore[dict-item]
    _, parts = content(weights)
    write_new(folder / WEIGHTS, b"".join(parts))


def add_origin(folder: Path, spec: RunSpec) -> None:
    """Add to config.json how a run measures its encoder, so that the folder is measured alike wherever it lies.

    These are the tokens of a row of pre-training, to which sentences are cut when they are scored, and the settings of
    fine-tuning. Other programs ignore the entry.
    """
    tasks = spec.tasks.model_dump(mode="json", include={*TUNING_FIELDS})
    add_entry(folder, row_length=spec.data.length, scale=spec.scale, tasks=tasks)


def limit_length(settings: Path, positions: int) -> None:
    """Limit the length of texts in a tokenizer's settings to `positions` tokens, the maximum of the encoder."""
    raw = read_object(settings) if settings.is_file() else {}
    longest = raw.get("model_max_length")
    longest = min(longest, positions) if isinstance(longest, (int, float)) and longest > 0 else positions
    text = json.dumps(raw | {"model_max_length": int(longest)}, indent=2, ensure_ascii=False)
    settings.write_text(text + "\n", encoding="utf-8")


def masked_lm(model: nn.Module) -> tuple[Encoder, MlmHead] | None:
    """Return encoder and head of the part that learned to predict [MASK]; None if the objective has none."""
    generator, head = getattr(model, "generator", None), getattr(model, "head", None)
    if isinstance(generator, Generator):
        return None if generator.words is not None else (generator.body, generator.head)
    encoder = getattr(model, "encoder", None)
    if not isinstance(head, MlmHead) or not isinstance(encoder, Encoder):
        return None
    if encoder.spec.causal or encoder.predicts_by_query:
        return None  # the head learned to predict the next token, or tokens from states of a second stream
    return encoder, head


def export_with_head(encoder: Encoder, head: MlmHead | BinaryHead, folder: Path) -> None:
    """Write encoder and head as a model of Hugging Face that fills masks, or that detects replaced tokens.

    Raises InputError if the family has none.
    """
    family = encoder.family
    write = family.discriminator_to_hub if isinstance(head, BinaryHead) else family.masked_lm_to_hub
    if write is not None:
        write(encoder.model, plain_weights(encoder.model), head, folder)
        return
    known = " and ".join(each.name for each in built_in() if each.masked_lm_to_hub is not None)
    what = f"encoder.family={encoder.spec.family}: "
    if family.to_hub is None:
        raise InputError(
            f"{what}{family.file} defines no to_hub, so the family has no format of Hugging Face; "
            f"`workbench evaluate` reads the folder encoder of each run"
        )
    raise InputError(
        f"{what}models with their heads are exported for the family {known} only; AutoModel loads the folder encoder "
        f"of each run"
    )


def save_tensors(weights: dict[str, Tensor], path: Path) -> None:
    """Write a copy of each tensor on the CPU to a safetensors file."""
    with library_errors(path):
        save_copies(weights, path)


# ----------------------------------------
# Model cards: metadata for the Hugging Face hub, written by the hub's own client, and a page for people.
#
# Text of users is on one line and without secrets in both, and without markup in the page (`workbench.store.redact`).


LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual")
LANGUAGES = {"docs": "en", "python-code": "code"}  # of the built-in corpora
IN_STORE = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)")


@dataclass(frozen=True)
class Terms:
    """What the publisher of a model states of it: the hub's identifier of a licence, and codes of languages.

    Raises InputError for what the hub takes for neither.
    """

    licence: str = "unknown"
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not LICENCE.fullmatch(self.licence):
            raise InputError(
                f"--license {self.licence!r} is not the hub's identifier of a licence; give one such as apache-2.0, "
                f"cc-by-sa-4.0 or other (https://huggingface.co/docs/hub/repositories-licenses)"
            )
        for code in self.languages:
            if not LANGUAGE.fullmatch(code):
                raise InputError(
                    f"--language {code!r} is not a code of a language (ISO 639), such as en, da or multilingual; "
                    f"separate several by commas"
                )


def page(
    spec: RunSpec, body: str, task: str, tags: Sequence[str] = (), terms: Terms | None = None,
    scores: Sequence[EvalResult] = (), name: str | None = None, base: str | None = None,
) -> str:  # fmt: skip
    """Return a model card: metadata, then `body`, a page in Markdown.

    `task` is the hub's name of what the model does, `name` is the model in the list of its `scores`, and `base` the
    model that training went on from, a folder or a name on the hub. The licence is unknown unless `terms` state one.
    """
    from huggingface_hub import ModelCard, ModelCardData

    terms = terms or Terms()
    data = ModelCardData(
        language=list(languages(spec, terms)) or None,
        license=terms.licence,
        library_name="transformers",
        pipeline_tag=task,
        tags=list(tags) or None,
        datasets=_data_sets(spec) or None,
        base_model=base if base is not None and _on_hub(base) else None,
        eval_results=list(scores) or None,
        model_name=on_one_line(name) if scores else None,
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n{body}"))


def languages(spec: RunSpec, terms: Terms) -> tuple[str, ...]:
    """Return the codes of the text's languages: those stated, the one it was filtered for, or the built-in corpora's.

    Of any other text they are not known, and () is returned.
    """
    if terms.languages:
        return terms.languages
    if spec.data.language is not None:
        return (spec.data.language,)
    if not set(spec.data.corpus) <= LANGUAGES.keys():
        return ()
    return tuple(dict.fromkeys(LANGUAGES[name] for name in spec.data.corpus))


HOW_TO_LOAD = """```python
from transformers import AutoModel, AutoTokenizer

encoder, tokenizer = AutoModel.from_pretrained("."), AutoTokenizer.from_pretrained(".")
hidden = encoder(**tokenizer("Some text.", return_tensors="pt")).last_hidden_state
```
"""


def encoder_card(spec: RunSpec, facts: dict[str, Any]) -> str:
    """Return the card of a run's encoder: what was trained, on which text, for how long, and how to load it.

    It follows from the spec and from `facts`, the steps, tokens and FLOPs so far, so that equal runs have equal cards.
    """
    trained = (
        f"It was pre-trained with the objective {code_in_markdown(spec.objective)} ({spec.recipe} recipe) for "
        f"{plural(facts['steps'], 'step')}, {plural(facts['tokens'], 'token')}, "
        f"{float(facts['flops']['paper']):.4g} training FLOPs in the paper's convention."
        if facts["steps"]
        else "It holds the initial weights of its seed and was not trained: a baseline."
    )
    trained += f"\nBefore: {for_markdown(spec.pair.spent_before())}." if spec.pair is not None else ""
    size = f"{plural(spec.encoder.layers, 'layer')} x {spec.encoder.hidden}"
    family = family_of(spec.encoder)
    loading = (
        HOW_TO_LOAD
        if family.to_hub is not None
        else f"The family is defined in a file (hash `{family.source}`) and has no format of Hugging Face: `workbench "
        "evaluate` reads this folder, with\n`--set encoder.family=FILE`, and `AutoModel` does not.\n"
    )
    body = f"""# {for_markdown(spec.name)}

A text encoder of {size} ({for_markdown(spec.encoder.family)}), seed {spec.seed}.
{trained}

- corpus: {corpus_line(spec)}
- tokenizer: {for_markdown(spec.data.tokenizer)}, {spec.encoder.vocab} entries
- texts: {length_line(spec)}
- no head: the heads of pre-training are not in here but in the folder `heads` of the run, so it fills no masks and
  classifies nothing before fine-tuning
- made by workbench {__version__}, after Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators
  Rather Than Generators"

{loading}"""
    base = spec.pair.names[0] if spec.pair is not None else None
    return page(spec, body, "feature-extraction", ["feature-extraction", spec.encoder.family], base=base)


def corpus_line(spec: RunSpec) -> str:
    """Return the text of a run in Markdown: its names, its fingerprint and the length of a row."""
    names = for_markdown(", ".join(spec.data.corpus))
    return f"{names} (fingerprint `{spec.data.fingerprint}`), rows of {spec.data.length} tokens"


def length_line(spec: RunSpec) -> str:
    """Return how long a text may be, and which of its positions were never trained."""
    longer = spec.encoder.positions > spec.data.length
    untrained = f"; positions from {spec.data.length} on never occurred in pre-training" if longer else ""
    return f"up to {spec.encoder.positions} tokens, to which the tokenizer cuts with `truncation=True`{untrained}"


def _data_sets(spec: RunSpec) -> list[str]:
    """Return the names of the hub's data sets among the corpora of a run; local folders are left out."""
    found = [
        match[1]
        for name in spec.data.corpus
        if (match := IN_STORE.match(name) or (HUB_NAME.match(name) if _on_hub(name.partition(":")[0]) else None))
    ]
    return list(dict.fromkeys(found))


def _on_hub(name: str) -> bool:
    """Return whether a name can only be one on the hub, since nothing of this name is on the disk."""
    match = HUB_NAME.match(name)
    return match is not None and match["config"] is None and not os.path.exists(name)
