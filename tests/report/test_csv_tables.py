"""The CSV files of a report, their columns, and the scores as one long table."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import statistics as plain
from collections import defaultdict
from pathlib import Path
from typing import Any

import made
import numpy as np
import pandas as pd
import parsed
import pytest
from scipy import stats

from workbench.report import data_files, write
from workbench.report.load import run_files, study_tables
from workbench.store.run_store import RunStore

CONVENTIONS = ("paper", "paper-sparse", "matmul")
TASKS = ("package", "order", "next", "signature")


def uneven(root: Path) -> tuple[RunStore, str]:
    """Make a study of three budgets and five arms in which, as in practice, some scores are missing."""
    store, name = made.study(root, made.noisy(made.LEVELS), seeds=4, tunings=3, budgets=(30, 60, 240))
    made.scored(store.get(_run(store, "rtd", 240, 0)), "order", 7, 12.5)  # one more fine-tuning than the others
    (_score(store, "bert-mlm", 240, 3, "package", 0)).unlink()
    for tuning in range(3):
        (_score(store, "replace-mlm", 240, 1, "next", tuning)).unlink()  # no score on a task: in no mean
    return store, name


def _run(store: RunStore, arm: str, steps: int, seed: int) -> str:
    return made.spec_of(arm, seed, {"steps": steps}).name


def _score(store: RunStore, arm: str, steps: int, seed: int, task: str, tuning: int) -> Path:
    return store.root / _run(store, arm, steps, seed) / "scores" / f"{task}-ab12cd34-{tuning}.json"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("numbers")
    store, name = uneven(root / "runs")
    return root / "runs", write(store, name, root / "out")


class Truth:
    """All numbers computed again with dictionaries, loops and the t distribution."""

    def __init__(self, root: Path) -> None:
        self.values: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        self.spec: dict[str, dict[str, Any]] = {}
        self.done: dict[str, dict[str, Any]] = {}
        for folder in sorted(root.iterdir()):
            if not (folder / "spec.json").exists():
                continue
            run = folder.name
            self.spec[run] = json.loads((folder / "spec.json").read_text())["spec"]
            self.done[run] = json.loads((folder / "done.json").read_text())
            for file in (folder / "scores").iterdir():
                score = json.loads(file.read_text())
                self.values[run][score["task"]][score["seed"]] = score["value"]
        self.score = {
            run: plain.fmean(plain.fmean(found[task].values()) for task in TASKS)
            for run, found in self.values.items()
            if all(found[task] for task in TASKS)
        }

    def arm(self, run: str) -> tuple[str, str]:
        steps = self.spec[run]["budget"]["steps"]
        return ("none", "untrained") if steps == 0 else (f"{steps} steps", self.spec[run]["objective"])

    def seed(self, run: str) -> int:
        return self.spec[run]["seed"]

    def cells(self, scores: dict[str, float]) -> dict[tuple[str, str], dict[int, float]]:
        cells: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for run, score in scores.items():
            cells[self.arm(run)][self.seed(run)] = score
        return cells

    def task(self, task: str) -> dict[str, float]:
        return {run: plain.fmean(found[task].values()) for run, found in self.values.items() if found[task]}


def interval(values: list[float]) -> tuple[float, float]:
    half = stats.t.ppf(0.975, len(values) - 1) * plain.stdev(values) / math.sqrt(len(values))
    return plain.fmean(values) - half, plain.fmean(values) + half


def family(
    arms: dict[str, dict[int, float]], pairs: list[tuple[str, str]], reach: int
) -> dict[tuple[str, str], tuple[float, float, float, float, float]]:
    """Return half the interval, its degrees of freedom, p, adjusted p and the shared noise, by the report's rule."""
    names = list(arms)
    every = list(itertools.combinations(range(len(names)), 2))
    gaps = {
        (i, j): [arms[names[i]][s] - arms[names[j]][s] for s in sorted(arms[names[i]].keys() & arms[names[j]].keys())]
        for i, j in every
    }
    seeds = sorted({s for scores in arms.values() for s in scores})
    x = np.array([
        [float(names[i] == a) for i in range(len(names))] + [float(s == t) for t in seeds]
        for a, scores in arms.items() for s in scores
    ])  # fmt: skip
    shared_df = len(x) - int(np.linalg.matrix_rank(x))
    shared = sum(plain.variance(g) * (len(g) - 1) for g in gaps.values()) / sum(len(g) - 1 for g in gaps.values())
    design = np.array([[float(arm in pair) for arm in range(len(names))] for pair in every])
    solved = np.linalg.lstsq(design, np.array([plain.variance(gaps[pair]) for pair in every]), rcond=None)[0]
    each = [max(0.0, float(value)) for value in solved]
    found, p_shared = {}, {}
    for a, b in pairs:
        i, j = names.index(a), names.index(b)
        mine = gaps.get((i, j)) or gaps[j, i]
        n, mean = len(mine), abs(plain.fmean(mine))
        if len(names) > 3:
            own = max(each[i] + each[j], plain.variance(mine))
            welch = (each[i] + each[j]) ** 2 / ((each[i] ** 2 + each[j] ** 2) or 1.0) * (n - 1)
            own_df = max(n - 1, welch * (len(names) - 2) / (len(names) - 1))
        else:
            own, own_df = plain.variance(mine), n - 1
        both = [(shared, shared_df), (own, own_df)]
        half, df = max((stats.t.ppf(0.975, df) * math.sqrt(v / n), df) for v, df in both)
        p_shared[a, b], p_own = (2 * stats.t.sf(mean / math.sqrt(v / n), df) if v else 0.0 for v, df in both)
        found[a, b] = (half, df, max(p_shared[a, b], p_own), reach * p_own)
    worst, result = 0.0, {}
    for rank, key in enumerate(sorted(p_shared, key=p_shared.__getitem__)):
        worst = max(worst, min(1.0, (len(pairs) - rank) * p_shared[key]))
        half, df, p, by_own = found[key]
        result[key] = (half, df, p, max(worst, min(1.0, by_own)), math.sqrt(shared))
    return result


