"""Windows of questions and paragraphs: each token has its place, and answers map back to the text exactly."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import squad_made
import torch
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from squad_tasks import task_of
from torch.nn import functional

from workbench.data import tokenizer
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import _squad_model as module
from workbench.tasks._squad_model import (
    Limits,
    SpanModel,
    Windows,
    best_spans,
    cuts,
    limits,
    most_context,
    span_loss,
    windows,
)
from workbench.tasks.common.encoder_folders import configured, load_encoder
from workbench.tasks.squad import Question, Questions, Squad, read_questions


def made(folder: Path, limit: Limits, questions: Questions) -> Windows:
    config = load_encoder(folder, 0.0).config
    return windows(folder, config, {"train": questions}, limit)["train"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    folder = squad_made.write(tmp_path_factory.mktemp("squad"), unanswerable=True, longest=40)
    return read_questions([folder / "train-v2.0.json"], True, training=True)[0]


# ---- cuts ----


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 80))
def test_windows_are_those_of_the_released_code(tokens: int, room: int, stride: int) -> None:
    """A slow loop by its rule: as many tokens as fit, then `stride` further, until the end is reached."""
    expected, start = [], 0
    while start < tokens or not expected:
        length = min(room, tokens - start)
        expected.append((start, length))
        if start + length == tokens:
            break
        start += min(length, stride)
    assert cuts(tokens, room, stride) == expected
    covered = [place for start, count in expected for place in range(start, start + count)]
    assert set(covered) == set(range(tokens))


@given(st.integers(1, 900), st.integers(1, 450), st.integers(1, 128))
@example(318, 300, 128)  # token 214 has less context in the first window, which is longer
def test_the_window_with_the_most_context_is_that_of_the_released_code(tokens: int, room: int, stride: int) -> None:
    made_cuts = cuts(tokens, room, stride)
    for place, owner in enumerate(most_context(made_cuts, tokens)):
        scores = [
            min(place - start, start + count - 1 - place) + 0.01 * count if start <= place < start + count else -9.0
            for start, count in made_cuts
        ]
        assert owner == scores.index(max(scores))


def test_the_windows_of_a_long_paragraph_take_memory_in_proportion_to_its_tokens() -> None:
    tracemalloc.start()
    owners = most_context(cuts(20_000, 48, 16), 20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(owners) == 20_000 and peak < 5e6  # a table of windows and tokens has 200 MB


def test_short_rows_have_short_limits(encoder: Path) -> None:
    config = configured(module.hugging_face.check_encoder_folder(encoder))
    assert limits(encoder, config, TasksSpec()) == Limits(48, 12, 24)  # the toy encoder has 48 positions
    assert limits(encoder, config, TasksSpec(squad_length=32, squad_stride=5)) == Limits(32, 8, 5)
    config.max_position_embeddings = 512
    assert limits(encoder, config, TasksSpec()) == Limits(512, 64, 128)
    assert limits(encoder, config, TasksSpec(squad_length=384)) == Limits(384, 64, 128)


# ---- rows ----


def test_rows_are_the_pairs_that_the_tokenizer_makes(encoder: Path, toy: Questions) -> None:
    """A window of the whole paragraph has the ids and segment ids of the tokenizer's own encoding of the pair."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    part = made(encoder, Limits(512, 64, 128), toy)
    assert len(part) == len(toy)
    batch = part.batch([3, 4, 5, 6], "cpu")
    rows = [toy.rows[number] for number in (3, 4, 5, 6)]
    both = tokenizer([row.text for row in rows], [toy.paragraphs[row.paragraph] for row in rows], padding=True)
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert batch.inputs[name].tolist() == both[name]
    assert part.lengths[3:7].tolist() == [sum(mask) for mask in both["attention_mask"]]
    for place in range(4):
        inside = [owner == 1 for owner in both.sequence_ids(place)]
        assert batch.allowed[place].tolist() == [True, *inside[1:]]
    assert batch.none.tolist() == [0] * 4


