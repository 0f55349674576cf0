"""Going on from a published pair: weights by their names, and the losses of a plain loop over transformers' modules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F  # noqa: N812

from workbench.data import tokenizer
from workbench.data.corpus import Corpus
from workbench.data.prepare import Prepared, bind, prepare
from workbench.errors import InputError
from workbench.execution.study_options import base_spec
from workbench.models import published_pair
from workbench.models.corruption import pick_positions
from workbench.models.encoder import build_encoder
from workbench.objectives import build, with_options
from workbench.options import SpecOptions
from workbench.rng import uniform
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec, split_settings
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.tensors import sample
from workbench.training import loop
from workbench.training.optimizer import lr_factor
from workbench.training.plan import plan

SETS = (
    "data.length=32", "batch.size=8", "optim.lr=2e-3", "options.weight=20", "encoder.dropout=0",
    "corruption.generator_mask=1", "corruption.generator_random=0",
)  # fmt: skip
WORDS = ["the cat", "a dog", "one bird", "this fish"], ["sees", "likes", "finds"], ["in the garden", "on a hill"]


def make_pair(folder: Path, text: str, tied: bool = True, **sizes: Any) -> tuple[Any, Any]:
    """Write a tiny discriminator and its generator as transformers saves them, and return both."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    trained = tokenizer.train([text], 200)
    main: dict[str, Any] = {
        "vocab_size": tokenizer.size(trained), "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.1,
    }  # fmt: skip
    small = {"hidden_size": 16, "num_attention_heads": 1, "intermediate_size": 64} | sizes
    with torch.random.fork_rng():
        torch.manual_seed(0)
        discriminator = ElectraForPreTraining(ElectraConfig(**main))
        generator = ElectraForMaskedLM(ElectraConfig(**main | small))
        for part in (discriminator, generator):  # so that no bias or norm is 0 or 1
            for weight in part.parameters():
                weight.data.add_(0.02 * torch.randn_like(weight))
    if tied:
        tie(discriminator, generator)
    for name, model in (("d", discriminator), ("g", generator)):
        model.save_pretrained(folder / name)
        tokenizer.save(trained, folder / name, True)
    return discriminator, generator


def tie(discriminator: Any, generator: Any) -> None:
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names, verbs, places = WORDS
    lines = [f"{a} {v} {b} {p}." for a in names for v in verbs for b in names for p in places]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(" ".join(lines[i : i + 4]) for i in range(0, len(lines), 2)))
    return path


