"""The page: it stands alone, shows names as names, says what it cannot tell, and survives what runs leave behind."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made
import parsed
import pytest

from workbench.errors import InputError, encodable
from workbench.report import find_record, long_table, write
from workbench.report.comparison.boards import Board, boards
from workbench.report.formatting import power
from workbench.report.load import frames
from workbench.report.page.answer import answer
from workbench.report.page.warnings import checks
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
ACTIVE = {
    "script",
    "iframe",
    "object",
    "embed",
    "form",
    "input",
    "button",
    "img",
    "base",
    "video",
    "audio",
    "foreignobject",
}


def noiseless(levels: dict[str, float]) -> Any:
    return lambda arm, steps, task, seed, tuning: levels[arm]


def small(root: Path, truth: Any = None, **more: Any) -> tuple[RunStore, str]:
    options = {"arms": TWO, "seeds": 3, "tunings": 1, "tasks": ("order", "next"), "budgets": (60,)} | more
    return made.study(root / "runs", truth or made.noisy(made.LEVELS), **options)


def said(page: Path) -> str:
    return " ".join(parsed.page(page).text.split())


def found_in(store: RunStore, name: str) -> tuple[list[Board], str, str]:
    """Boards, answers and warnings without the figures, which take most of the time."""
    read = frames.read(store, name)
    found = boards(read)
    answers = [answer(board, read.axis) for board in found]
    told = " ".join(text for a in answers for text in (a.sentence, *a.further))
    return found, told, " ".join(checks.warnings(read, found, {}))


def sentence(page: Path) -> str:
    return " ".join(
        next(e for e in parsed.page(page).everything() if e.attributes.get("class") == "sentence").text.split()
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    store, name = made.study(root / "runs", made.noisy(made.LEVELS), budgets=(60, 240), seeds=3)
    return write(store, name, root / "out")


# -- it stands alone


def asks_nothing(path: Path) -> None:
    """Nothing live, nothing from elsewhere, every style allowed by its hash, and no two ids alike."""
    tree = parsed.page(path)
    for element in tree.everything():
        assert element.tag not in ACTIVE, element.tag
        for name, value in element.attributes.items():
            assert not name.startswith("on") and name != "style", f"<{element.tag} {name}={value!r}>"
            if name in ("href", "src", "action", "data", "xlink:href", "poster", "srcset"):
                assert value.startswith("#") or value == "data:," or re.fullmatch(r"[a-z-]+\.(csv|svg)", value), value
            assert "url(" not in value or value.startswith("url(#"), value
    metas = [m.attributes for m in tree.find("meta")]
    policy = next(m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy")
    [style] = tree.find("style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';") and f"style-src 'sha256-{digest}';" in policy
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
    sections = [f"#{section.attributes['id']}" for section in tree.find("section")]
    assert links == [section for section in sections if not section.startswith("#conventions-")]
    assert links[:3] == ["#compute-1", "#table-1", "#tasks-1"] and links[-1] == "#runs"


def test_page_stands_alone(page: Path) -> None:
    asks_nothing(page)
    assert page.stat().st_size < 2_000_000


def test_picture_is_a_file_of_its_own(page: Path) -> None:
    root = ElementTree.parse(page.parent / "compute.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width") == "920"
    tags = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert "a" not in tags and tags <= {"svg", "style", "g", "path", "use", "text", "defs", "clipPath", "rect", "title"}
    assert {*TWO} <= {e.text for e in root.iter() if e.tag.endswith("text")}  # the legend


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
    assert "49" not in parsed.page(found).find("h1")[0].text
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


def test_a_clear_lead_is_told_with_its_interval(tmp_path: Path) -> None:
    store, name = small(tmp_path, made.noisy(made.LEVELS | {"rtd": 71.0, "bert-mlm": 65.0}), seeds=5)
    [board], told, _ = found_in(store, name)
    [pair] = board.pairs[board.budget]
    gap = pair.difference.estimate
    assert told.startswith(
        f"rtd is ahead of bert-mlm by {gap.mean:.1f} ± {gap.half:.1f} points of mean of order, next "
        "(paired, 5 seeds, 4 degrees of freedom). "
    )
    assert re.search(r"beat their own untrained encoders \(paired, 5 seeds, [^()]+ of freedom, by the same", told)


def test_planted_ties_come_out_as_ties(tmp_path: Path) -> None:
    levels = dict.fromkeys([*made.ARMS, "untrained"], 66.0)
    store, name = small(tmp_path, made.noisy(levels), arms=made.ARMS, seeds=4)
    [board], told, _ = found_in(store, name)
    assert told.startswith("With 4 seeds, it cannot be told which of the 5 objectives is best: ")
    assert "would show a gap of this size" in told and "is ahead" not in told
    assert not any(pair.compared.claimed for pair in board.pairs[board.budget])


def test_part_of_a_ranking_is_told_and_the_rest_left_open(tmp_path: Path) -> None:
    levels = {"rtd": 71.0, "all-tokens-mlm": 70.9, "bert-mlm": 62.0, "untrained": 60.0}
    store, name = small(tmp_path, made.noisy(levels), arms=tuple(levels)[:3], seeds=6)
    _, told, _ = found_in(store, name)
    pattern = r"(rtd|all-tokens-mlm) has the highest mean .* and is ahead of bert-mlm by \S+ ± \S+ points"
    assert re.match(
        pattern
        + r" \(paired, 6 seeds, [^()]* degrees of freedom\), "
        + r"but with 6 seeds it cannot be told apart from (rtd|all-tokens-mlm) \(",
        told,
    )


def test_identical_scores_are_no_lead(tmp_path: Path) -> None:
    """A gap that is the same in every seed has no spread to make an interval from."""
    store, name = small(tmp_path, noiseless({"rtd": 61.0, "bert-mlm": 60.0, "untrained": 60.0}))
    _, told, _ = found_in(store, name)
    assert told.startswith("With 3 seeds, rtd cannot be told apart from bert-mlm: the gap is 1.0 points of ")
    assert "(the same in every seed, so without an interval) (paired, 3 seeds)." in told
    assert "four times in five" not in told and "the noise is unknown" in told
    assert "have no interval, so nothing is claimed" in told


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=1)
    found = write(store, name, tmp_path / "out")
    assert sentence(found).startswith("One seed cannot rank them: rtd has the highest")
    assert "±" not in parsed.page(found).by_id("table-1").find("table")[0].text
    for row in parsed.sheet(found.parent / "table.csv"):
        assert row["low"] == row["high"] == row["sd"] == "" and row["seeds"] == "1"


def test_worse_than_untrained_is_said(tmp_path: Path) -> None:
    store, name = small(tmp_path, made.noisy({"rtd": 70.0, "bert-mlm": 50.0, "untrained": 60.0}), seeds=4)
    _, told, _ = found_in(store, name)
    assert re.search(r"bert-mlm \(−\d+\.\d ± \d\.\d\) is worse than its own untrained encoder", told)
    assert re.search(r"rtd \(\+\d+\.\d ± \d\.\d\) beats its own untrained encoder", told)


def test_glue_is_glue_only_when_it_is_all_there(tmp_path: Path) -> None:
    whole, name = small(tmp_path / "a", tasks=tuple(made.GLUE), seeds=2, tunings=1)
    found = write(whole, name, tmp_path / "a" / "out")
    text = said(found)
    assert "GLUE against compute" in text and "ELECTRA-1.75M" in text and "training FLOPs, paper convention" in text
    part, name = small(tmp_path / "b", tasks=("CoLA", "RTE"), seeds=2, tunings=1)
    found = write(part, name, tmp_path / "b" / "out", {"MNLI": "no file train.tsv in glue/MNLI"})
    text = said(found)
    assert "Mean of CoLA, RTE against compute" in text and "ELECTRA-1.75M" not in text
    assert "MNLI is not part of any score here: no file train.tsv in glue/MNLI." in text
    assert {row["label"] for row in parsed.sheet(found.parent / "table.csv")} == {"mean of CoLA, RTE"}


def test_two_suites_have_two_answers(tmp_path: Path) -> None:
    names = ("CoLA", "package", "order")
    store, name = small(tmp_path, tasks=names, seeds=4, record={"tasks": {"names": list(names)}})
    tree = parsed.page(write(store, name, tmp_path / "out"))
    assert sum(e.attributes.get("class") == "sentence" for e in tree.everything()) == 2
    rules = [p.text for p in tree.find("p") if p.text.startswith("An arm is called \u201cahead\u201d")]
    assert len(rules) == 1
    assert [h.text for h in tree.find("h2") if "against compute" in h.text] == [
        "CoLA against compute", "Mean of package, order against compute",
    ]  # fmt: skip
    [contents] = tree.find("nav")
    titles = [link.text for link in contents.find("a")]
    assert [t for t in titles if "(" in t] == [
        f"{part} ({label})"
        for label in ("CoLA", "mean of package, order") for part in ("Scores", "Table", "Task by task")
    ]  # fmt: skip


def test_every_run_shows_its_flops_by_the_count_of_its_budget(page: Path) -> None:
    runs = parsed.page(page).by_id("runs")
    column = [cell.text for cell in runs.find("th")].index("FLOPs, matmul")
    spent = {run["path"]: power(float(run["flops_matmul"])) for run in parsed.sheet(page.parent / "runs.csv")}
    rows = [[cell for cell in row.children if isinstance(cell, parsed.Element)] for row in runs.find("tr")[1:]]
    assert {cells[0].text: cells[column].text for cells in rows} == spent


def test_paper_table_stands_beside_with_its_scale(page: Path) -> None:
    table = parsed.page(page).by_id("table-1")
    assert "measured at Base size" in table.text and "The encoder here has 1 layer of 64" in table.text
    rows = {r.find("th")[0].text.removesuffix(" †"): r for r in table.find("table")[0].find("tr")}
    assert "85.0" in rows["rtd"].text and "+2.8" in rows["rtd"].text


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
    assert "generator width 0.5" in told


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_settings_that_differ_make_arms_of_their_own(tmp_path: Path, seeds: tuple[int, int]) -> None:
    """Two specs of one objective and budget are never averaged, be their seeds the same or not."""
    store = RunStore(tmp_path / "runs")
    rates = zip(seeds, (1e-3, 2e-3), strict=True)
    specs = [made.spec_of("rtd", seed, {"steps": 8}, **{"optim.lr": lr}) for seed, lr in rates]
    for spec in specs:
        made.scored(made.trained(store, spec, 8), "order", 0, 60.0)
    [board], _, _ = found_in(store, made.recorded(store, specs))
    assert set(board.arms) == {"rtd, optim.lr=0.001", "rtd, optim.lr=0.002"}


# -- what runs leave behind


def test_damaged_and_unfinished_runs_are_named_and_hide_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, name = small(tmp_path, arms=made.ARMS, seeds=4)
    ids = [made.spec_of(arm, 3, {"steps": 60}).name for arm in made.ARMS]
    (store.root / ids[0] / "spec.json").write_text("{not json")
    (store.root / ids[1] / "done.json").write_text('{"format": 1, "steps": "many"}')
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
    long_table.export(store, name, "latex")
    assert [line for line in caplog.messages if "left out" in line] == told
    asks_nothing(found)
    rows = {r.find("th")[0].text: [d.text for d in r.find("td")] for r in parsed.page(found).by_id("absent").find("tr")}
    assert [rows[i][0] for i in ids] == ["damaged", "damaged", "interrupted", "diverged", "missing"]
    assert "spec.json" in rows[ids[0]][1] and "steps" in rows[ids[1]][1] and "loss nan at step 7" in rows[ids[3]][1]
    assert "5 of 24 runs are in no average" in said(found)
    assert {row["seeds"] for row in parsed.sheet(found.parent / "table.csv") if row["arm"] != "untrained"} == {"3"}


@pytest.mark.parametrize("damage", [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"format": 1}', b"[" * 5000])
def test_a_damaged_file_costs_its_own_run_only(tmp_path: Path, damage: bytes) -> None:
    store, name = small(tmp_path, seeds=2)
    hurt = store.get(made.spec_of("rtd", 0, {"steps": 60}).name).path
    [whole] = boards(frames.read(store, name))
    files = [f for f in sorted(hurt.rglob("*")) if f.is_file()]
    assert {f.name for f in files} >= {"spec.json", "done.json", "env.json", "plan.json", "metrics.jsonl"}
    for file in files:
        before = file.read_bytes()
        file.write_bytes(damage)
        found = frames.read(store, name)
        [board] = boards(found)
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


def test_scores_of_other_settings_are_left_out_and_named(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    for run in store.runs():
        for seed in range(5):
            made.scored(run, "order", seed, 99.0, digest="ffffffff", finetune={"lr": 0.5})
        made.scored(run, "package", 0, 99.0)  # not asked for by this experiment
    record = store.experiment(name)
    fields = {"name": "other-nano-00000000", "tasks": dict(record.tasks) | {"names": ["order", "next"]}}
    specs = [store.get(r).spec() for r in record.runs]
    other = made.recorded(store, specs, **fields)
    [board], _, warned = found_in(store, other)
    assert "order: 20 scores under other fine-tuning settings or data are left out (digest ffffffff" in warned
    assert board.tasks == ("order", "next") and max(board.run_scores.values()) < 90


def test_score_that_is_not_a_number_is_left_out(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2, tunings=2)
    path = made.scored(store.get(made.spec_of("rtd", 0, {"steps": 60}).name), "order", 0, None)
    assert f"{path.relative_to(store.root)}: the score is not a number and is left out" in found_in(store, name)[2]


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


def test_environments_that_differ_are_flagged(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    run = store.get(made.spec_of("rtd", 0, {"steps": 60}).name)
    run.write_json("env.json", made.ENV | {"threads": 16, "started": "2026-11-22T00:00:00+00:00"})
    assert "The runs were made in different environments: threads differ" in found_in(store, name)[2]


def test_a_discriminator_that_calls_all_original_is_flagged(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=2)
    run = store.get(made.spec_of("rtd", 0, {"steps": 60}).name)
    rows = [json.loads(line) | {"discriminator_recall": 0.001} for line in _lines(run.path)]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.relist(run)
    assert (
        "the discriminator detects less than 1 % of the replaced tokens (it nearly always predicts the majority class) "
        f"in {run.run_id}" in found_in(store, name)[2]
    )


def test_records_are_found_by_name_or_experiment(tmp_path: Path) -> None:
    store, name = small(tmp_path, seeds=1)
    assert find_record(store, name) == find_record(store, "ablation") == name
    with pytest.raises(InputError, match="did you mean 'ablation'"):
        find_record(store, "ablatoin")
    with pytest.raises(InputError, match="no experiment 'nothing'"):
        write(store, "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- in a real browser


def test_no_overflow_on_a_phone_and_no_blocked_style(page: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here to lay the page out with")
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f"<!doctype html><body><iframe src='{page.as_uri()}' width=375 height=800></iframe><script>"
        "onload = () => { const d = document.querySelector('iframe').contentDocument, e = d.documentElement;"
        "d.querySelectorAll('details').forEach(x => x.open = true);"
        "const stroke = getComputedStyle(d.querySelector('.k-s0')).stroke, n = d.querySelectorAll('svg.figure').length;"
        "document.title = [e.scrollWidth, e.clientWidth, stroke, n].join('|') }</script>"
    )
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom",
        "--allow-file-access-from-files", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
        wrapper.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    title = re.search(r"<title>(\d+)\|(\d+)\|(.*?)\|(\d+)</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    assert int(title[1]) <= int(title[2]) <= 375, "the page is wider than the phone"
    assert title[3] == "rgb(0, 114, 178)" and int(title[4]) > 20
    assert "Content Security Policy" not in done.stderr and "Refused" not in done.stderr