def close(text: str, value: float) -> bool:
    return float(text) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_table(report: tuple[Path, Path]) -> None:
    truth, rows = Truth(report[0]), parsed.sheet(report[1].parent / "table.csv")
    cells = truth.cells(truth.score)
    assert {(r["budget"], r["arm"]) for r in rows} == set(cells) and len(rows) == len(cells)
    bare = cells["none", "untrained"]
    for row in rows:
        mine = cells[row["budget"], row["arm"]]
        runs = row["runs"].split()
        assert {truth.seed(r) for r in runs} == set(mine)
        assert {truth.arm(r) for r in runs} == {(row["budget"], row["arm"])}
        assert int(row["seeds"]) == len(mine) and row["label"] == "probe score"
        assert close(row["score"], plain.fmean(mine.values())) and close(row["sd"], plain.stdev(mine.values()))
        low, high = interval(list(mine.values()))
        assert close(row["low"], low) and close(row["high"], high)
        medians = [
            plain.fmean(
                plain.median(values[task].values())
                for run, values in truth.values.items()
                if truth.arm(run) == (row["budget"], row["arm"]) and values[task]
            )
            for task in TASKS
        ]
        assert close(row["median"], plain.fmean(medians))
        for key in ("steps", "tokens", "seconds"):
            assert close(row[key], plain.fmean(truth.done[r][key] for r in runs))
        for convention in CONVENTIONS:
            column = f"flops_{convention}".replace("-", "_")
            assert close(row[column], plain.fmean(truth.done[r]["flops"][convention] for r in runs))
        assert close(row["finetune_seconds"], plain.fmean(1.5 * sum(map(len, truth.values[r].values())) for r in runs))
        if row["arm"] == "untrained":
            assert row["gain"] == ""
            continue
        gains = [mine[s] - bare[s] for s in mine]
        arms = {arm: scores for (budget, arm), scores in cells.items() if budget == row["budget"]} | {"bare": bare}
        half, df, p, adjusted, _ = family(arms, [(arm, "bare") for arm in made.ARMS], 5)[row["arm"], "bare"]
        mean = plain.fmean(gains)
        assert close(row["gain"], mean) and close(row["gain_low"], mean - half) and close(row["gain_high"], mean + half)
        assert close(row["gain_df"], df) and close(row["gain_p"], p) and close(row["gain_p_adjusted"], adjusted)
        assert int(row["gain_seeds"]) == len(gains)
        assert row["published"] == ""  # the paper has scores on GLUE, these are of probes


