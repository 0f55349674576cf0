"""Causal encoders and XLNet are read at their last token, the only one whose state depends on the whole text."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.classifier import Classifier, load_encoder, pooled, reads_last
from workbench.tasks.finetuning.finetune import finetune
from workbench.tasks.finetuning.token_batches import encode
from workbench.tasks.task import Examples, Task, sealed

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48}),
    "gpt2 with head": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48}),
    "electra decoder": ("electra", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "electra decoder with head": ("electra", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "bert decoder": ("bert", {**SIZES, "is_decoder": True, "max_position_embeddings": 48}),
    "llama": ("llama", {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 48}),
    "xlnet": ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}),
    "bert": ("bert", {**SIZES, "max_position_embeddings": 48}),
}
LAST = [kind for kind in KINDS if kind != "bert"]


@pytest.fixture(scope="module")
def make(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a folder with random weights of a family and a tokenizer to match.

    Those with a head are saved as language models; GPT-2's then has no padding token, as it is published.
    """
    made: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in made:
            made[kind] = _build(encoder, kind, tmp_path_factory.mktemp("causal"))
        return made[kind]

    return build


def _build(encoder: Path, kind: str, folder: Path) -> Path:
    from tokenizers import processors
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

    model_type, sizes = KINDS[kind]
    head, unpadded = kind.endswith("head"), kind == "gpt2 with head"
    rows = json.loads((encoder / "config.json").read_text())["vocab_size"]
    special = {"vocab_size": rows, "pad_token_id": None if unpadded else 0, "bos_token_id": 2, "eos_token_id": 3}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, initializer_range=0.2, **special, **sizes)
        (AutoModelForCausalLM if head else AutoModel).from_config(config).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(encoder)
    templates = {"gpt2": ("$A", "$A $B"), "llama": ("[CLS] $A", "[CLS] $A $B"), "xlnet": ("$A [SEP] [CLS]",) * 2}
    if model_type in templates:
        single, pair = templates[model_type]
        inner = tokenizer.backend_tokenizer
        inner.post_processor = processors.TemplateProcessing(
            single=single, pair=pair if "$B" in pair else "$A [SEP] $B:1 [SEP]:1 [CLS]:2",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )  # fmt: skip
    tokenizer.eos_token = "[SEP]"
    if unpadded:
        tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_token_is_seen_and_padding_on_either_side_is_not(kind: str, make: Callable[[str], Path]) -> None:
    model = Classifier(load_encoder(make(kind), 0.0), 2, 0.0).eval()
    assert model.reads_last == (kind in LAST)
    words = torch.tensor([[7, 8, 9, 10, 11]])
    other = torch.tensor([[7, 8, 9, 10, 12]])
    with torch.no_grad():
        plain, changed = model({"input_ids": words}), model({"input_ids": other})
        assert (plain - changed).abs().max() > 1e-4
        for garbage in (0, 20):
            pad = torch.full((1, 3), garbage)
            mask = torch.tensor([[1] * 5 + [0] * 3])
            right = {"input_ids": torch.cat([words, pad], 1), "attention_mask": mask}
            torch.testing.assert_close(model(right), plain, rtol=1e-4, atol=1e-5)
        if kind == "xlnet":  # whose positions are relative, so that rows may begin anywhere
            left = {"input_ids": torch.cat([pad, words], 1), "attention_mask": mask.flip(1)}
            torch.testing.assert_close(model(left), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in LAST if kind != "xlnet"])
def test_the_first_token_of_a_causal_model_is_blind(kind: str, make: Callable[[str], Path]) -> None:
    """The state of the first token, at which other encoders are read, does not depend on the text here."""
    model: Any = load_encoder(make(kind), 0.0).eval()
    with torch.no_grad():
        one, other = (model(input_ids=torch.tensor([[7, 8, last]])).last_hidden_state for last in (9, 10))
    torch.testing.assert_close(one[:, 0], other[:, 0])
    assert (one[:, -1] - other[:, -1]).abs().max() > 1e-4


def test_pooling_takes_the_first_or_last_real_token() -> None:
    hidden = torch.arange(8.0).view(2, 4, 1)
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]])
    assert pooled(hidden, None, True).flatten().tolist() == [3, 7]
    assert pooled(hidden, None, False).flatten().tolist() == [0, 4]
    assert pooled(hidden, mask, True).flatten().tolist() == [2, 7]
    assert pooled(hidden, mask, False).flatten().tolist() == [0, 6]


def test_the_config_decides() -> None:
    from transformers import AutoConfig

    for kind, (model_type, sizes) in KINDS.items():
        assert reads_last(AutoConfig.for_model(model_type, **sizes)) == (kind in LAST), kind


@pytest.mark.parametrize("kind", ["gpt2", "gpt2 with head", "electra decoder", "electra decoder with head", "xlnet"])
def test_what_a_bag_of_words_solves_it_learns_too(kind: str, make: Callable[[str], Path], keyword: Task) -> None:
    spec = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.0)
    assert finetune(make(kind), keyword, spec, 0, Host(device="cpu")).value > 85


def test_texts_of_a_pair_do_not_run_together_and_no_row_is_empty(make: Callable[[str], Path], encoder: Path) -> None:
    rows = Examples(["bada kego", ""], ["mida", ""], [0, 1])
    task = sealed(Task("pairs", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows}))
    ids = encode(make("gpt2"), task, 8)["train"].ids
    apart = encode(make("gpt2"), sealed(Task("one", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0,
                   Examples(["bada kego", "mida"], None, [0, 1]), {"dev": rows})), 8)["train"].ids  # fmt: skip
    assert ids[0].tolist() == [*apart[0], 3, *apart[1]] and ids[1].tolist() == [3]
    long = Examples(["bada " * 30], ["mida " * 30], [0])
    cut = encode(
        make("gpt2"), sealed(Task("long", "table", ("a",), "accuracy", ("accuracy",), 1.0, long, {"dev": long})), 9
    )
    assert len(cut["train"].ids[0]) == 9 and cut["train"].ids[0].tolist().count(3) == 1
