"""The contract of a kind of task, which every kind passes: ours, and one in a file of a stranger."""

from __future__ import annotations

import errno
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from task_data import ENCODED, OWN, jsonl, options, write_data

from workbench import tasks
from workbench.errors import Diverged, InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.store import run_directory
from workbench.store.manifest import entry
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import Measure, Model, Score, Suite, expected, keep, score_digest, score_name, take
from workbench.tasks.common.examples import Examples, Tagged, Task, limited
from workbench.tasks.common.fine_tuning import Unfinished
from workbench.tasks.embeddings import SIMILARITY, Embedding
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.squad import Questions, Squad
from workbench.tasks.tagging import Tagging

HOST = Host(device="cpu", threads=1, precision="fp32")
SIZES = resolve("nano", {"encoder.positions": 48})


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a word under --tasks for each kind that needs no corpus, and write its data into an empty folder."""
    monkeypatch.chdir(tmp_path)
    return write_data(tmp_path)


TRAINED: dict[str, dict[str, Any]] = {
    "glue": {}, "superglue": {}, "table": {"folds": 2}, "choice": {}, "tagging": {}, "squad": {},
    "embeddings": {"embeddings": "contrastive"},
}  # fmt: skip


class Stop(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kind", TRAINED)
def test_equal_seeds_agree_to_the_last_bit_and_a_stopped_fine_tuning_goes_on_exactly(
    kind: str, words: dict[str, str], encoder: Path, tmp_path: Path
) -> None:
    if kind == "embeddings":
        pytest.importorskip("sentence_transformers")
    if kind == "table":  # folds need a table without parts
        rows = [json.loads(line) for line in Path("own.jsonl").read_text().splitlines()]
        jsonl(Path("own.jsonl"), *({key: row[key] for key in ("text", "label")} for row in rows))
    chosen, every_step = options(words[kind], epochs=1.0, dropout=0.1, **TRAINED[kind]), replace(HOST, save_every=1)
    (measure,) = tasks.read(chosen).tasks
    whole, again = (take(measure, Model(encoder, chosen, 0), HOST) for _ in range(2))
    assert replace(whole, seconds=0) == replace(again, seconds=0)
    (tmp_path / "run").mkdir()
    state, taken = Unfinished(RunDir(tmp_path / "run"), "a.json", {"encoder": "0"}), list[int]()

    def stop(step: int, steps: int) -> None:
        taken.append(step)
        if step == len(taken) <= 2:
            raise Stop

    for _ in range(2):
        with pytest.raises(Stop):
            take(measure, Model(encoder, chosen, 0, stop, state), every_step)
    score = take(measure, Model(encoder, chosen, 0, stop, state), every_step)
    assert taken[:3] == [1, 2, 3] and replace(score, seconds=0) == replace(whole, seconds=0) and score.peak_memory_bytes


@pytest.mark.parametrize("kind", TRAINED)
def test_rows_cap_training_alone_and_change_the_scores(kind: str, words: dict[str, str], encoder: Path) -> None:
    whole = options(words[kind], epochs=4.0, **{**TRAINED[kind], "folds": None})
    few = whole.model_copy(update={"rows": 6})
    (all_rows,), (some,) = (tasks.read(chosen).tasks for chosen in (whole, few))
    assert all_rows.cost(SIZES, whole, encoder).steps > some.cost(SIZES, few, encoder).steps == 4
    assert some.fingerprint != all_rows.fingerprint and some.tests == all_rows.tests  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [*ENCODED[:-1], "minimal_pairs"])
def test_one_kind_alone_accepts_a_word(kind: str, words: dict[str, str]) -> None:
    word = words[kind]
    kinds = {plug.module.__name__.rpartition(".")[2] for plug in tasks._kinds()
             if word.lower() in plug.names or plug.call("accepts", False, word)}  # fmt: skip
    assert kinds == {kind}


def test_the_word_for_a_suite_goes_before_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("glue", "superglue", "babylm", "probes", "linear", "pairs", "squad1", "CoLA", "RTE-my"):
        Path(word).mkdir()
        assert tasks._selected(word)[0] != tasks._selected(f"./{word}")[0], word


def test_a_file_is_chosen_whole_or_by_name_and_its_hash_is_part_of_its_scores(words: dict[str, str]) -> None:
    Path("two.py").write_text(OWN.replace('return [("odd', 'return [("other", "s", "accuracy", ""), ("odd', 1))
    digests = []
    for chosen in (options("./own_task.py"), options("own_task.py:Odd-One-Out"), options("./two.py:odd-one-out")):
        (measure,) = tasks.load(chosen).tasks
        assert measure.name == "odd-one-out" and measure.baselines() == {"chance": pytest.approx(100 / 3)}
        digests.append(score_digest(measure, chosen))
    assert digests[0] == digests[1] != digests[2]
    both = tasks.read(options("own.jsonl", "./own_task.py", "superglue:rte"))
    assert [measure.name for measure in both] == ["own", "odd-one-out", "superglue:rte"]
    assert not Path("__pycache__").exists(), "nothing is written beside the file"


def test_a_stranger_has_defaults_for_what_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "least.py"
    path.write_text(
        "from workbench.tasks import Measure, Cost, Scores\n"
        "def names(): return [('least', 'mine', 'score', 'nothing')]\n"
        "class Least(Measure):\n"
        "    name, suite, metric, act, fingerprint = 'least', 'mine', 'score', 'counting', 'x'\n"
        "    def cost(self, spec, options, tokenizer): return Cost(1)\n"
        "    def measure(self, model, host): return Scores({'all': {'score': 7.0}}, (0, 1))\n"
        "def load(names, options, text): return [Least()]\n"
    )
    chosen = TasksSpec(names=(str(path),))
    (measure,) = tasks.load(chosen).tasks
    score = take(measure, Model(tmp_path, chosen), HOST)
    assert (score.value, score.baselines, measure.seeds(chosen)) == (7.0, {}, 1)
    assert list(score.finetune) == ["source"] and len(score.finetune["source"]) == 16


FILE = """from workbench.tasks import Measure, Cost, Scores
def names(): return NAMES
class Own(Measure):
    name, suite, metric, act, fingerprint = 'own', 'mine', 'score', 'counting', 'x'
    def cost(self, spec, options, tokenizer): return COST
    def measure(self, model, host): return FOUND
    def baselines(self, cache=None): return BASELINES