@pytest.mark.parametrize("length", [20, 24, 32])
def test_answers_map_back_exactly_and_windows_without_them_point_at_no_answer(
    encoder: Path, toy: Questions, length: int
) -> None:
    part = made(encoder, Limits(length, 8, 6), toy)
    batch = part.batch(np.arange(len(part)), "cpu")
    assert batch.inputs["input_ids"].shape[1] <= length and len(part) > len(toy)
    seen: dict[int, int] = {}
    for window, (number, paragraph, start, count) in enumerate(part.rows.tolist()):
        row = toy.rows[number]
        text, offsets = toy.paragraphs[row.paragraph], part.offsets[paragraph]
        assert batch.impossible[window] == row.impossible
        first, last = batch.spans[window].tolist()
        if part.spans[window, 0] < 0:
            assert (first, last) == (0, 0)
            if not row.impossible:
                answer = row.answers[0]
                inside = text[offsets[start, 0] : offsets[start + count - 1, 1]]
                assert answer[0] not in inside.split()
            continue
        seen[number] = seen.get(number, 0) + 1
        place = part.first[window]
        tokens = slice(first - place + start, last - place + start + 1)
        assert text[offsets[tokens][0, 0] : offsets[tokens][-1, 1]] == row.answers[0][0]
        assert (
            batch.inputs["input_ids"][window, first : last + 1].tolist() == part.paragraphs[paragraph][tokens].tolist()
        )
        assert batch.allowed[window, first] and batch.allowed[window, last]
    answerable = {number for number, row in enumerate(toy.rows) if not row.impossible}
    assert set(seen) == answerable and max(seen.values()) > 1


def test_every_token_is_owned_by_one_window(encoder: Path, toy: Questions) -> None:
    part = made(encoder, Limits(32, 8, 6), toy)
    begins = part.begins(np.arange(len(part)), 40).numpy()
    owned: dict[int, list[int]] = {number: [] for number in range(len(toy))}
    for window, (number, _, start, count) in enumerate(part.rows.tolist()):
        places = np.flatnonzero(begins[window]) - part.first[window]
        assert ((places >= 0) & (places < count)).all()
        owned[number] += (places + start).tolist()
    for number, places in owned.items():
        paragraph = part.rows[part.rows[:, 0] == number][0, 1]
        assert sorted(places) == list(range(len(part.paragraphs[paragraph])))


def test_questions_are_cut_and_empty_texts_are_read(encoder: Path) -> None:
    rows = [
        Question("long", "mini " * 60, 0, (("bada", 0),), False, "x"), Question("none", "", 0, (), True, "x"),
        Question("blank", "mini", 1, (), True, "x"),
    ]  # fmt: skip
    part = made(encoder, Limits(48, 12, 24), Questions(["bada mini", "\u00a0"], rows))
    assert [len(ids) for ids in part.questions] == [12, 0, len(part.questions[2])]
    assert part.rows[:, 3].tolist()[2] == 0  # a paragraph without tokens has one window
    assert part.batch([0, 1, 2], "cpu").allowed[2].sum() == 1


# ---- other tokenizers ----