def test_pairs(report: tuple[Path, Path]) -> None:
    truth, rows = Truth(report[0]), parsed.sheet(report[1].parent / "pairs.csv")
    cells = truth.cells(truth.score)
    for budget in ("30 steps", "60 steps", "240 steps"):
        mine = {(r["a"], r["b"]): r for r in rows if r["budget"] == budget}
        assert {frozenset(key) for key in mine} == {frozenset(key) for key in itertools.combinations(made.ARMS, 2)}
        truths = family({arm: cells[budget, arm] for arm in made.ARMS}, list(mine), 4)
        for (a, b), row in mine.items():
            x, y = cells[budget, a], cells[budget, b]
            gaps = [x[s] - y[s] for s in sorted(x.keys() & y.keys())]
            half, df, p, adjusted, _ = truths[a, b]
            mean = plain.fmean(gaps)
            assert close(row["difference"], mean) and int(row["seeds"]) == len(gaps)
            assert close(row["low"], mean - half) and close(row["high"], mean + half) and close(row["df"], df)
            assert plain.fmean(x.values()) >= plain.fmean(y.values())
            assert close(row["p"], p) and close(row["p_adjusted"], adjusted)
            assert row["verdict"] == ("ahead" if adjusted < 0.05 else "not told apart")
            assert [truth.seed(r) for r in row["runs_a"].split()] == [truth.seed(r) for r in row["runs_b"].split()]


def test_tasks_and_baselines(report: tuple[Path, Path]) -> None:
    truth, rows = Truth(report[0]), parsed.sheet(report[1].parent / "tasks.csv")
    expected = {(t, *key) for t in TASKS for key in truth.cells(truth.task(t))}
    assert {(r["task"], r["budget"], r["arm"]) for r in rows} == expected
    for row in rows:
        means = truth.task(row["task"])
        mine = truth.cells(means)[row["budget"], row["arm"]]
        runs = row["runs"].split()
        low, high = interval(list(mine.values()))
        assert close(row["mean"], plain.fmean(mine.values())) and close(row["low"], low) and close(row["high"], high)
        tuned = [list(truth.values[r][row["task"]].values()) for r in runs]
        assert close(row["median"], plain.fmean(map(plain.median, tuned)))
        assert close(row["best"], plain.fmean(map(max, tuned)))
        assert int(row["finetunings"]) == sum(map(len, tuned)) and int(row["seeds"]) == len(mine) == len(runs)
        assert row["metric"] == made.PROBES[row["task"]]
        if row["arm"] != "untrained":
            bare = truth.cells(means)["none", "untrained"]
            assert close(row["gain"], plain.fmean(mine[s] - bare[s] for s in mine))
    baselines = parsed.sheet(report[1].parent / "baselines.csv")
    assert {(r["baseline"], r["task"]): float(r["value"]) for r in baselines} == {
        (name, task): value for name, value in (("majority", 40.0), ("bag-of-words", 55.0)) for task in (*TASKS, "mean")
    }


def test_noise(report: tuple[Path, Path]) -> None:
    truth, rows = Truth(report[0]), parsed.sheet(report[1].parent / "noise.csv")
    row = next(r for r in rows if r["budget"] == "60 steps" and r["task"] == "order")
    runs = [r for r in truth.values if truth.arm(r)[0] == "60 steps"]
    tuned = [list(truth.values[r]["order"].values()) for r in runs]
    assert close(row["sd_finetuning"], math.sqrt(plain.fmean(map(plain.variance, tuned))))
    cells = {a: v for (b, a), v in truth.cells(truth.task("order")).items() if b == "60 steps"}
    assert close(row["sd_pretraining"], math.sqrt(plain.fmean(plain.variance(c.values()) for c in cells.values())))
    gaps = [[x[s] - y[s] for s in x] for x, y in itertools.combinations(cells.values(), 2)]
    assert close(row["sd_paired"], math.sqrt(plain.fmean(map(plain.variance, gaps)))) and row["seeds"] == "4"
    assert row["df"] == "12"
    random, gap, sd = np.random.default_rng(5), float(row["smallest_gap"]), float(row["sd_paired"]) / math.sqrt(2)
    shown = 0
    for scores in random.normal(0, sd, (150, 5, 4)).tolist():
        arms = {str(i): {s: v + gap * (i == 0) for s, v in enumerate(row)} for i, row in enumerate(scores)}
        shown += family(arms, list(itertools.combinations(arms, 2)), 4)["0", "1"][3] < 0.05
    assert 0.7 <= shown / 150 <= 0.9  # 80 % and three standard errors