def load(names, options, text): return LOADED
"""
USUAL = {
    "NAMES": "[('own', 'mine', 'score', 'x')]", "COST": "Cost(1)", "FOUND": "Scores({'all': {'score': 1.0}}, (0, 1))",
    "BASELINES": "{}", "LOADED": "[Own()]",
}  # fmt: skip
FAULTS: list[tuple[dict[str, str], str]] = [
    ({"NAMES": "['own']"}, r"names\(\) returns \['own'\], and must return a list of \(name, suite, metric, summary\)"),
    ({"NAMES": "3"}, r"names\(\) returns 3, and must"),
    ({"NAMES": "1 / 0"}, r"line 2: names raised ZeroDivisionError"),
    ({"LOADED": "[3]"}, r"load\(\) returns a int without a text `name`; write a subclass of workbench.tasks.Measure"),
    ({"LOADED": "Own()"}, r"load\(\) returns <.*Own object.*>, and must return a list of measures"),
    ({"LOADED": "undefined"}, r"line 8: load raised NameError: name 'undefined' is not defined"),
    ({"LOADED": "(1 / 0 for _ in 'ab')"}, r"line 8: load raised ZeroDivisionError"),
    ({"LOADED": "[]"}, r"load\(\) returns no measure for own"),
    ({"BASELINES": "[]"}, r"baselines\(\) of own returns \[\], and must return a Mapping"),
    ({"COST": "5"}, r"cost\(\) of own returns 5, and must return a Cost"),
    ({"FOUND": "{}"}, r"measure\(\) of own returns \{\}, and must return a Scores"),
    ({"FOUND": "Scores({'all': {'other': 1.0}}, (0, 1))"}, r"measure\(\) of own has no value of 'score' in the first"),
    ({"FOUND": "Scores({'all': {'score': 'high'}}, (0, 1))"}, r"measure\(\) of own has the value 'high' for score"),
    ({"FOUND": "model.nothing"}, r"line 6: measure\(\) of own raised AttributeError: .*no attribute 'nothing'"),
]


@pytest.mark.parametrize(("changed", "message"), FAULTS, ids=lambda each: str(each)[:40])
def test_a_faulty_file_is_refused_in_a_sentence(
    changed: dict[str, str], message: str, tmp_path: Path, encoder: Path
) -> None:
    text = FILE
    for part, value in (USUAL | changed).items():
        text = text.replace(part, value)
    path = tmp_path / "größe.py"
    path.write_text(text)
    chosen = TasksSpec(names=(str(path),))
    with pytest.raises(InputError, match=rf"(?s)^task {re.escape(str(path))}.*{message}") as refused:
        (measure,) = tasks.load(chosen).tasks
        measure.cost(SIZES, chosen, encoder)
        take(measure, Model(encoder, chosen), HOST)
    assert "\n" not in str(refused.value)


def test_a_value_that_is_not_finite_diverges(tmp_path: Path) -> None:
    path = tmp_path / "nan.py"
    text = FILE
    for part, value in (USUAL | {"FOUND": "Scores({'all': {'score': float('nan')}}, (0, 1))"}).items():
        text = text.replace(part, value)
    path.write_text(text)
    chosen = TasksSpec(names=(str(path),))
    with pytest.raises(Diverged, match=r"measure\(\) of own is nan for score of all"):
        take(tasks.read(chosen).tasks[0], Model(tmp_path, chosen), HOST)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("./nowhere.py", r"^--tasks \./nowhere\.py: there is no such file$"),
        ("own_task.py:odd-one-oat", r"own_task\.py has no task 'odd-one-oat'; did you mean 'odd-one-out'\?"),
        ("broken.py", r"broken\.py, line 1: SyntaxError"),
        ("empty.py", r"empty\.py has no names and no load; a task needs names, load"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(word: str, message: str, words: dict[str, str]) -> None:
    Path("broken.py").write_text("def names(:\n")
    Path("empty.py").write_text("")
    with pytest.raises(InputError, match=message):
        tasks.read(options(word))


def test_a_kind_of_an_installed_package_is_found_by_its_names(
    words: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "site"
    (package / "odd_tasks-1.0.dist-info").mkdir(parents=True)
    (package / "odd_tasks-1.0.dist-info/METADATA").write_text("Name: odd-tasks\nVersion: 1.0\n")
    (package / "odd_tasks-1.0.dist-info/entry_points.txt").write_text("[workbench.tasks]\nodd = odd_tasks\n")
    (package / "odd_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(package))
    chosen = options("ODD-one-out")
    (measure,) = tasks.load(chosen).tasks
    (by_path,) = tasks.load(options("./own_task.py")).tasks
    assert score_digest(measure, chosen) == score_digest(by_path, chosen), "the same file, the same scores"
    assert "odd-one-out" in [row["name"] for row in tasks.known()]
    (package / "odd_tasks.py").write_text("raise ValueError('broken')\n")
    monkeypatch.delitem(sys.modules, "odd_tasks")
    assert [measure.name for measure in tasks.read(options("own.jsonl"))] == ["own"], "others go on"
    assert re.search(r"odd_tasks.*ValueError: broken; its tasks are left out", caplog.text)


def test_a_setting_is_refused_only_if_a_task_says_what_it_reads(words: dict[str, str]) -> None:
    tasks.check_settings(options("./own_task.py"), {"tasks.folds": 5})
    Path("own_task.py").write_text(OWN + "\n\ndef reads(word, options):\n    return ['length']\n")
    with pytest.raises(InputError, match=r"--set tasks.folds=5 has no effect on --tasks ./own_task.py"):
        tasks.check_settings(options("./own_task.py", folds=5), {"tasks.folds": 5})
    tasks.check_settings(options("./own_task.py", length=16), {"tasks.length": 16})


def test_nothing_asks_for_the_type_of_a_measure() -> None:
    package = Path(tasks.__file__).parents[1]
    names = "PairSet|Tagging|Squad|LinearProbe|Embedding|Task"
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(rf"isinstance\([^)]*[ (|](?:{names})\b", line)
    ]
    assert found == []


SCORE = Score(
    "tag:x", "tagging", "accuracy", 0, 50.0, {"test": {"accuracy": 50.0}}, {}, 1, 2, 3, 0.1, {}, "d", "12345678",
    details={"scheme": ""}, files={".test.conll": "å A B\n\n", ".dev.conll": "b A A\n\n"},
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "some-run").mkdir()
    return RunDir(tmp_path / "some-run")


@pytest.mark.parametrize("place", ["", "points/00000100/"])
def test_files_lie_in_the_predictions_of_the_run(place: str, run: RunDir) -> None:
    (run.path / place).mkdir(parents=True, exist_ok=True)
    content = keep(run, f"{place}tag-x-12345678-0.json", SCORE, {"encoder": "abc"})
    names = [f"{place}predictions/tag-x-12345678-0.{part}.conll" for part in ("test", "dev")]
    assert list(content["files"]) == names
    files = {name: (run.path / name).read_bytes() for name in names}
    assert files[names[0]] == "å A B\n\n".encode()
    assert content["files"] == {name: entry(data) for name, data in files.items()}
    assert [path.name for path in (run.path / place / "scores").iterdir()] == ["tag-x-12345678-0.json"]
    written = json.loads((run.path / place / "scores" / "tag-x-12345678-0.json").read_text())
    assert written["encoder"] == "abc" and written["scheme"] == "" and written.items() >= content.items()


def test_scores_without_files_are_as_they_were(run: RunDir) -> None:
    plain = Score(**{**SCORE.__dict__, "files": {}})
    assert keep(run, "a.json", plain, {}) == plain.to_json() and "files" not in plain.to_json()


def test_a_full_disk_leaves_no_score(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_directory.write_atomic

    def full(path: Path, *arguments: Any) -> None:
        if path.name.endswith(".dev.conll"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, *arguments)

    monkeypatch.setattr(run_directory, "write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        keep(run, "tag-x-12345678-0.json", SCORE, {})
    assert [path.name for path in run.path.rglob("*") if path.is_file()] == []  # nor a part of its files
    monkeypatch.setattr(run_directory, "write_atomic", real)
    assert keep(run, "tag-x-12345678-0.json", SCORE, {})["value"] == 50.0


KEYWORD_SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)


def test_score_names_follow_what_decides_the_score(keyword: Task) -> None:
    name = score_name(keyword, KEYWORD_SPEC, 3)
    assert name == f"keyword-{score_digest(keyword, KEYWORD_SPEC)}-3.json"
    same = KEYWORD_SPEC.model_copy(
        update={"names": ("keyword", "other"), "seeds": 9, "glue": "elsewhere", "epochs": 6.0}
    )
    assert score_name(keyword, same, 3) == name
    for changes in ({"lr": 1e-3}, {"epochs": 2.0}, {"rows": 5}, {"doubled": True}, {"batch": 16}):
        assert score_name(keyword, KEYWORD_SPEC.model_copy(update=changes), 3) != name
    assert score_name(limited(keyword, 99), KEYWORD_SPEC, 3) != name
    assert "/" not in score_name(replace(keyword, name="../a b"), KEYWORD_SPEC, 0)


def test_json_holds_everything_a_report_needs(encoder: Path, keyword: Task) -> None:
    score = take(replace(keyword, epochs=0.5), Model(encoder, KEYWORD_SPEC, 1), HOST)
    found = json.loads(json.dumps(score.to_json(), allow_nan=False))
    expected = {"format": 1, "task": "keyword", "suite": "table", "metric": "accuracy", "seed": 1, "test_rows": 101}
    assert found.items() >= expected.items()
    assert found["finetune"]["epochs"] == 0.5 and found["finetune"]["lr"] == 3e-3
    assert found["data"] == keyword.fingerprint and len(found["digest"]) == 8 and found["seconds"] > 0


# ---- Every kind of measure has its function, and a name for each score that a run should have ----

ROWS = Examples(["a", "b"], None, [0, 1])
WORDS = Tagged([["a"]], [[0]])
MEASURES: list[Measure] = [
    Task("t", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, ROWS, {"dev": ROWS}),
    Tagging("tag:x", ("A",), 1, "", WORDS, {"test": WORDS}),
    LinearProbe("linear:x", "texts", ("x", "y"), "accuracy", ("accuracy",), ROWS, {"dev": ROWS}),
    Embedding("similarity:x", SIMILARITY, {"test": Examples(("a",), ("b",), (1.0,))}),
    PairSet("pairs:x", "minimal-pairs", ["a"], ["b"], {"paradigm": ["p"]}),
    Squad("squad1", False, Questions((), ()), {"dev": Questions((), ())}),
]
SPEC_MEASURES = TasksSpec(seeds=3)


def test_a_run_should_have_a_score_for_each_seed_or_one_where_nothing_is_drawn() -> None:
    listed = list(expected(Suite(tuple(measure for measure in MEASURES)), SPEC_MEASURES))
    seeds = {measure.name: [seed for other, seed, _ in listed if other is measure] for measure in MEASURES}
    assert {name for name, each in seeds.items() if each == [0, 1, 2]} == {"t", "tag:x", "squad1"}
    assert all(each == [0] for name, each in seeds.items() if name not in ("t", "tag:x", "squad1"))
    assert [name for *_, name in listed] == [score_name(measure, SPEC_MEASURES, seed) for measure, seed, _ in listed]
    assert len({name for *_, name in listed}) == len(listed) == 3 * 3 + 3