@pytest.fixture(scope="module")
def pair(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    make_pair(folder, text.read_text())
    return folder


def spec_of(pair: Path, text: Path, steps: int = 20, objective: str = "rtd", *sets: str) -> tuple[RunSpec, Prepared]:
    given = [f"start.from={pair / 'd'},{pair / 'g'}", *SETS, *sets]
    given = [each for each in given if objective == "rtd" or not each.startswith("options.")]
    base = base_spec(
        SpecOptions(set=split_settings(given), corpus=(str(text),), tasks=("none",), budget={"steps": steps})
    )
    prepared = prepare(base)
    return with_options(bind(base.replace(objective=objective), prepared)), prepared


def trained(pair: Path, text: Path, root: Path, steps: int = 20) -> list[dict[str, Any]]:
    """Return the log of a run that goes on from the pair."""
    spec, prepared = spec_of(pair, text, steps)
    run = RunStore(root).open(BoundRun(spec))
    host = Host(device="cpu", precision="fp32", threads=1, log_every=1, plain=True)
    loop.train(run, spec, plan(spec), Corpus(prepared, spec.data.length, spec.seed), host)
    return run.metrics()


def plain_loop(pair: Path, text: Path, steps: int) -> list[tuple[float, float]]:
    """Return the losses of generator and discriminator in each step, by transformers' modules and torch's AdamW."""
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    spec, prepared = spec_of(pair, text, steps)
    corpus, warmup = Corpus(prepared, spec.data.length, spec.seed), plan(spec).warmup_steps
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    main: Any = ElectraForPreTraining.from_pretrained(pair / "d", **no_dropout).train()
    small: Any = ElectraForMaskedLM.from_pretrained(pair / "g", **no_dropout).train()
    tie(main, small)
    named = {id(p): (n, p) for part in (small, main) for n, p in part.named_parameters()}
    plain = [p for n, p in named.values() if n.endswith("bias") or "LayerNorm" in n]
    decayed = [p for n, p in named.values() if not (n.endswith("bias") or "LayerNorm" in n)]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": spec.optim.weight_decay}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999), eps=spec.optim.eps)
    losses = []
    for step in range(1, steps + 1):
        batch = corpus.batch((step - 1) * spec.batch.size, spec.batch.size)
        positions, weights = pick_positions(batch, spec)
        rows = torch.arange(len(positions))[:, None]
        masked, fake = batch.ids.clone(), batch.ids.clone()
        masked[rows, positions] = spec.data.special.mask
        logits = small(input_ids=masked).logits[rows, positions]
        generator_loss = F.cross_entropy(logits.flatten(0, 1), batch.ids[rows, positions].flatten())
        draws = uniform(batch.keys, "sample", positions.shape[1]).flatten()
        fake[rows, positions] = sample(logits.detach().softmax(-1).flatten(0, 1), draws).view_as(positions)
        assert bool((weights > 0).all())
        found = main(input_ids=fake).logits
        main_loss = F.binary_cross_entropy_with_logits(found, (fake != batch.ids).float())
        (generator_loss + 20 * main_loss).backward()
        torch.nn.utils.clip_grad_norm_([p for _, p in named.values()], spec.optim.clip)
        for group in optimizer.param_groups:
            group["lr"] = spec.optim.lr * lr_factor(step - 1, steps, warmup, spec.schedule)
        optimizer.step()
        optimizer.zero_grad()
        losses.append((generator_loss.item(), main_loss.item()))
    return losses


def test_twenty_steps_have_the_losses_of_a_plain_loop(pair: Path, text: Path, tmp_path: Path) -> None:
    rows, expected = trained(pair, text, tmp_path / "runs"), plain_loop(pair, text, 20)
    got = [(row["generator_loss"], row["discriminator_loss"]) for row in rows]
    assert torch.allclose(torch.tensor(got), torch.tensor(expected), rtol=2e-4)
    assert expected[0] != expected[-1]


def test_identity_is_that_of_the_weights_and_not_of_their_place(pair: Path, text: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(pair, tmp_path / "moved"))
    one, two = (spec_of(place, text)[0] for place in (pair, moved))
    assert one.name == two.name and one.pair != two.pair
    (moved / "g" / "config.json").write_text(
        json.dumps(json.loads((moved / "g" / "config.json").read_text()) | {"transformers_version": "5"})
    )
    assert spec_of(moved, text)[0].name == one.name
    make_pair(tmp_path / "other", text.read_text(), initializer_range=0.3)
    assert spec_of(tmp_path / "other", text)[0].name != one.name
    assert base_spec(SpecOptions(tasks=("none",))).model_dump().keys().isdisjoint({"pair", "published"})


def test_sizes_heads_and_tokenizer_are_those_of_the_pair(pair: Path, text: Path) -> None:
    spec, prepared = spec_of(pair, text)
    sizes = spec.encoder
    assert (sizes.hidden, sizes.layers, sizes.head_count, sizes.embedding_width, sizes.positions) == (32, 2, 2, 16, 64)
    assert (spec.generator.width, spec.generator.depth, spec.head, spec.tying) == (0.5, 1.0, "dense", "embeddings")
    assert prepared.vocab == sizes.vocab and spec.scale == "nano"
    assert spec.generator_encoder.head_count == 1 and spec.data.special.mask == 4


def test_a_generator_may_have_other_heads_than_its_width_suggests(text: Path, tmp_path: Path) -> None:
    make_pair(tmp_path, text.read_text(), num_attention_heads=4)
    assert spec_of(tmp_path, text)[0].generator_encoder.head_count == 4
    assert len(trained(tmp_path, text, tmp_path / "runs", 2)) == 2


def lacking(folder: Path, name: str) -> None:
    """Remove a tensor from the file of the pair that has it."""
    for part in ("d", "g"):
        path = folder / part / "model.safetensors"
        save_file({key: weight for key, weight in load_file(path).items() if key != name}, path)


def changed(folder: Path, part: str, name: str) -> None:
    weights = load_file(folder / part / "model.safetensors")
    save_file(weights | {name: weights[name] + 1e-3}, folder / part / "model.safetensors")


def configured(folder: Path, part: str, **keys: Any) -> None:
    path = folder / part / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def swapped(folder: Path) -> None:
    for before, after in (("d", "x"), ("g", "d"), ("x", "g")):
        (folder / before).rename(folder / after)


def extended(folder: Path) -> None:
    words = tokenizer.load(folder / "d")
    words.add_tokens(["[NEW]"])
    words.save_pretrained(folder / "d")


BINARY, NORM = "discriminator_predictions.dense_prediction.weight", "generator_predictions.LayerNorm.bias"
REFUSED: dict[str, tuple[Callable[[Path, str], object], str]] = {
    "no head of the discriminator": (lambda pair, _: lacking(pair, BINARY), "a head is random"),
    "no head of the generator": (lambda pair, _: lacking(pair, "generator_lm_head.bias"), "ElectraForMaskedLM has"),
    "half a head": (lambda pair, _: lacking(pair, NORM), "generator.head.norm.bias"),
    "the two swapped": (lambda pair, _: swapped(pair), "start.from: the"),
    "other embeddings": (
        lambda pair, _: changed(pair, "g", "electra.embeddings.position_embeddings.weight"), "not trained together",
    ),
    "another type": (lambda pair, _: configured(pair, "g", model_type="bert"), "it is a bert model"),
    "another activation": (lambda pair, _: configured(pair, "d", hidden_act="relu"), "its hidden_act is relu"),
    "a token without an embedding": (
        lambda pair, _: extended(pair), "the tokenizer gives the id .*, and the encoder has ids 0 to",
    ),
    "a causal one": (lambda pair, _: configured(pair, "d", is_decoder=True), "cannot be a part of an ELECTRA pair"),
    "untied tables": (lambda pair, text: make_pair(pair, text, tied=False), "not trained together"),
    "a generator of another shape": (
        lambda pair, text: make_pair(pair, text, intermediate_size=48), "intermediate_size=48",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_pair_is_refused_before_anything_is_written(
    case: str, pair: Path, text: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(pair, tmp_path / "pair"))
    change, told = REFUSED[case]
    change(folder, text.read_text())
    with pytest.raises(InputError, match=told):
        plan(spec_of(folder, text)[0])


@pytest.mark.parametrize(
    ("sets", "objective", "told"),
    [
        (("encoder.layers=3",), "rtd", "contradicts start.from"),
        (("tying=tokens",), "rtd", "contradicts start.from"),
        ((), "bert-mlm", "of bert-mlm, so this"),
    ],
)
def test_settings_and_objectives_that_do_not_fit_are_refused(
    sets: tuple[str, ...], objective: str, told: str, pair: Path, text: Path
) -> None:
    with pytest.raises(InputError, match=told):
        plan(spec_of(pair, text, 20, objective, *sets)[0])


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (["start.from=one"], r"^start\.from takes two models, as in"),
        (["start.from=a,b,c"], "3 are named"),
        (["start.allow_bin=true"], "0 are named"),
        (["start.from=a,b", "start.allow_bin=maybe"], "start.allow_bin='maybe' cannot be used"),
        (["start.form=a,b"], "start.from"),
        (["start.from=unset"], "start.from always has a value"),
        (["start.from=no-one/here,no-one/there"], "no-one/here is not a folder here"),
        (["pair.names=a,b"], "unknown key 'pair.names'"),
    ],
)
def test_keys_that_name_no_pair_are_refused_in_the_words_of_the_user(sets: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        base_spec(SpecOptions(set=split_settings(sets), tasks=("none",)))


def test_files_that_change_after_planning_are_refused(pair: Path, text: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pair, tmp_path / "pair"))
    spec, _ = spec_of(folder, text)
    changed(folder, "d", "discriminator_predictions.dense.bias")
    with pytest.raises(InputError, match="have changed since"):
        published_pair.load(build(spec, build_encoder(spec)), spec)