def test_runs_and_scores(report: tuple[Path, Path]) -> None:
    truth, rows = Truth(report[0]), parsed.sheet(report[1].parent / "runs.csv")
    assert {r["run_id"] for r in rows} == set(truth.spec)
    for row in rows:
        run = row["run_id"]
        assert (report[0] / row["path"] / "spec.json").is_file()
        assert int(row["seed"]) == truth.seed(run) and row["data_fingerprint"] == "fp" * 8
        assert row["spec_hash"] == json.loads((report[0] / run / "spec.json").read_text())["identity_sha"]
        assert row["score_probes"] == "" if run not in truth.score else close(row["score_probes"], truth.score[run])
    scores = parsed.sheet(report[1].parent / "scores.csv")
    assert len(scores) == sum(len(seeds) for found in truth.values.values() for seeds in found.values())
    for row in scores:
        file = json.loads((report[0] / row["path"]).read_text())
        assert close(row["value"], file["value"]) and row["task"] == file["task"]
        assert (int(row["fine_tuning_seed"]), row["fine_tuning_settings_hash"]) == (file["seed"], file["digest"])
    metrics = parsed.sheet(report[1].parent / "metrics.csv")
    assert {(r["split"], r["metric"]) for r in metrics if r["task"] == "order"} == {
        ("test", "matthews"),
        ("test", "f1"),
    }


def test_curves_are_means_of_whole_bins(report: tuple[Path, Path]) -> None:
    rows = parsed.sheet(report[1].parent / "curves.csv")
    run = _run(RunStore(report[0]), "rtd", 240, 0)
    mine = [r for r in rows if r["run_id"] == run]
    logged = [json.loads(line) for line in (report[0] / run / "metrics.jsonl").read_text().splitlines()]
    assert 60 <= len(mine) <= 120 and sum(int(float(r["rows"])) for r in mine) == 240
    for row in mine:
        inside = [x for x in logged if float(row["first_step"]) <= x["step"] <= float(row["last_step"])]
        assert len(inside) == int(float(row["rows"]))
        for metric in ("loss", "generator_accuracy", "discriminator_precision", "tokens"):
            values = [x[metric] for x in inside if x[metric] is not None]
            assert row[metric] == "" if not values else close(row[metric], plain.fmean(values))
        assert close(row["flops_matmul"], plain.fmean(x["flops"]["matmul"] for x in inside))


def test_page_shows_the_table_for_the_largest_budget(report: tuple[Path, Path]) -> None:
    truth, tree = Truth(report[0]), parsed.page(report[1])
    cells = {a: v for (b, a), v in truth.cells(truth.score).items() if b == "240 steps"}
    table = tree.by_id("tasks").find("table")[0]
    rows = [row for row in table.find("tbody")[0].find("tr") if "240 steps" in [cell.text for cell in row.find("td")]]
    titles = {row.find("code")[0].text if row.find("code") else row.find("th")[0].text for row in rows}
    ranked = sorted(cells, key=lambda arm: -plain.fmean(cells[arm].values()))
    assert len(titles) == len(rows) == len(ranked)
    for row, arm in zip(rows, ranked, strict=True):
        values = list(cells[arm].values())
        low, high = interval(values)
        score = row.find("td")[0].attributes
        assert (float(score["data-v"]), float(score["data-h"])) == pytest.approx(
            (plain.fmean(values), (high - low) / 2)
        )
        assert arm in row.find("th")[0].text
    for data in tree.find("td"):  # what is shown is what is meant, rounded
        shown = data.text.partition(" ")[0].replace("−", "-").replace("+", "").replace(",", "")
        if "data-v" in data.attributes and shown.replace(".", "").replace("-", "").isdigit() and " " not in data.text:
            places = len(shown.partition(".")[2])
            assert abs(float(shown) - float(data.attributes["data-v"])) <= 0.5 * 10**-places + 1e-9, data.text


def test_page_names_what_is_left_out(report: tuple[Path, Path]) -> None:
    run = _run(RunStore(report[0]), "replace-mlm", 240, 1)
    said = parsed.page(report[1]).by_id("warnings").text
    assert f"{run} has no score on next" in said
    assert "means of 2 to 4 fine-tuning seeds" in said
    assert "do not have the same seeds" in said and "Replace MLM 3 seeds" in said
    assert "not at equal compute" in said and "All-Tokens MLM spent 1.58 times the FLOPs of BERT MLM" in said


ROOT = Path(__file__).parents[2]


def test_counts_are_written_as_whole_numbers_and_means_as_they_are() -> None:
    table = pd.DataFrame({
        "steps": [4578.0, math.nan], "seed": [0.0, 1.0], "tokens": [0.5, 2.0], "flops_paper-sparse": [3.6e12, math.nan],
        "flops_matmul": [1e22, 2e22], "micro_batch": [32.0, 16.0], "value": [50.0, 49.5],
    })  # fmt: skip
    assert data_files.csv_bytes(data_files.for_files(table)).decode().splitlines() == [
        "steps,seed,tokens,flops_paper_sparse,flops_matmul,micro_batch,value",
        "4578,0,0.5,3600000000000,1e+22,32,50.0",
        ",1,2.0,,2e+22,16,49.5",
    ]