def roberta(folder: Path) -> Path:
    config = transformers.RobertaConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=66,
    )  # fmt: skip
    transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    import tokenizers

    made_bpe = tokenizers.ByteLevelBPETokenizer()
    made_bpe.train_from_iterator(["the café is old"] * 9, 290, special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made_bpe._tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


def test_blanks_are_no_part_of_an_answer_and_a_tokenizer_without_special_tokens_gets_an_end(tmp_path: Path) -> None:
    folder = roberta(tmp_path)
    text = "the  café is old, très old (café)"
    places = [("café", 5), ("très", 18), ("old", 13), ("café", 28)]  # the last two beside punctuation
    rows = [Question(f"q{n}", "what?", 0, (answer,), False, "x") for n, answer in enumerate(places)]
    part = made(folder, Limits(64, 16, 32), Questions([text], rows))
    for window, row in enumerate(rows):
        first, last = part.spans[window]
        assert text[part.offsets[0][first, 0] : part.offsets[0][last, 1]] == row.answers[0][0]
    batch = part.batch([0], "cpu")
    ids = batch.inputs["input_ids"][0].tolist()
    assert ids[part.first[0] - 1] == ids[-1] == 2 and "token_type_ids" not in batch.inputs


def test_a_causal_encoder_has_no_answer_at_its_last_token(electra: Callable[..., Path], toy: Questions) -> None:
    folder = electra(is_decoder=True)
    config = configured(module.hugging_face.check_encoder_folder(folder))
    part = windows(folder, config, {"train": toy}, Limits(48, 12, 24))["train"]
    batch = part.batch([0, 1, 2], "cpu")
    assert batch.none.tolist() == (part.lengths[:3] - 1).tolist()
    assert batch.allowed.gather(1, batch.none[:, None]).all() and not batch.allowed[:, 0].any()


def test_a_tokenizer_without_offsets_and_rows_that_are_too_short_are_refused(
    encoder: Path, toy: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(module.hugging_face.check_encoder_folder(encoder))
    with pytest.raises(
        InputError, match="rows of 16 tokens hold too little of a paragraph beside a question of up to 10"
    ):
        windows(encoder, config, {"train": toy}, Limits(16, 10, 8))

    class Slow:
        is_fast = False

    monkeypatch.setattr(module, "load_published_tokenizer", lambda folder: Slow())
    with pytest.raises(InputError, match=r"gives no character offsets of its tokens.*tokenizer\.json$"):
        windows(encoder, config, {"train": toy}, Limits(48, 12, 24))


# ---- candidates ----


def test_offsets_of_our_own_tokenizer_are_characters_of_the_text(tmp_path: Path, toy: Questions) -> None:
    """Accents and letters that lower case changes move no offset."""
    own = tokenizer.train(["İstanbul café ﬁne bada"] * 20, 90)
    tokenizer.save(own, tmp_path, True)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "İstanbul, CAFÉ e\u0301 ﬁne bada"
    for ids, offsets in module._tokens(tmp_path, loaded, [text]):
        assert len(ids) == len(offsets) > 3
        assert text[offsets[-1, 0] : offsets[-1, 1]].strip() and offsets[-1, 1] == len(text)


# ---- Heads for the ends of answers, and their loss, against slow loops ----


def oracle(model: SpanModel, folder: Path, task: Squad, joint: bool, limit: Limits) -> list[dict[str, Any]]:
    """Loss parts and best spans of each window, one at a time, with the dense layers of the released code."""
    part = windows(folder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = []
    for number in range(len(part)):
        batch = part.batch([number], "cpu")
        hidden = model.encoder(**batch.inputs).last_hidden_state[0]  # (L, D)
        allowed = batch.allowed[0]
        lowered = torch.where(allowed, 0.0, -1000.0)
        start = hidden @ model.start.weight[0] + model.start.bias + lowered

        def ends(token: int, hidden: Any = hidden, lowered: Any = lowered) -> Any:
            if not joint:
                return hidden @ model.end.weight[0] + model.end.bias + lowered
            pairs = torch.cat([hidden[token].expand_as(hidden), hidden], 1)
            return model.end(functional.gelu(model.end_hidden(pairs)))[:, 0] + lowered  # type: ignore[misc]

        pooled = (start.softmax(0)[:, None] * hidden).sum(0)
        null = model.answerable(functional.gelu(model.answerable_hidden(torch.cat([hidden[0], pooled]))))[0]
        first, last = batch.spans[0].tolist()
        loss = -(start.log_softmax(0)[first] + ends(first).log_softmax(0)[last]) / 2
        label = batch.impossible[0]
        loss = loss - 0.5 * (label * null.sigmoid().log() + (1 - label) * (1 - null.sigmoid()).log())
        scores = start.log_softmax(0) if joint else start
        rows.append({"loss": loss, "null": null, "starts": scores, "ends": ends, "batch": batch, "number": number})
    return rows


@pytest.mark.parametrize("joint", [True, False])
def test_heads_and_loss_are_those_of_a_slow_loop(encoder: Path, tmp_path: Path, joint: bool) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    task = replace(task, tests={"dev": task.tests["dev"].take(list(range(6)))})
    torch.manual_seed(3)
    model = SpanModel(load_encoder(encoder, 0.0), joint).eval()
    limit = Limits(24, 6, 8)
    part = windows(encoder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = np.arange(len(part))
    batch = part.batch(rows, "cpu")
    with torch.no_grad():
        slow = oracle(model, encoder, task, joint, limit)
        losses = torch.stack([each["loss"] for each in slow])
        assert torch.allclose(span_loss(model, batch, False), losses.mean(), atol=1e-5)
        assert torch.allclose(span_loss(model, batch, True), losses.sum(), atol=1e-4)
        spans = best_spans(model, batch, part.begins(rows, batch.allowed.shape[1]))
        for row, each in enumerate(slow):
            assert spans["nulls"][row] == pytest.approx(float(each["null"]), abs=1e-5)
            best, places = each["starts"].sort(descending=True)
            valid = int(batch.allowed[row].sum())
            count = min(20, valid)
            assert spans["starts"][row][:count].tolist() == places[:count].tolist()
            assert np.allclose(spans["start_scores"][row][:count], best[:count], atol=1e-5)
            for place in np.flatnonzero(spans["begins"][row]):
                ends = each["ends"](int(spans["starts"][row][place]))
                scored = ends.log_softmax(0) if joint else ends
                assert np.allclose(
                    spans["end_scores"][row, place][:count], scored.sort(descending=True)[0][:count], atol=1e-5
                )
                chosen = scored[spans["ends"][row, place][:count]]
                assert np.allclose(spans["end_scores"][row, place][:count], chosen, atol=1e-5)


def test_gradients_reach_every_weight(encoder: Path, tmp_path: Path) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    for joint in (True, False):
        model = SpanModel(load_encoder(encoder, 0.0), joint)
        part = windows(encoder, model.encoder.config, {"train": task.train}, Limits(32, 8, 16))["train"]
        span_loss(model, part.batch(np.arange(16), "cpu"), False).backward()
        bare = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert not {name for name in bare if not name.startswith("encoder.embeddings")}
