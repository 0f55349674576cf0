"""The page: it stands alone, shows names as names, says what it cannot tell, and survives what runs leave behind."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made
import parsed
import pytest

from workbench.errors import encodable
from workbench.report import data_files, write
from workbench.report.comparison import leaderboards
from workbench.report.formatting import power
from workbench.report.load import study_tables
from workbench.report.page import document, warnings
from workbench.report.results import Leaderboard
from workbench.report.verdict import verdicts
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore

TWO = ("rtd", "bert-mlm")
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "</title></svg></table><iframe src=//evil.example>",
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{2}$ ${x^{",
    "javascript:alert(1)",
    "=HYPERLINK(\"http://evil.example\")",
    "\u202egnp.exe \u0000\u0007\ud800 \u6f22\u5b57 \U0001f600",
    "&lt;b&gt; &amp; <!-- -->",
    "a" * 300,
)  # fmt: skip
NAMES = [name for name in HOSTILE if encodable(name)]  # a spec takes no words that a file cannot hold
ACTIVE = set(["iframe", "object", "embed", "form", "input", "button", "img", "base", "video", "audio", "foreignobject"])


def small(root: Path, truth: Any = None, **more: Any) -> tuple[RunStore, str]:
    options = {"arms": TWO, "seeds": 3, "tunings": 1, "tasks": ("order", "next"), "budgets": (60,)} | more
    return made.study(root / "runs", truth or made.noisy(made.LEVELS), **options)


def said(page: Path) -> str:
    return " ".join(parsed.page(page).text.split())


def found_in(store: RunStore, name: str) -> tuple[list[Leaderboard], str, str]:
    """Boards, the verdict and warnings without the figures, which take most of the time."""
    read = study_tables.read_study(store, name)
    found = leaderboards(read)
    told = " ".join(map(str, verdicts(found, read)))
    return found, told, " ".join(each.reason for each in warnings.cautions(read, found, {}))


def sentence(page: Path) -> str:
    return " ".join(parsed.page(page).find("h1")[0].text.split())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    store, name = made.study(root / "runs", made.noisy(made.LEVELS), budgets=(60, 240), seeds=3)
    return write(store, name, root / "out")


# -- it stands alone


def asks_nothing(path: Path) -> None:
    """Nothing from elsewhere, the one style sheet and the one script allowed by their hashes, no two ids alike."""
    tree = parsed.page(path)
    data, script = tree.find("script")
    assert data.attributes == {"type": "application/json", "id": "data"} and script.attributes == {}
    assert set(json.loads(data.text)) == {"x", "charts", "labels", "short", "arms"}
    assert "http" not in script.text.replace("http://www.w3.org/2000/svg", "") and "innerHTML" not in script.text
    for element in tree.everything():
        assert element.tag not in ACTIVE, element.tag
        for name, value in element.attributes.items():
            assert not name.startswith("on") and name != "style", f"<{element.tag} {name}={value!r}>"
            if name in ("href", "src", "action", "data", "xlink:href", "poster", "srcset"):
                assert value.startswith("#") or value == "data:," or re.fullmatch(r"[a-z-]+\.(csv|svg|json)", value), (
                    value
                )
            assert "url(" not in value or value.startswith("url(#"), value
    metas = [m.attributes for m in tree.find("meta")]
    policy = next(m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy")
    [style] = tree.find("style")
    digests = [base64.b64encode(hashlib.sha256(e.text.encode()).digest()).decode() for e in (style, script)]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}';")
    assert "unsafe" not in policy and "http" not in policy and "url(" not in style.text and "@import" not in style.text
    ids = [e.attributes["id"] for e in tree.everything() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    links = {a.attributes["href"] for a in tree.find("a") + tree.find("use") if a.attributes["href"].startswith("#")}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    for name in {a.attributes["href"] for a in tree.find("a")} - links:
        assert (path.parent / name).is_file(), name


def test_contents_lead_to_the_parts_of_the_page_in_their_order(page: Path) -> None:
    tree = parsed.page(page)
    [contents] = tree.find("nav")
    links = [link.attributes["href"] for link in contents.find("a")]
    assert links == [f"#{section.attributes['id']}" for section in tree.find("section")]
    assert links[0] == "#answer" and {"#comparisons", "#tasks", "#settings", "#runs"} < set(links)


def test_the_first_figure_comes_after_at_most_sixty_words(page: Path) -> None:
    body = page.read_text().partition("<body>")[2].partition("<svg")[0]
    assert len(re.sub(r"<[^>]+>", " ", body).split()) <= 60


def test_page_stands_alone(page: Path) -> None:
    asks_nothing(page)
    assert "Paper, table 5" not in parsed.page(page).by_id("tasks").text, "these are no tasks of GLUE"
    assert page.stat().st_size < 500_000


def test_the_smallest_gap_that_the_design_can_show_stands_beside_the_answer(page: Path) -> None:
    results = data_files.from_folder(page.parent)
    first, *others = results.verdicts
    no_gap_is_as_large = 150.0  # no difference of percentages is above 100
    for gap, shown in ((12.34, "gaps under 12.3 points are"), (no_gap_is_as_large, "any gap is")):
        verdicts = (replace(first, detectable=gap), *others)
        assert document.Page(replace(results, verdicts=verdicts)).sure[-1] == f"{shown} often missed"


def test_comparisons_that_own_scorers_decided_are_counted_apart() -> None:
    """RTD and ELECTRA 15% alone share a scorer, so five of the six comparisons are decided by own scores."""
    kept = Path(__file__).parents[2] / "reports/kept/ablation-mini-h100"
    sure = document.Page(data_files.from_folder(kept)).sure
    assert "6 of 6 declared comparisons decided, 5 by own scores" in sure


def test_picture_is_a_file_of_its_own(page: Path) -> None:
    root = ElementTree.parse(page.parent / "compute.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width") == "920"
    tags = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert "a" not in tags and tags <= {"svg", "style", "g", "path", "text", "clipPath", "rect", "circle", "title"}
    assert {"RTD", "BERT MLM"} <= {e.text for e in root.iter() if e.tag.endswith("text")}


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    """As objective, task, metric, baseline, setting, environment, error, question and command."""
    store = RunStore(tmp_path / "runs")
    specs = [made.spec_of(f"{name}.py", 0, {"steps": 8}, **{"data.corpus": (name,)}) for name in NAMES]
    specs.append(made.spec_of("rtd", 0, {"steps": 8}))
    for spec in specs:
        run = made.trained(store, spec, 8)
        metrics = [json.loads(line) | {HOSTILE[i % 9]: 1.0 for i in range(9)} for line in _lines(run.path)]
        (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
        made.relist(run)
        run.write_json("env.json", made.ENV | {"device": spec.objective, HOSTILE[0]: HOSTILE[1]})
        for i, name in enumerate(HOSTILE[:8]):
            facts = {"suite": "probes", "metric": name, "baselines": {name: 50.0}, "values": {name: {name: 60.0}}}
            made.scored(run, name, i, 60.0, **facts)
    failed = store.open(BoundRun(made.spec_of("rtd", 1, {"steps": 8})))
    failed.fail("failed", HOSTILE[1])
    specs.append(failed.spec())
    name = made.recorded(store, specs, question=HOSTILE[3], command=HOSTILE[4], experiment=HOSTILE[0])
    found = write(store, name, tmp_path / "out", {HOSTILE[0]: HOSTILE[1]})
    asks_nothing(found)
    assert not {e.tag.rpartition("}")[2] for e in ElementTree.parse(found.parent / "compute.svg").iter()} & ACTIVE
    text = parsed.page(found).text
    for name in HOSTILE[:9]:
        assert name in text, name
    assert HOSTILE[5] in text and "49" not in parsed.page(found).find("header")[0].text
    for sheet in found.parent.glob("*.csv"):
        for row in parsed.sheet(sheet):
            assert not any((v or "").startswith(("=", "@")) for v in row.values()), sheet


def _lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines()


def test_same_store_same_bytes(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    one, two = write(store, name, tmp_path / "a"), write(store, name, tmp_path / "b" / "page.html")
    assert one.name == "index.html" and two.name == "page.html"
    assert one.read_bytes() == two.read_bytes().replace(b'href="page-', b'href="')
    assert {p.name for p in one.parent.iterdir()} - {"index.html"} == {
        p.name.removeprefix("page-") for p in two.parent.iterdir()
    } - {"page.html"}
    assert not [p for p in one.parent.iterdir() if p.name.startswith(".")]


# -- what it says


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=1)
    found = write(store, name, tmp_path / "out")
    assert "one seed gives no interval" in sentence(found)
    assert "±" not in parsed.page(found).by_id("tasks").find("table")[0].text
    for row in parsed.sheet(found.parent / "table.csv"):
        assert row["low"] == row["high"] == row["sd"] == "" and row["seeds"] == "1"


def test_glue_is_glue_only_when_it_is_all_there(tmp_path: Path) -> None:
    whole, name = small(tmp_path / "a", tasks=tuple(made.GLUE), seeds=2, tunings=1)
    found = write(whole, name, tmp_path / "a" / "out")
    text = said(found)
    assert "GLUE: published scores" in text and "ELECTRA-1.75M" in text
    paper = {"rtd": 85.0, "bert-mlm": 82.2, "untrained": None}
    for row in parsed.sheet(found.parent / "table.csv"):
        assert row["published"] == ("" if (known := paper[row["arm"]]) is None else str(known))
    part, name = small(tmp_path / "b", tasks=("CoLA", "RTE"), seeds=2, tunings=1)
    found = write(part, name, tmp_path / "b" / "out", {"MNLI": "no file train.tsv in glue/MNLI"})
    text = said(found)
    assert "mean of CoLA, RTE" in text and "ELECTRA-1.75M" not in text
    assert "MNLI is in no score." in text and "no file train.tsv in glue/MNLI." in text
    assert {row["label"] for row in parsed.sheet(found.parent / "table.csv")} == {"mean of CoLA, RTE"}
    table = parsed.page(found).by_id("tasks").find("table")[0]
    rows = {r.find("code")[0].text: r for r in table.find("tr") if r.find("code")}
    assert "Paper, table 5" in table.text and "85.0" in rows["rtd"].text and "82.2" in rows["bert-mlm"].text


def test_two_suites_are_a_main_figure_and_a_card(tmp_path: Path) -> None:
    names = ("CoLA", "package", "order")
    store, name = small(tmp_path, tasks=names, seeds=4, record={"tasks": {"names": list(names)}})
    tree = parsed.page(write(store, name, tmp_path / "out"))
    first, second = verdicts(leaderboards(found := study_tables.read_study(store, name)), found)
    assert tree.find("h1")[0].text == first.sentence
    [card] = [e for e in tree.everything() if e.attributes.get("class") == "card"]
    assert second.sentence in card.text and "65." in card.text
    captions = [caption.text for caption in tree.by_id("tasks").find("caption")]
    of_each = ("", ": every metric", ": noise, in points")
    glue, probes = ([f"{name}{end}" for end in of_each] for name in ("GLUE (CoLA)", "Fine-tuned probes"))
    assert captions == [*glue, probes[0], "Task by task, at 60 steps", *probes[1:]]


def test_every_run_shows_its_flops_by_the_count_of_its_budget(page: Path) -> None:
    runs = parsed.page(page).by_id("runs").find("table")[0]
    column = [cell.text for cell in runs.find("th")].index("FLOPs")
    spent = {run["run_id"]: power(float(run["flops_matmul"])) for run in parsed.sheet(page.parent / "runs.csv")}
    rows = [[cell for cell in row.children if isinstance(cell, parsed.Element)] for row in runs.find("tr")[1:]]
    assert {cells[0].text: cells[column].text for cells in rows} == spent


def test_every_run_has_a_section_with_its_folder_and_scores(page: Path) -> None:
    tree = parsed.page(page)
    scores = parsed.sheet(page.parent / "scores.csv")
    for place, run in enumerate(parsed.sheet(page.parent / "runs.csv")):
        section = tree.by_id(f"run-{place}")
        assert section.tag == "details" and f"{run['path']}/metrics.jsonl" in section.text
        own = [score for score in scores if score["run_id"] == run["run_id"]]
        assert own and all(f"{score['task']}, {score['metric']}" in section.text for score in own)


def test_axis_of_a_sweep_names_the_arms(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [
        made.spec_of("rtd", seed, {"steps": 8}, **{"generator.width": width})
        for seed, width in itertools.product(range(2), (0.25, 0.5))
    ]
    for spec in specs:
        made.scored(made.trained(store, spec, 8), "order", 0, 60 + spec.seed + 3 * spec.generator.width)
    name = made.recorded(store, specs, axis="generator.width", experiment="generator-size")
    [board], told, _ = found_in(store, name)
    assert set(board.arms) == {"0.25", "0.5"} and board.published is None
    assert "fine-tuned probes" in told


# -- what runs leave behind


def test_damaged_and_unfinished_runs_are_named_and_hide_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, name = small(tmp_path, arms=made.ARMS, seeds=4)
    ids = [made.spec_of(arm, 3, {"steps": 60}).name for arm in made.ARMS]
    (store.root / ids[0] / "spec.json").write_text("{not json")
    store.get(ids[1]).write_json("done.json", {"format": 1, "steps": "many"})
    made.unfinish(store.get(ids[2]))
    with (store.root / ids[2] / "metrics.jsonl").open("a") as file:
        file.write('{"step": 61, "tok')  # a torn tail is what a killed run leaves
    made.unfinish(store.get(ids[3]))
    store.get(ids[3]).fail("diverged", "loss nan at step 7", step=7)
    shutil.rmtree(store.root / ids[4])
    found = write(store, name, tmp_path / "out")
    told = [line for line in caplog.messages if "left out" in line]
    assert len(told) == 3 and ids[0] in told[0] and ids[1] in told[1] and "no such folder" in told[2]
    caplog.clear()
    data_files.export_scores(store, name, "latex")
    assert [line for line in caplog.messages if "left out" in line] == told
    asks_nothing(found)
    absent = parsed.page(found).by_id("runs").find("table")[0]
    rows = {r.find("th")[0].text: [d.text for d in r.find("td")] for r in absent.find("tr")}
    assert [rows[i][0] for i in ids] == ["damaged", "damaged", "interrupted", "diverged", "missing"]
    assert "spec.json" in rows[ids[0]][1] and "steps" in rows[ids[1]][1] and "loss nan at step 7" in rows[ids[3]][1]
    assert "5 of 24 runs are in no average" in said(found)
    assert {row["seeds"] for row in parsed.sheet(found.parent / "table.csv") if row["arm"] != "untrained"} == {"3"}


@pytest.mark.parametrize("damage", [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"format": 1}', b"[" * 5000])
def test_a_damaged_file_costs_its_own_run_only(tmp_path: Path, damage: bytes) -> None:
    store, name = small(tmp_path, seeds=2)
    hurt = store.get(made.spec_of("rtd", 0, {"steps": 60}).name).path
    [whole] = leaderboards(study_tables.read_study(store, name))
    files = [f for f in sorted(hurt.rglob("*")) if f.is_file()]
    assert {f.name for f in files} >= {"spec.json", "done.json", "env.json", "plan.json", "metrics.jsonl"}
    for file in files:
        before = file.read_bytes()
        file.write_bytes(damage)
        found = study_tables.read_study(store, name)
        [board] = leaderboards(found)
        assert found.by_id()[hurt.name]["state"] == "damaged" and file.name in found.by_id()[hurt.name]["reason"]
        assert board.run_scores == {r: score for r, score in whole.run_scores.items() if r != hurt.name}
        file.write_bytes(before)


def test_a_store_of_ruins_has_a_report(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    for i, run in enumerate(store.runs()):
        for j, file in enumerate(sorted(run.path.rglob("*.json*"))):
            if (i + j) % 3:
                file.write_bytes(file.read_bytes()[: 7 * j])
    found = write(store, name, tmp_path / "out")
    asks_nothing(found)
    assert "6 of 6 runs are in no average (6 damaged)" in said(found)


def test_a_bad_line_in_the_log_is_counted(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    run = store.get(made.spec_of("rtd", 0, {"steps": 60}).name)
    lines = _lines(run.path)
    lines[5] = lines[5][:20]
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    made.relist(run)
    assert f"{run.run_id}: 1 unreadable line was left out of metrics.jsonl" in said(
        write(store, name, tmp_path / "out")
    )


def test_nothing_to_compare_yet(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [made.spec_of(arm, 0, {"steps": 8}) for arm in TWO]
    name = made.recorded(store, specs)
    assert "no run has finished" in sentence(write(store, name, tmp_path / "a"))
    for spec in specs:
        made.trained(store, spec, 8)
    found = write(store, name, tmp_path / "b")
    assert "none was measured on a task" in sentence(found)
    asks_nothing(found)
    assert "Generator accuracy" in said(found)
