"""Minimal pairs: which sentence wins, ties, refused input, and equality with scores from an independent reader."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from workbench import objectives, tasks
from workbench.data import tokenizer
from workbench.errors import Diverged, InputError
from workbench.models.export import export, export_heads
from workbench.spec.host import Host
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import measures
from workbench.tasks.zero_shot import blimp, held_out_pairs, preferences
from workbench.tasks.zero_shot.minimal_pairs import PairSet, sealed
from workbench.tasks.zero_shot.scorer import load
from workbench.training.loop import build

CPU = Host(device="cpu", threads=1, precision="fp32")
WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
SIZES = {
    "encoder.hidden": 32, "encoder.layers": 2, "encoder.embedding": 16, "encoder.positions": 24, "data.length": 16,
    "generator.width": 0.5, "budget.steps": 0,
}  # fmt: skip
FACTS: dict[str, Any] = {"steps": 0, "tokens": 0, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 0)}


def sentence(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, size=random.integers(3, 9)))


@pytest.fixture(scope="session")
def toy() -> PairSet:
    random = np.random.default_rng(0)
    texts = [sentence(random) for _ in range(80)]
    return sealed("toy", "minimal-pairs", texts[:40], texts[40:], {"paradigm": ["a"] * 10 + ["b"] * 30})


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunDir]:
    """Return a function that makes a finished run of an objective with random weights."""
    random = np.random.default_rng(1)
    trained = tokenizer.train([sentence(random) for _ in range(200)], 80)
    words = tmp_path_factory.mktemp("words")
    tokenizer.save(trained, words, True)
    made: dict[tuple[str, str], RunDir] = {}

    def make(name: str, tying: str = "embeddings") -> RunDir:
        if (name, tying) not in made:
            given = {"objective": name, "tying": tying, "encoder.vocab": tokenizer.size(trained)} | SIZES
            given |= {f"data.special.{key}": value for key, value in tokenizer.special(words).model_dump().items()}
            spec = objectives.with_options(resolve("nano", given))
            model: Any = build(spec)
            numbers = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(torch.randn(weight.shape, generator=numbers) * 0.3)
            run = RunStore(tmp_path_factory.mktemp("runs")).open(BoundRun(spec))
            with run.staged("encoder") as folder:
                export(model.encoder, words, folder, spec, FACTS)
            with run.staged("heads") as folder:
                export_heads(model, folder)
            run.finish(FACTS)
            made[name, tying] = run
        return made[name, tying]

    return make


def scored(run: RunDir, task: PairSet, **changes: Any) -> Any:
    return measures.take(run.path / "encoder", task, TasksSpec(**changes), 0, CPU)


# ---- what wins ----


def test_a_tie_counts_half_and_is_counted() -> None:
    good, bad = np.array([1.0, 0.0, -50.0, -50.0, 0.0]), np.array([0.0, 1.0, -50.00001, -50.001, 0.0])
    assert preferences.won(good, bad).tolist() == [1.0, 0.0, 0.5, 1.0, 0.5]


def test_a_scorer_that_knows_nothing_is_at_chance(finished: Callable[..., RunDir], toy: PairSet) -> None:
    same = sealed("same", "minimal-pairs", toy.good, toy.good, {"paradigm": ["a"] * len(toy.good)})
    score = scored(finished("bert-mlm"), same)
    assert score.value == 50.0 and score.details["ties"] == score.details["pairs"] == 40


def test_the_headline_is_the_mean_over_groups(finished: Callable[..., RunDir], toy: PairSet) -> None:
    score = scored(finished("bert-mlm"), toy)
    groups = score.values["paradigm"]
    assert score.value == (groups["a"] + groups["b"]) / 2 == score.values["mean"]["accuracy"]
    assert score.baselines == {"chance": 50.0} and score.test_rows == 40 and score.seed == 0
    assert json.loads(json.dumps(score.to_json()))["scorer"] == "pll"


@pytest.mark.parametrize(
    ("name", "scorer"),
    [("rtd", "originality"), ("electra-15", "originality"), ("replace-mlm", "one-pass"),
     ("all-tokens-mlm", "copy-mixture"), ("bert-mlm", "pll")],
)  # fmt: skip
def test_each_objective_names_its_scorer_and_its_generator_stands_beside(
    name: str, scorer: str, finished: Callable[..., RunDir], toy: PairSet
) -> None:
    score = scored(finished(name), toy)
    assert score.details["scorer"] == scorer and ("generator-pll" in score.values) == (name != "bert-mlm")
    other = scored(finished(name), toy, scorers="electric,pll-word-l2r,default")
    assert other.details["scorer"] == {"rtd": "electric", "electra-15": "electric", "bert-mlm": "pll-word-l2r"}.get(
        name, scorer
    )
    assert other.digest != score.digest


# ---- recomputed from the exported files alone ----


def test_an_independent_reading_of_the_files_gives_the_same_scores(
    finished: Callable[..., RunDir], toy: PairSet
) -> None:
    """By Hugging Face's encoder and tokenizer and a head from its five tensors, without code of ours."""
    from transformers import AutoModel, AutoTokenizer

    run = finished("bert-mlm")
    encoder, words = (
        AutoModel.from_pretrained(run.path / "encoder").eval(),
        AutoTokenizer.from_pretrained(run.path / "encoder"),
    )
    head = safetensors.torch.load_file(run.path / "heads" / "model.safetensors")
    table = encoder.get_input_embeddings().weight

    def pll(text: str) -> float:
        ids, total = words(text, truncation=True, max_length=16)["input_ids"], 0.0
        for place in range(1, len(ids) - 1):
            copy = torch.tensor([[*ids[:place], words.mask_token_id, *ids[place + 1 :]]])
            hidden = encoder(copy).last_hidden_state[0, place]
            hidden = torch.nn.functional.gelu(head["head.dense.weight"] @ hidden + head["head.dense.bias"])
            hidden = torch.nn.functional.layer_norm(
                hidden, hidden.shape, head["head.norm.weight"], head["head.norm.bias"], 1e-12
            )
            total += float((table @ hidden + head["head.bias"]).log_softmax(-1)[ids[place]])
        return total

    with torch.no_grad():
        wins = [float(pll(good) > pll(bad)) for good, bad in zip(toy.good, toy.bad, strict=True)]
    score = scored(run, toy)
    assert score.values["paradigm"] == {"a": 100 * sum(wins[:10]) / 10, "b": pytest.approx(100 * sum(wins[10:]) / 30)}