def test_kinds_and_hashes_have_names_that_say_so() -> None:
    table = pd.DataFrame(
        {"role": ["arm", "untrained"], "spec": "ab", "data": "cd", "code": "0.1", "flops.paper-sparse": 1}
    )
    made = data_files.for_files(table)
    assert list(made) == ["kind", "spec_hash", "data_fingerprint", "code_version", "flops_paper_sparse"]
    assert list(made["kind"]) == ["pre-training", "untrained"]


@pytest.mark.parametrize("folder", sorted({path.parent for path in (ROOT / "reports/kept").glob("*/*.csv")}))
def test_kept_tables_have_the_names_and_numbers_of_today(folder: Path) -> None:
    counts = data_files.COUNTS - {"step"}
    for path in folder.glob("*.csv"):
        names = list(pd.read_csv(path, nrows=0))
        assert names == [data_files.name_in_files(name) for name in names], path.name
        assert not {"role", "digest", "tuning_seed", "fine_tuning"} & set(names), path.name
        kept = pd.read_csv(path, usecols=lambda name: name in counts, dtype=str, keep_default_na=False)
        for name in kept:
            assert kept[name].str.fullmatch(r"-?\d*").all(), (path.name, name)


def test_every_column_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/columns.md").read_text()))
    made = {
        *study_tables.RUN, *run_files.STRETCH, *study_tables.BASELINE, *data_files.TABLE, *data_files.PAIRS,
        *data_files.TASKS, *data_files.NOISE,
    }  # fmt: skip
    of_scores = {data_files.OF_SCORES.get(name, name) for name in (*study_tables.SCORE, *study_tables.OTHER)}
    assert {data_files.name_in_files(name) for name in made} | of_scores <= named


@pytest.mark.parametrize("form", sorted(data_files.FORMS))
def test_export_holds_every_score_and_where_it_comes_from(ledger_store: tuple[RunStore, str], form: str) -> None:
    store, name = ledger_store
    data = data_files.export_scores(store, name, form)
    files = {(r.run_id, p.name): json.loads(p.read_text()) for r in store.runs() for p in r.path.glob("scores/*.json")}
    counted = [f for (run, _), f in files.items() if store.get(run).state == "done"]
    if form == "latex":
        lines = [line for line in data.decode().splitlines() if line.endswith(r"\\") and line.count("&") == 9]
        values = sorted(float(line.split("&")[6]) for line in lines if re.search(r"& +\d+\.\d\d &", line))
        assert values == sorted(round(f["value"], 2) for f in counted)
        assert r"\begin{longtable}" in data.decode()
        return
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(data.decode())))
    else:
        rows = [{k: str(v) for k, v in row.items()} for row in pd.read_parquet(io.BytesIO(data)).to_dict("records")]
    scored = [row for row in rows if row["task"] not in ("", "nan", "None")]
    assert sorted(float(row["value"]) for row in scored) == pytest.approx(sorted(f["value"] for f in counted))
    assert len(rows) == len(scored) + 1  # the run that diverged has a row, without a score
    for row in scored:
        record = json.loads((store.root / row["run_id"] / "spec.json").read_text())
        assert row["spec_hash"] == record["identity_sha"]
        assert row["data_fingerprint"] == record["spec"]["data"]["fingerprint"]
        assert row["code_version"] == "0.1.0 0123456789" and int(row["seed"]) == record["spec"]["seed"]
        untrained = record["spec"]["budget"]["steps"] == 0
        assert (row["kind"], row["steps"]) == (("untrained", "0") if untrained else ("pre-training", row["budget"][:2]))
        file = files[
            row["run_id"],
            next(name for run, name in files if run == row["run_id"] and name.startswith(f"{row['task']}-")),
        ]
        assert row["fine_tuning_seed"] in ("0", "1") and row["fine_tuning_settings_hash"] == file["digest"]


def test_names_that_latex_would_read_are_escaped(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    spec = made.spec_of("./a_b&c%.py", 0, {"steps": 8}, source="0" * 64)
    made.scored(made.trained(store, spec, 8), "order", 0, 60.0)
    text = data_files.export_scores(store, made.recorded(store, [spec]), "latex").decode()
    assert r"a\_b\&c\%" in text
