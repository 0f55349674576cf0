"""What the pages show: states, answers, filters, means over seeds, comparisons, one run, and what has just changed."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from html import unescape
from http.client import HTTPException
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import fmean
from urllib.request import HTTPCookieProcessor, build_opener

import made
import pytest
from starlette.testclient import TestClient
from view.conftest import client_of, looked

from workbench.errors import InputError
from workbench.execution import workers
from workbench.report import data_files
from workbench.report.load import runs_table
from workbench.store import manage
from workbench.store.run_store import RunStore
from workbench.view import pages, server
from workbench.view.watched import Watched

STUDY = "ablation-nano-1a2b3c4d"


def text_of(html: str) -> str:
    """The words of a page, without its style and script."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", html, flags=re.DOTALL)))


def run_id(arm: str, seed: int) -> str:
    return str(made.spec_of(arm, seed, {"steps": 60}).name)


def listed(html: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/run/([^"]+)">', html)


def test_studies_have_state_progress_and_the_answer_of_the_report(watched: Watched, client: TestClient) -> None:
    assert "The answer is being computed" in text_of(client.get("/").text)
    with watched.watching():
        for _ in range(400):
            page = text_of(client.get("/").text)
            if "being computed" not in page:
                break
            watched.stopped.wait(0.05)
    answer = str(data_files.from_store(watched.store, STUDY).verdicts[0])
    assert answer in page and "unfinished" in page and "10 of 12 trained, 1 interrupted, 1 diverged" in page


def test_a_study_is_its_report_with_the_missing_seeds_and_its_files(watched: Watched, client: TestClient) -> None:
    html = client.get(f"/study/{STUDY}/").text
    results = data_files.from_store(watched.store, STUDY)
    assert f"<h1>{results.verdicts[0]}</h1>" in unescape(html)
    assert re.search(rf'class="cell s-interrupted" href="/run/{run_id("rtd", 3)}"', html)
    assert re.search(rf'class="cell s-diverged" href="/run/{run_id("bert-mlm", 3)}"', html)
    files = data_files.data_files(results)
    assert client.get(f"/study/{STUDY}/pairs.csv").content == files["pairs.csv"]
    links = set(re.findall(r'href="([\w.]+\.(?:csv|json|svg))"', html))
    assert len(links) > 9 and {client.get(f"/study/{STUDY}/{name}").status_code for name in links} == {200}
    assert client.get(f"/study/{STUDY}", follow_redirects=False).headers["location"] == f"/study/{STUDY}/"


@pytest.mark.parametrize(
    ("query", "conditions", "sort"),
    [
        ("where=objective%3Drtd", ["objective=rtd"], None),
        ("where=objective%3Drtd&where=seed%3C2&sort=-seed", ["objective=rtd", "seed<2"], "-seed"),
        ("where=state!%3Ddone&sort=run_id", ["state!=done"], "run_id"),
        ("sort=-score&columns=score,optim.lr", [], "-score"),
    ],
)
def test_runs_are_filtered_and_sorted_as_by_the_command(
    query: str, conditions: list[str], sort: str | None, watched: Watched, client: TestClient
) -> None:
    rows = [runs_table.row_of(run) for run in watched.store.runs()]
    wanted = [row["run_id"] for row in runs_table.filtered(rows, conditions, sort)]
    html = client.get(f"/runs?{query}").text
    assert listed(html) == wanted
    again = re.search(r'<th scope="col"[^>]*><a href="([^"]+)">run</a>', html)
    assert again is not None  # a link on the page keeps the filters
    assert sorted(listed(client.get(f"/runs{unescape(again[1])}").text)) == sorted(wanted)


def test_a_word_finds_runs_by_name_and_a_wrong_filter_is_explained(client: TestClient) -> None:
    assert set(listed(client.get("/runs?where=s3").text)) >= {run_id("rtd", 3), run_id("bert-mlm", 3)}
    assert "no run has this key" in text_of(client.get("/runs?where=objectve%3Drtd").text)
    assert "is not a number" in text_of(client.get("/runs?where=seed%3Cmany").text)
    assert client.get("/runs?page=²&sort=-").status_code == 200


def test_runs_of_one_arm_are_a_line_with_mean_and_interval(watched: Watched, client: TestClient) -> None:
    html = client.get("/runs?group=seeds&columns=objective,seed,score&sort=-score").text
    scores = [watched.rows[run_id("rtd", seed)]["score"] for seed in range(3)]
    line = next(text_of(row) for row in html.split("<tr>") if ">rtd<" in row)
    assert "and 3 more" in line and "4 seeds" in line and f"{fmean(scores):.1f} ±" in line
    assert [row.split("-nano")[0] for row in listed(html)] == ["rtd", "bert-mlm", "untrained"]
    values = re.findall(r'name="run" value="([^"]*)"', html)
    assert set(values[0].split(",")) == {run_id("rtd", seed) for seed in range(4)}


def test_chosen_runs_are_compared_as_one_study(client: TestClient) -> None:
    chosen = [run_id(arm, seed) for arm in ("rtd", "bert-mlm") for seed in range(3)]
    html = client.get(f"/compare?run={','.join(chosen[:4])}&run={chosen[4]}&run={chosen[5]}").text
    page = text_of(html)
    assert "6 chosen runs of 2 arms" in page and "Settings that differ, by arm" in page
    table = re.search(r"Settings that differ, by arm</span></caption>(.*?)</table>", html, re.DOTALL)
    assert table is not None and re.findall(r"<code>([^<]+)</code>", table[1]) == ["objective"]
    assert 'data-chart="curve-mlm_loss"' in html and re.search(r"\d ± \d", page)
    csv = re.search(r'href="([^"]*file=table\.csv)"', html)
    assert csv is not None and client.get(f"/compare{unescape(csv[1])}").text.startswith("suite,")
    assert "Choose runs" in client.get("/compare").text
    assert client.get("/compare?run=no-such-run").status_code == 404


def test_a_run_has_all_that_its_folder_says(client: TestClient) -> None:
    page = text_of(client.get(f"/run/{run_id('rtd', 1)}").text)
    for words in (
        "optim.lr 0.003", "workbench run ablation", "tokens 245,760", "matthews", "metrics.jsonl", "spec.json",
    ):  # fmt: skip
        assert words in page, words
    broken = text_of(client.get(f"/run/{run_id('bert-mlm', 3)}").text)
    assert "loss is nan at step 7" in broken and "Traceback: it went up" in broken and "diverged" in broken
    assert client.get("/run/none").status_code == 404


def test_changes_are_seen_at_the_next_look(finished: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "runs"))
    watched = looked(root)
    store, version, late = RunStore.existing(root), watched.version, run_id("rtd", 3)
    assert watched.rows[late]["state"] == "interrupted"
    run = store.get(late)
    with run.lease():
        watched.look()
        row = watched.rows[late]
        assert (row["state"], row["step"], row["steps"]) == ("running", 60, 60) and watched.version > version
        assert workers.study_progress(store.experiment(STUDY), watched.rows).state == "running"
        (run.path / "metrics.jsonl").write_text((run.path / "metrics.jsonl").read_text().splitlines()[0] + "\n")
        watched.look()
        assert watched.rows[late]["step"] == 1 and "Step 1 of 60" in text_of(
            client_of(watched).get(f"/run/{late}").text
        )
    watched.look()
    assert watched.rows[late]["state"] == "interrupted"
    new = made.trained(store, made.spec_of("electra-15", 7, {"steps": 60}))
    made.scored(store.get(run_id("rtd", 0)), "signature", 0, 50.0)
    shutil.rmtree(root / run_id("bert-mlm", 1))
    (root / run_id("bert-mlm", 0) / "spec.json").write_text("{")
    watched.look()
    assert watched.rows[new.run_id]["state"] == "trained" and run_id("bert-mlm", 1) not in watched.rows
    for _ in range(3):  # a file changed in its place is found in turn
        watched.look()
    assert (
        watched.rows[run_id("bert-mlm", 0)]["state"] == "damaged"
        and "score.signature" in watched.rows[run_id("rtd", 0)]
    )
    assert client_of(watched).get(f"/run/{run_id('bert-mlm', 0)}").status_code == 200


def test_ctrl_c_while_pages_are_made_prints_no_traceback(finished: Path) -> None:
    command = [sys.executable, "-m", "workbench", "view", "--runs", str(finished), "--no-open"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        address = served.stderr.readline().strip()
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        browser.open(address).read()

        def look(path: str) -> None:
            with contextlib.suppress(OSError, HTTPException):  # the answer is cut off
                browser.open(address.partition("/?")[0] + path).read()

        for path in ("/events", f"/study/{STUDY}/", "/runs"):
            threading.Thread(target=look, args=(path,), daemon=True).start()
        time.sleep(0.3)
        served.send_signal(signal.SIGINT)
        said = served.communicate(timeout=60)[1]
        assert served.returncode == 0 and "Traceback" not in said and "ERROR" not in said, said


def test_a_run_in_the_trash_and_the_trash_itself_are_no_runs(finished: Path, tmp_path: Path) -> None:
    store = RunStore(shutil.copytree(finished, tmp_path / "runs"))
    gone = run_id("rtd", 0)
    manage.remove(store, store.get(gone))
    watched = looked(store.root)
    assert set(watched.rows) == {run.run_id for run in store.runs()} and gone not in watched.rows


def test_an_address_that_cannot_be_used_is_one_sentence() -> None:
    with server.listening("127.0.0.1", None) as taken:
        port = taken.getsockname()[1]
        for host, number, words in (
            ("127.0.0.1", port, "another program listens there"), ("203.0.113.7", 0, "no name or address"),
            ("no.such.host.invalid", 0, "no name or address"),
        ):  # fmt: skip
            with pytest.raises(InputError, match=words):
                server.listening(host, number)
        with server.listening("127.0.0.1", None) as other:
            assert other.getsockname()[1] != port


def test_columns_hold_what_is_compared_and_what_conditions_name_and_stay_as_rows_are_sorted() -> None:
    shared = {"objective": "rtd", "source": "x", "encoder.layers": 2, "optim.lr": 1e-3}
    rows = [
        {"run_id": str(n), "source": str(n), "a": n, "b": n, "c": n, "d": n, "optim.lr": 10.0**-n, "encoder.layers": 2}
        for n in range(3)
    ]
    columns = pages.usual_columns([shared | row for row in rows], ["optim.lr"], ["encoder.layers=2", "state=done"])
    assert columns == ["state", "objective", "score", "encoder.layers", "optim.lr", "a", "b", "c", "seed"]
    assert pages.exact(1e6) == "1e+06" and float(pages.exact(0.1 + 0.2)) == 0.1 + 0.2 and pages.exact(12_000) == "12000"


def test_each_key_of_the_axes_of_studies_is_a_column_before_other_settings(
    watched: Watched, client: TestClient
) -> None:
    for row in watched.rows.values():
        row |= {"batch.size": len(row["objective"]), "tying": row["objective"]}
    watched.records = [replace(record, axis="objective,tying") for record in watched.records]
    for query in ("", f"?study={STUDY}"):
        heads = re.findall(r'<th scope="col"[^>]*><a [^>]*>([\w.]+)</a>', client.get(f"/runs{query}").text)
        assert heads[:6] == ["run", "state", "objective", "score", "tying", "batch.size"]


def test_what_is_the_same_in_each_study_does_not_differ() -> None:
    groups = {name: [{"seed": seed, "batch.size": size} for seed in (0, 1)] for name, size in (("a", 32), ("b", 64))}
    assert pages.differences(groups) == [("batch.size", ["32", "64"])]
    assert pages.differences({"": groups["a"]}) == [("seed", ["0, 1"])]


def test_several_conditions_may_stand_in_one_line() -> None:
    given = "optim.lr=0.005 objective=rtd, seed<3"
    assert pages.CONDITIONS.split(given) == ["optim.lr=0.005", "objective=rtd", "seed<3"]
    assert pages.CONDITIONS.split("two words") == ["two words"]
    assert pages.typed(["workbench", "run", "a b"]) == "workbench run 'a b'" and pages.typed(None) == ""