@pytest.mark.parametrize(
    ("name", "tying"), [("rtd", "embeddings"), ("rtd", "gdes"), ("rtd", "none"), ("all-tokens-mlm", "tokens")]
)
def test_what_is_put_together_again_scores_as_the_model_did(
    name: str, tying: str, finished: Callable[..., RunDir], toy: PairSet
) -> None:
    run = finished(name, tying)
    again = load(run.path / "encoder", ("default", "generator-pll"), "cpu")
    model: Any = build(run.spec()).eval()
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=numbers) * 0.3)
        texts = preferences.Tokenized(run.path / "encoder", toy.good, 16)
        for _, given in texts.batches(np.arange(3), "cpu"):
            assert again.scorer(given).tolist() == pytest.approx(model.score(given.ids, None).tolist(), rel=1e-5)
            own = model.scorers()["generator-pll"](given)
            assert again.beside["generator-pll"](given).tolist() == pytest.approx(own.tolist(), rel=1e-5)


def test_bf16_decides_only_what_fp32_would_decide_alike(
    finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("bert-mlm")
    exact = scored(run, toy)
    monkeypatch.setattr(preferences, "TRIED", 8)
    half = measures.take(run.path / "encoder", toy, TasksSpec(), 0, replace(CPU, precision="bf16"))
    assert half.values == exact.values and half.details["ties"] == exact.details["ties"]


# ---- what cannot be scored ----


def test_a_run_without_heads_says_so(finished: Callable[..., RunDir], toy: PairSet, tmp_path: Path) -> None:
    run = finished("rtd")
    encoder = tmp_path / run.run_id / "encoder"
    encoder.parent.mkdir()
    with pytest.raises(InputError, match="name the folder encoder of a run"):
        measures.take(encoder, toy, TasksSpec(), 0, CPU)
    (encoder.parent / "spec.json").write_bytes((run.path / "spec.json").read_bytes())
    with pytest.raises(InputError, match=r"has no folder heads, .* trained by an older version"):
        measures.take(encoder, toy, TasksSpec(), 0, CPU)


def test_a_scorer_that_the_objective_lacks_is_named(finished: Callable[..., RunDir], toy: PairSet) -> None:
    with pytest.raises(
        InputError, match=r"tasks.scorers=nonsense: the objective bert-mlm has none of these; it has pll, pll-word-l2r"
    ):
        scored(finished("bert-mlm"), toy, scorers="nonsense")


def test_nan_names_the_run_and_the_pair(finished: Callable[..., RunDir], toy: PairSet, monkeypatch: Any) -> None:
    run = finished("bert-mlm")
    found = load(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: torch.where(given.ids[:, 1] == given.ids[0, 1], torch.nan, 0.0))
    monkeypatch.setattr(preferences, "load", lambda *_: broken)
    with pytest.raises(Diverged, match=rf"{run.run_id}: the score \(pll\) of a sentence of pair \d+ of toy is nan"):
        scored(run, toy)


# ---- reading ----


def write_pairs(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_folder_of_json_lines_is_a_task_and_its_files_are_paradigms(tmp_path: Path) -> None:
    folder = tmp_path / "zorro"
    folder.mkdir()
    for name in ("b", "a"):
        write_pairs(folder / f"{name}.jsonl", [{"sentence_good": f"Good {name}.", "sentence_bad": "Bad."}])
    (folder / "c.jsonl.xz").write_bytes(lzma.compress(b'{"sentence_good": "Good c.", "sentence_bad": "Bad."}\n'))
    task = blimp.load_path(str(folder))
    assert (task.name, task.suite, task.groups) == ("zorro", "minimal-pairs", {"paradigm": ("a", "b", "c")})
    assert blimp.holds_pairs(str(folder / "a.jsonl")) and blimp.load_path(str(folder / "a.jsonl")).good == ("Good a.",)
    assert not blimp.holds_pairs(str(write_pairs(tmp_path / "t.jsonl", [{"text": "x", "label": 1}])))


def test_a_task_of_glue_is_meant_by_its_name_whatever_folders_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CoLA", "zorro"):
        (tmp_path / name).mkdir()
        write_pairs(tmp_path / name / "a.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    with pytest.raises(InputError, match="task CoLA is not available: no train"):
        tasks.load(TasksSpec(names="CoLA", glue=str(tmp_path)))
    assert [task.name for task in tasks.load(TasksSpec(names="./CoLA,zorro")).tasks] == ["CoLA", "zorro"]
    with pytest.raises(
        InputError, match="a search cannot choose settings by the pairs that a report shows; use --tasks pairs"
    ):
        tasks.load(TasksSpec(names="zorro", held_out=0.2))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no JSON lines of minimal pairs in this folder"):
        tasks.load(TasksSpec(names="empty"))


def test_blimp_s_three_sets_lie_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    row = {"sentence_good": "A.", "sentence_bad": "B.", "UID": "u", "linguistics_term": "t", "field": "f"}
    write_pairs(tmp_path / "data" / "u.jsonl", [row])
    write_pairs(tmp_path / "blimp_filtered.jsonl", [row, row | {"UID": "v"}])
    assert blimp.load("blimp", str(tmp_path)).groups == {"paradigm": ("u",), "phenomenon": ("t",), "field": ("f",)}
    assert blimp.load("blimp-filtered", str(tmp_path)).groups["paradigm"] == ("u", "v")
    with pytest.raises(InputError, match="task blimp-fast is not available: there are no JSON lines in"):
        blimp.load("blimp-fast", str(tmp_path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object"),
        ('{"sentence_good": "a"}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": 1, "sentence_bad": "a"}', "line 2: 'sentence_good' holds no text"),
        ('{"sentence_good": "\\ud800", "sentence_bad": "a"}', "half of a surrogate pair"),
        ('{"sentence_good": "a\\u0000", "sentence_bad": "a"}', "holds a NUL"),
        ('{"sentence_good": "' + "a" * 70_000 + '", "sentence_bad": "a"}', "70,000 characters"),
        ('{"sentence_good": "a", "sentence_bad": "b", "UID": 7}', "'UID' is not a name"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)  # fmt: skip
def test_files_that_hold_no_pairs_are_refused_in_a_sentence(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        blimp.load_path(str(path))
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_more_pairs_than_memory_is_meant_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blimp, "MOST", 2)
    path = write_pairs(tmp_path / "t.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}] * 3)
    with pytest.raises(InputError, match="line 3: there are more than 2 pairs in t"):
        blimp.load_path(str(path))


def test_real_blimp(real_data: Path) -> None:
    task = blimp.load("blimp-filtered", str(real_data / "blimp"))
    assert len(task.good) == 59_875
    assert [len(set(task.groups[level])) for level in ("paradigm", "phenomenon", "field")] == [67, 12, 4]
    assert sum(good == bad for good, bad in zip(task.good, task.bad, strict=True)) == 7
    assert len(blimp.load("blimp", str(real_data / "blimp")).good) == 67_000


def test_gpt2_scores_real_sentences_as_hugging_face_does(real_data: Path, tmp_path: Path) -> None:
    """Their model loads what is exported, and its log-probabilities, summed over the words, are the scores."""
    from transformers import AutoTokenizer, GPT2LMHeadModel

    texts = blimp.load("blimp-filtered", str(real_data / "blimp")).good[::600]
    trained = tokenizer.train(texts, 400)
    (words := tmp_path / "words").mkdir()
    tokenizer.save(trained, words, True)
    given = {"objective": "causal-lm", "encoder.family": "gpt2", "encoder.vocab": tokenizer.size(trained)} | SIZES
    given |= {"encoder.embedding": None, "encoder.positions": 64}
    given |= {f"data.special.{key}": value for key, value in tokenizer.special(words).model_dump().items()}
    spec = objectives.with_options(resolve("nano", given))
    model: Any = build(spec)
    run = RunStore(tmp_path / "runs").open(BoundRun(spec))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)
    with run.staged("encoder") as folder:
        export(model.encoder, words, folder, spec, FACTS)
    with run.staged("heads") as folder:
        export_heads(model, folder)
    run.finish(FACTS)

    ours = load(run.path / "encoder", ("default",), "cpu")
    theirs = GPT2LMHeadModel.from_pretrained(run.path / "encoder").eval()
    read = AutoTokenizer.from_pretrained(run.path / "encoder")
    tokenized = preferences.Tokenized(run.path / "encoder", texts, 64)
    assert ours.name == "causal"
    for numbers, batch in tokenized.batches(np.arange(len(texts)), "cpu"):
        for number, score in zip(numbers, ours.scorer(batch).tolist(), strict=True):
            ids = torch.tensor([read(texts[number])["input_ids"]])
            with torch.no_grad():
                log_p = theirs(ids).logits.double().log_softmax(-1)[0, :-1]
            each = log_p.gather(1, ids[0, 1:, None])[:-1]  # the last one is [SEP]
            assert score == pytest.approx(float(each.sum()), rel=1e-4)


# ---- made from held-out text ----

TEXT = (
    "The old man walked slowly along the river. He found a small boat there. The boat was painted in a bright blue.",
    "My sister reads many books about animals. She likes the ones about birds best. Birds sing in the old garden.",
)


def test_each_kind_changes_what_its_name_says() -> None:
    text = [list(held_out_pairs.sentences(line)) for line in TEXT]
    assert [len(one) for one in text] == [3, 3]
    for good, bad in held_out_pairs.exchanged(text):
        before, after = held_out_pairs.WORD.findall(good), held_out_pairs.WORD.findall(bad)
        assert sorted(before) == sorted(after) and before[0] == after[0] and bad.endswith(".")
        first, second = (n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
        assert second == first + 1
    many = [[f"The {a} {b} likes the {c} very much." for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwxyz"]]
    for good, bad in held_out_pairs.replaced(many):
        assert sum(a != b for a, b in zip(good.split(), bad.split(), strict=True)) == 1
    assert held_out_pairs.replaced(many) and held_out_pairs.exchanged(text)
    for good, bad in held_out_pairs.reordered(text):
        assert sorted(good.split()) == sorted(bad.split()) and good != bad
    assert len(held_out_pairs.reordered(text)) == 4


def test_words_of_scripts_without_blanks_are_characters() -> None:
    line = "我喜欢在公园里看书。他每天早上喝一杯茶。"
    text = [list(held_out_pairs.sentences(line))]
    assert text == [["我喜欢在公园里看书。", "他每天早上喝一杯茶。"]]
    (good, bad), *_ = held_out_pairs.exchanged(text)
    assert sorted(good) == sorted(bad) and good != bad and good[0] == bad[0] and bad.endswith("。")


def test_too_little_held_out_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "held-out.jsonl").write_text(json.dumps(TEXT[0]) + "\n")
    with pytest.raises(
        InputError, match=r"gives \d pairs of the kind 'exchange', and 100 are needed; .*data.held_out="
    ):
        held_out_pairs.load("pairs", DataSpec(corpus="my.txt"), tmp_path, tuning=False)


def test_the_headline_of_pairs_from_text_counts_every_pair_alike() -> None:
    """The built-in text gives a third as many pairs of the kind `order` as of each other kind."""
    found = held_out_pairs.load("pairs", DataSpec(corpus="docs"), Path(), tuning=True)
    kinds = np.array(found.groups["kind"])
    assert 0 < (kinds == "order").sum() < (kinds == "exchange").sum()
    wins = np.where(kinds == "order", 1.0, 0.0)
    values = preferences.by_group(found, wins)
    assert values["kind"] == {"exchange": 0.0, "order": 100.0, "replace": 0.0}
    assert values["mean"]["accuracy"] == pytest.approx(100 * (kinds == "order").mean())


@pytest.mark.parametrize("kind", ["exchange", "replace", "order"])
def test_one_kind_alone_begins_with_the_same_pairs_and_has_more(kind: str) -> None:
    whole = held_out_pairs.load("pairs", DataSpec(corpus="docs"), Path(), tuning=True)
    alone = held_out_pairs.load(f"pairs:{kind}", DataSpec(corpus="docs"), Path(), tuning=True)
    assert (alone.name, alone.suite) == (f"pairs:{kind}", whole.suite) and set(alone.groups["kind"]) == {kind}
    given = zip(whole.good, whole.bad, whole.groups["kind"], strict=True)
    shared = [(good, bad) for good, bad, its in given if its == kind]
    found = list(zip(alone.good, alone.bad, strict=True))
    assert found[: len(shared)] == shared and (len(found) > 3 * len(shared) or kind == "order")
    assert len(set(found)) == len(found)


def test_the_halves_for_choosing_settings_and_for_reports_share_nothing(tmp_path: Path) -> None:
    parts = [f"Part {n}. The cat number {n} sat on the mat." for n in range(60)]
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(part) + "\n" for part in parts))
    one, other = (
        {s for p in held_out_pairs.paragraphs(DataSpec(corpus="x"), tmp_path, side) for s in p}
        for side in (True, False)
    )
    assert one and other and len(one | other) == 120 and not one & other
