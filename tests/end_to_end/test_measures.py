"""`workbench run` with each kind of measure, from data to report: scores, predictions, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest

from workbench.store.run_store import RunStore

from .conftest import SETS, Command

ANIMALS = ["cat", "dog", "bird", "fish", "horse", "cow", "goat", "duck", "hen", "fox"]
VERBS = ["sees", "likes", "finds", "leaves", "knows", "hears", "follows", "helps", "feeds", "meets"]
PLACES = ["garden", "river", "hill", "bridge", "house", "road", "field", "barn", "lake", "wood"]


@pytest.fixture(scope="module")
def folder(workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two objectives and their untrained encoder, measured on pairs and on a folder of pairs."""
    place = tmp_path_factory.mktemp("pairs")
    draw = random.Random(0)

    def sentence() -> str:
        one, other = draw.sample(ANIMALS, 2)
        return f"The {one} {draw.choice(VERBS)} the {other} near the {draw.choice(PLACES)}."

    documents = [" ".join(sentence() for _ in range(4)) for _ in range(260)]
    (place / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (place / "mine").mkdir()
    rows = [{"sentence_good": (text := sentence()), "sentence_bad": text.replace("The", "the the")} for _ in range(20)]
    (place / "mine" / "the.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = workbench(*words(), cwd=place, ends=0)
    (place / "stderr.txt").write_text(done.stderr)
    return place


def words(*more: str) -> list[str]:
    given = ["run", "ablation", "--objective", "bert-mlm", "--objective", "rtd", "--corpus", "text.txt"]
    return [*given, "--tasks", "pairs,mine", "--budget", "steps=4", *SETS, "--set", "data.held_out=0.5", *more]


def scores(folder: Path) -> dict[tuple[str, str], dict[str, object]]:
    found = [json.loads(path.read_text()) for path in folder.glob("runs/*/scores/*.json")]
    return {(str(score["run_id"]).rsplit("-nano", 1)[0], score["task"]): score for score in found}


def test_every_run_has_one_score_a_task_with_its_scorer(folder: Path) -> None:
    found = scores(folder)
    assert set(found) == {(run, task) for run in ("untrained", "bert-mlm", "rtd") for task in ("pairs", "mine")}
    assert {(run, score["scorer"]) for (run, _), score in found.items()} == {
        ("untrained", "pll"), ("bert-mlm", "pll"), ("rtd", "originality"),
    }  # fmt: skip
    for (_, task), score in found.items():
        assert 0 <= float(str(score["value"])) <= 100 and score["heads"] and score["encoder"] and score["seed"] == 0
        levels = score["values"]
        assert isinstance(levels, dict)
        assert set(levels["kind"]) == {"exchange", "order", "replace"} if task == "pairs" else levels["paradigm"]


def test_the_report_tells_how_sentences_were_scored(folder: Path) -> None:
    page = next(folder.glob("reports/*/index.html")).read_text()
    assert "Scorers differ between arms" in page and "originality (RTD)" in page
    assert "originality" in next(folder.glob("reports/*/scores.csv")).read_text()


def test_the_same_command_measures_nothing_again_and_heads_are_covered(folder: Path, workbench: Command) -> None:
    before = {path: path.read_bytes() for path in folder.glob("runs/*/scores/*.json")}
    again = workbench(*words(), cwd=folder)
    assert again.returncode == 0 and "scores in" not in again.stderr
    assert {path: path.read_bytes() for path in folder.glob("runs/*/scores/*.json")} == before
    for run in folder.glob("runs/*/manifest.json"):
        assert "heads/model.safetensors" in run.read_text()
    assert workbench("verify", "runs", cwd=folder).returncode == 0


def test_a_run_without_heads_is_refused_in_a_sentence(folder: Path, workbench: Command, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    place = tmp_path / "copy"
    run = next(place.glob("runs/rtd*"))
    shutil.rmtree(run / "heads")
    done = workbench("evaluate", run / "encoder", "--tasks", "mine", cwd=place)
    assert done.returncode == 2 and "has no folder heads" in done.stderr and "Traceback" not in done.stderr


def test_evaluate_scores_the_encoder_of_a_run(folder: Path, workbench: Command) -> None:
    run = next(folder.glob("runs/rtd*"))
    done = workbench("evaluate", run / "encoder", "--tasks", "mine", "--json", cwd=folder, ends=0)
    (score,) = json.loads(done.stdout)
    assert score["value"] == scores(folder)["rtd", "mine"]["value"] and score["scorer"] == "originality"


def test_a_corpus_without_a_held_out_part_gives_one_up(folder: Path, workbench: Command) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", "text.txt", "--tasks", "pairs", "--dry-run"]
    done = workbench(*words, *SETS, cwd=folder)
    assert done.returncode == 0 and "--set data.held_out=0.02 is in effect" in done.stderr


def test_the_plan_says_what_scores_during_training_cost(folder: Path, workbench: Command) -> None:
    """The text of the plan and its JSON, for text that is prepared already; nothing is trained or written."""
    before = sorted(folder.glob("runs/**/*"))
    told = workbench(*words("--evaluate-at", "log:6", "--dry-run"), cwd=folder, ends=0)
    last = told.stdout.splitlines()[-1]
    assert (
        last.startswith("scores during training: minimal-pairs at 1 to 2 points (at most ")
        and " pairs at 1 to 2 points" in last
    )
    facts = json.loads(workbench(*words("--evaluate-at", "log:6", "--dry-run", "--json"), cwd=folder).stdout)
    assert [row["suite"] for row in facts["points"]] == ["minimal-pairs", "pairs"]
    assert all(row["all_points"] > row["one_point"] > 0.05 for row in facts["points"])
    short = workbench(*words("--evaluate-at", "log:2", "--dry-run"), cwd=folder).stdout.splitlines()[-1]
    assert short.endswith(": none, because the run ends before the first point of --evaluate-at log:2")
    auto = workbench(*words("--dry-run"), cwd=folder).stdout.splitlines()[-1]
    assert auto.startswith("scores during training: no point of minimal-pairs (one costs ")
    assert sorted(folder.glob("runs/**/*")) == before


def test_words_for_points_that_cannot_be_used_are_refused(workbench: Command, folder: Path) -> None:
    for given, why in (
        (("--evaluate-at", "sometimes"), "must be auto, none, words, or log:N"),
        (("--evaluate-at", "log:2", "--set", "tasks.at=none"), "contradict each other"),
    ):
        done = workbench(*words(*given), cwd=folder)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") <= 2, done.stderr


SENTENCES = ["the cat sees a dog", "one bird finds the garden", "my horse leaves this fish"]
TAGS = dict.fromkeys(("the", "a", "my", "this"), "DET") | dict.fromkeys(("sees", "finds", "leaves"), "VERB")
TAGS["one"] = "NUM"


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    for part, turns in (("train", 8), ("test", 3)):
        rows = []
        for number in range(turns * len(SENTENCES)):
            words = SENTENCES[number % len(SENTENCES)].split()
            words = words[number % 4 :] + words[: number % 4]
            lines = [f"{n}\t{w}\t_\t{TAGS.get(w, 'NOUN')}" + "\t_" * 6 for n, w in enumerate(words, 1)]
            rows.append("\n".join(lines) + "\n")
        (folder / f"en_toy-ud-{part}.conllu").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_linear_probes_from_run_to_report(
    workbench: Command, text: Path, table: Path, tagged: Path, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", f"linear:{table},{tagged}"]
    words += ["--budget", "steps=5", "--seeds", 2, *SETS, "--set", "tasks.control=true", "--json"]
    done = workbench(*words, cwd=tmp_path, ends=0)
    scores = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/scores/*.json")]
    assert len(scores) == 2 * 2 * 2  # one for each task, run and its untrained encoder, however many tasks.seeds
    assert {(score["task"], score["suite"], score["seed"]) for score in scores} == {
        ("linear:animals", "linear", 0), ("linear:en_toy-ud-pos", "linear", 0),
    }  # fmt: skip
    for score in scores:
        assert list(score["layers"]) == ["0", "1", "2", "mixed"] and set(score["baselines"]) == {
            "majority",
            "bag-of-words",
        }
        assert ("control" in score["layers"]["mixed"]) == (score["task"] == "linear:en_toy-ud-pos")
        assert score["value"] == next(iter(score["layers"]["mixed"]["values"].values()))[score["metric"]]
    report = tmp_path / json.loads(done.stdout)["report"]
    with open(report.parent / "tasks.csv", encoding="utf-8") as file:
        rows = [(row["task"], row["arm"]) for row in csv.DictReader(file)]
    assert ("linear:en_toy-ud-pos", "bert-mlm") in rows and ("linear:animals", "untrained") in rows
    assert (
        "linear:en_toy-ud-pos" in report.read_text() and "bag-of-words" in (report.parent / "baselines.csv").read_text()
    )
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/scores/*.json")}
    assert workbench(*words, cwd=tmp_path).returncode == 0
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/scores/*.json")}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1\tthe\n", "line 1: 2 columns, and CoNLL-U has 10"),
        ("\n" * 9, "holds no tagged sentences"),
        ("1\tthe\t_\tDET" + "\t_" * 6 + "\n", "too few sentences to train and to test on"),
    ],
)
def test_a_file_that_is_no_tagged_text_is_refused(
    content: str, told: str, workbench: Command, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.conllu").write_text(content, encoding="utf-8")
    done = workbench("run", "ablation", "--corpus", text, "--tasks", tmp_path / "bad.conllu", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


SPANS = ("cat", "dog", "bird", "horse", "fish")
TAGGED = ["the cat sees a dog", "one bird finds the garden", "my horse leaves this fish", "it rains"]


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """Return a folder of sentences in BIOES in which animals are spans, the word before each belonging to its span."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    for part, turns in (("train", 12), ("dev", 2), ("test", 4)):
        blocks = []
        for number in range(turns * len(TAGGED)):
            words = TAGGED[number % len(TAGGED)].split()
            words += [f"{part}{number}"] if number % len(TAGGED) else []  # the first sentence is repeated
            ends = [word in SPANS for word in words]
            tags = [
                "E-ANIMAL" if end else "B-ANIMAL" if after else "O"
                for end, after in zip(ends, [*ends[1:], False], strict=True)
            ]
            blocks.append("\n".join(map(" ".join, zip(words, tags, strict=True))))
        (folder / f"{part}.txt").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder


def test_tagging_from_run_to_report(workbench: Command, text: Path, chunks: Path, tmp_path: Path) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", f"tag:{chunks}"]
    words += ["--budget", "steps=5", "--seeds", 1, *SETS, "--set", "tasks.seeds=1", "--set", "tasks.epochs=2", "--json"]
    done = workbench(*words, cwd=tmp_path, ends=0)
    files = sorted(tmp_path.glob("runs/*/scores/*.json"))
    assert len(files) == 2  # of the run and of its untrained encoder
    for path in files:
        score = json.loads(path.read_text())
        assert (score["task"], score["suite"], score["scheme"]) == ("tag:chunks", "tagging", "BIOES")
        assert list(score["types"]) == ["ANIMAL"] and set(score["baselines"]) == {"majority", "word-lookup"}
        assert list(score["files"]) == [f"predictions/{path.stem}.{part}.conll" for part in ("test", "dev")]
        written = (path.parents[1] / f"predictions/{path.stem}.test.conll").read_bytes()
        stated = score["files"][f"predictions/{path.stem}.test.conll"]
        assert stated == {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}
        rows = [line.split() for line in written.decode().splitlines() if line]
        assert len(rows) == score["test_rows"] and {gold for _, gold, _ in rows} == {"B-ANIMAL", "I-ANIMAL", "O"}
        right = sum(gold == guess for _, gold, guess in rows)
        assert 100 * (right / len(rows)) == score["values"]["test"]["accuracy"]
    assert all(run.damage is None and run.state == "done" for run in RunStore(tmp_path / "runs").runs())
    report = tmp_path / json.loads(done.stdout)["report"]
    page = report.read_text()
    assert "tag:chunks: micro F1 of spans as conlleval and seqeval" in page and "in BIOES." in page
    assert "Tagging (tag:chunks): test.txt, first at line 1: 4 of 16 sentences of test are also training" in page
    with open(report.parent / "baselines.csv", encoding="utf-8") as file:
        assert ("tag:chunks", "word-lookup") in {(row["task"], row["baseline"]) for row in csv.DictReader(file)}
    kept = [*tmp_path.glob("runs/*/scores/*"), *tmp_path.glob("runs/*/predictions/*")]
    times = [path.stat().st_mtime_ns for path in kept]
    assert workbench(*words, cwd=tmp_path).returncode == 0
    assert times == [path.stat().st_mtime_ns for path in kept]

    predictions = files[0].parents[1] / f"predictions/{files[0].stem}.test.conll"
    predictions.write_text(predictions.read_text().replace("O", "o", 1))
    verified = workbench("verify", "runs", cwd=tmp_path)
    assert verified.returncode == 1 and "has changed since it was written" in verified.stdout
    assert f"predictions/{predictions.name}" in verified.stdout


def test_an_encoder_is_evaluated_with_its_predictions(
    workbench: Command, store: Path, chunks: Path, tmp_path: Path
) -> None:
    encoder = shutil.copytree(next(store.glob("runs/bert-mlm-*/encoder")), tmp_path / "model")
    tasks = ["--tasks", f"tag:{chunks}", "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]
    done = workbench("evaluate", encoder, *tasks, "--runs", "kept", "--json", cwd=tmp_path, ends=0)
    assert "sentences of tagged words read in windows of" in done.stderr
    (score,) = [json.loads(path.read_text()) for path in tmp_path.glob("kept/*/scores/*.json")]
    assert score["read_at"] == "first piece of each word" and score["settings"]
    assert {f"predictions/{path.name}" for path in tmp_path.glob("kept/*/predictions/*.conll")} == set(score["files"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("the O\ncat\n", "train.txt, line 2: one column"),
        ("the O\ncat ANIMAL\n\nB B-X\n", "train.txt, line 2: tag 'ANIMAL' is not O, B-TYPE"),
        ("the O\n\ncat O\n", "every training word has the tag 'O'"),
        ("", "train.txt holds no tagged sentences"),
    ],
)
def test_damaged_files_are_refused(
    content: str, told: str, workbench: Command, text: Path, chunks: Path, tmp_path: Path
) -> None:
    (chunks / "train.txt").write_text(content, encoding="utf-8")
    done = workbench("run", "ablation", "--corpus", text, "--tasks", f"tag:{chunks}", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


ZOO = ("cat", "dog", "bird", "horse")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with COPA in the official layout, a table of similar sentences and a collection."""
    for part, count in (("train", 16), ("val", 6)):
        rows = [
            {"premise": f"The {ZOO[n % 4]} sleeps.", "choice1": f"It is quiet {part}.", "choice2": "It is loud.",
             "question": "effect", "label": n % 2, "idx": n} for n in range(count)
        ]  # fmt: skip
        write_rows(tmp_path / "superglue/COPA" / f"{part}.jsonl", rows)
    pairs = [f"the {a} sees it,the {b} sees it,{5 * (a == b) + n / 10}" for n, a in enumerate(ZOO) for b in ZOO]
    (tmp_path / "alike.csv").write_text("sentence1,sentence2,score\n" + "\n".join(pairs) + "\n")
    write_rows(
        tmp_path / "zoo/corpus.jsonl",
        [{"_id": f"d{n}", "text": f"a {name} and more"} for n, name in enumerate(ZOO)],
    )
    write_rows(tmp_path / "zoo/queries.jsonl", [{"_id": f"q{n}", "text": f"the {name}"} for n, name in enumerate(ZOO)])
    grades = "".join(f"q{n}\td{n}\t1\n" for n in range(len(ZOO)))
    (tmp_path / "zoo/qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}q0\tunknown\t1\n")
    return tmp_path


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_from_run_to_report(workbench: Command, text: Path, data: Path) -> None:
    names = "superglue,similarity:alike.csv,retrieval:zoo"
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", names, "--evaluate-at", "log:1"]
    words += ["--budget", "steps=6", "--seeds", 1, *SETS, "--set", "tasks.superglue=superglue"]
    done = workbench(*words, "--set", "tasks.seeds=1", "--set", "tasks.epochs=2", "--json", cwd=data, ends=0)
    assert "6 rows of the 6 of val" not in done.stderr
    scores = [json.loads(path.read_text()) for path in sorted(data.glob("runs/*/scores/*.json"))]
    final = [score for score in scores if "point" not in score]
    named = {(score["task"], score["suite"], score["metric"]) for score in final}
    assert named == {
        ("superglue:copa", "superglue", "accuracy"),
        ("similarity:alike", "similarity", "spearman"),
        ("retrieval:zoo", "retrieval", "ndcg_10"),
    }
    copa = next(score for score in final if score["suite"] == "superglue")
    assert (copa["train_rows"], copa["test_rows"], set(copa["baselines"])) == (16, 6, {"majority", "bag-of-words"})
    report = data / json.loads(done.stdout)["report"]
    page = report.read_text()
    assert "Retrieval (retrieval:zoo): 1 row about a document that is not in the corpus, and counts as never" in page
    with open(report.parent / "baselines.csv", encoding="utf-8") as file:
        rows = {(row["task"], row["baseline"]) for row in csv.DictReader(file)}
    assert {("superglue:copa", "bag-of-words"), ("similarity:alike", "tf-idf"), ("retrieval:zoo", "tf-idf")} <= rows


def test_embeddings_are_fine_tuned_where_a_setting_says_so(workbench: Command, text: Path, data: Path) -> None:
    parts = [f"the {a},a {b},{4 * (a == b) + n},{'test' if n > 2 else 'train'}" for n, a in enumerate(ZOO) for b in ZOO]
    (data / "alike.csv").write_text("sentence1,sentence2,score,split\n" + "\n".join(parts) + "\n")
    (data / "zoo/qrels").mkdir()
    grades = [f"q{n}\td{n}\t1\n" for n in range(len(ZOO))]
    for part, rows in (("train", grades[:3]), ("test", grades[2:])):
        (data / f"zoo/qrels/{part}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--budget", "steps=6", "--seeds", 1, *SETS]
    words += ["--tasks", "similarity:alike.csv,retrieval:zoo", "--json"]
    done = workbench(*words, "--set", "tasks.embeddings=contrastive", "--set", "tasks.seeds=2", cwd=data, ends=0)
    scores = [json.loads(path.read_text()) for path in sorted(data.glob("runs/*/scores/*.json"))]
    trained = {score["task"]: score["train_rows"] for score in scores}
    assert len(scores) == 8 and all("point" not in score for score in scores)  # two tasks, two seeds, and untrained
    assert trained["retrieval:zoo"] == 3 and trained["similarity:alike"] == 12
    assert all(f"{part}, frozen" in score["values"] for score in scores for part in score["values"] if "," not in part)
    page = (data / json.loads(done.stdout)["report"]).read_text()
    assert "an encoder that was fine-tuned on 3 pairs with MultipleNegativesRankingLoss" in page
    assert "also trained on" not in page and "have the text of one to train on" not in page
    assert "1 has the text of one to train on, so the score is partly one of memory: q2" in page
    frozen = workbench(*words, cwd=data)  # the same runs, with other scores
    assert frozen.returncode == 0, frozen.stderr
    page = (data / json.loads(frozen.stdout)["report"]).read_text()
    assert "MultipleNegativesRankingLoss" not in page


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            "superglue:multirc",
            "task superglue:multirc is not available: no MultiRC/train.jsonl or MultiRC/val.jsonl in superglue",
        ),
        ("retrieval:superglue", "superglue has no corpus.jsonl or corpus.tsv"),
        ("similarity:zoo", "give STS-B, or a table"),
        ("choice:alike.csv", "no column 'premise' or 'question'"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(
    names: str, told: str, workbench: Command, text: Path, data: Path
) -> None:
    sets = ["--set", "tasks.superglue=superglue", *SETS] if names.startswith("superglue:") else SETS
    words = ["run", "ablation", "--corpus", text, "--tasks", names, *sets]
    done = workbench(*words, cwd=data)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not (data / "runs").exists() or not list(data.glob("runs/*/metrics.jsonl"))
