"""The pages in a real browser, served by the command: they follow a store that changes, and fit."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import made
import pytest
from browser import MISSING, barriers, chromium

from workbench.store import manage
from workbench.store.run_store import RunStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pages cannot be looked at: {', '.join(MISSING)}")
STUDY = "/study/ablation-nano-1a2b3c4d/"


@pytest.fixture(scope="module")
def root(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(finished, tmp_path_factory.mktemp("served") / "runs"))


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root, "--allow-edit") as address:
        yield address


@contextmanager
def served(root: Path, *words: str) -> Iterator[str]:
    """Serve a store by the command, and yield the address with the token."""
    command = [sys.executable, "-m", "workbench", "view", "--runs", str(root), "--no-open", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline().strip()
            assert line.startswith("http://127.0.0.1:"), line
            assert "ssh -L" in server.stderr.readline()
            yield line
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0, server.stderr.read()
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()  # else a test that fails would wait for its server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Opened:
    """A page of the browser that was let in, with what it complained of and whom it asked."""

    def __init__(self, browser: Browser, address: str, width: int = 1300, dark: bool = False) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(120_000)  # on a busy machine, any page may take long
        self.page, self.base = context.new_page(), address.partition("/?")[0]
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url))
        self.page.goto(address)
        self.page.wait_for_url(f"{self.base}/")

    def go(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page

    def close(self) -> None:
        self.page.context.close()
        assert self.complaints == []
        assert {url for url in self.asked if not url.startswith((self.base, "data:"))} == set()


def run_id(arm: str, seed: int) -> str:
    return str(made.spec_of(arm, seed, {"steps": 60}).name)


PAGES = {
    "studies": "/", "study": STUDY, "runs": "/runs?where=seed<3&sort=-score", "groups": "/runs?group=seeds",
    "run": f"/run/{run_id('rtd', 0)}", "broken": f"/run/{run_id('bert-mlm', 3)}", "none": "/run/none",
    "compare": f"/compare?run={','.join(run_id(arm, seed) for arm in ('rtd', 'bert-mlm') for seed in range(3))}",
}  # fmt: skip


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (390, True)])
def test_every_page_fits_is_readable_and_asks_nobody_else(
    width: int, dark: bool, browser: Browser, address: str
) -> None:
    opened = Opened(browser, address, width, dark)
    faults = []
    for name, path in PAGES.items():
        page = opened.go(path)
        page.wait_for_timeout(300)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        faults += [f"{name}: {barrier}" for barrier in barriers(page)]
    assert faults == []
    opened.complaints = [text for text in opened.complaints if "404" not in text]  # of the run that there is not
    opened.close()


def test_pages_follow_the_store_and_keep_what_a_person_has_opened(browser: Browser, address: str, root: Path) -> None:
    opened = Opened(browser, address)
    store, late = RunStore.existing(root), run_id("rtd", 3)
    page = opened.go(STUDY)
    from playwright.sync_api import expect

    cell = page.locator(f"#grid a[href='/run/{late}']")
    expect(cell).to_have_class(re.compile("s-interrupted"))
    page.locator("#settings summary").first.click()
    page.evaluate("window.same = true")
    cell.focus()
    before = page.locator("figure .plot svg").first.inner_html()
    run = made.trained(store, made.spec_of("rtd", 3, {"steps": 60}), 60)
    for task in ("order", "next"):
        made.scored(run, task, 0, 90.0)
    run.write_json("wanted.json", {"format": 1, "scores": [], "points": []})
    expect(cell).to_have_class(re.compile("s-done"), timeout=15_000)
    expect(page.locator("#progress")).to_contain_text("11 of 12 trained")
    assert page.evaluate("window.same") is True, "the page was loaded again"
    assert page.locator("figure .plot svg").first.inner_html() != before
    assert page.locator("#settings details").first.get_attribute("open") is not None
    assert page.evaluate("document.activeElement.getAttribute('href')") == f"/run/{late}"
    opened.close()


def test_runs_are_chosen_and_compared_by_keyboard_and_the_address_holds_what_is_shown(
    browser: Browser, address: str
) -> None:
    opened = Opened(browser, address)
    page = opened.go("/runs?where=seed<2&where=kind=pre-training&columns=state,score")
    assert page.locator("tbody tr").count() == 4
    page.locator("tbody tr input").first.focus()
    for _ in range(2):
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
    page.locator("button.go").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?run=*")
    assert "2 chosen runs" in page.locator("#progress").inner_text()
    page.locator("#curves select[aria-label=axis]").select_option("steps")
    page.locator("#curves select[aria-label=smoothing]").select_option("0.9")
    page.get_by_role("button", name="log y").click()
    assert "axis.curves=steps" in page.url and "smooth.curves=0.9" in page.url and "high.curves=true" in page.url
    drawn = page.locator("#curves figure svg").first.inner_html()
    page.reload()
    assert page.locator("#curves figure svg").first.inner_html() == drawn
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.wait_for_function("document.querySelectorAll('#curves .plot svg').length > 2")
    page.locator("#curves .plot").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#curves .cursor").count() > 1  # one cursor for all curves
    opened.close()


def test_chosen_runs_are_tagged_archived_and_put_back(browser: Browser, address: str, root: Path) -> None:
    from playwright.sync_api import expect

    opened, bad = Opened(browser, address), run_id("bert-mlm", 3)
    page = opened.go("/runs?where=state=diverged")
    page.locator("tbody input").check()
    assert "run=" in page.url and "1 chosen" in page.locator("#count").inner_text()
    page.locator("#tags").fill("too-fast")
    page.keyboard.press("Enter")
    expect(page.locator("tbody")).to_contain_text("#too-fast")
    expect(page.locator("tbody input")).to_be_checked()
    page.get_by_role("button", name="archive").click()
    expect(page.locator("main")).to_contain_text("No run meets these conditions")
    expect(page.locator("#said")).to_have_text("1 run archived")
    page = opened.go(f"/run/{bad}")
    page.locator("#note").fill("the learning rate")
    page.keyboard.press("Enter")
    expect(page.locator(".notes")).to_contain_text("the learning rate")
    page.get_by_role("button", name="restore").click()
    expect(page.get_by_role("button", name="archive")).to_be_visible()
    written = manage.notes_of(RunStore.existing(root).get(bad))
    assert written.tags == ("too-fast",) and written.text == "the learning rate" and not written.archived
    opened.close()


@pytest.mark.parametrize("count", [210, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_runs_are_shown_while_a_sweep_writes(
    count: int, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    monkeypatch.setattr(os, "fsync", lambda fd: None)
    store, arms = RunStore(tmp_path / "runs"), made.ARMS
    specs = [
        made.spec_of(arms[n % 5], n // 5 % 5, {"steps": 4}, **{"optim.lr": 1e-4 * (1 + n // 25)}) for n in range(count)
    ]
    for spec in specs:
        made.trained(store, spec, 4)
    made.recorded(store, specs[:25])
    late, over = store.get(specs[0].name), threading.Event()
    made.unfinish(late)
    rows = (late.path / "metrics.jsonl").read_text().splitlines(keepends=True)

    draw = random.Random(0)

    def sweep() -> None:
        with late.lease():
            while not over.is_set():
                for end in range(1, len(rows) + 1):
                    (late.path / "metrics.jsonl").write_text("".join(rows[:end]))
                    over.wait(draw.uniform(0.2, 1.8))  # at random, so that looks do not always meet the same step

    writing = threading.Thread(target=sweep)
    writing.start()
    try:
        with served(store.root) as address:
            for width in (1440, 390):
                opened = Opened(browser, address, width)
                for path in ("/", "/runs?where=state!=reading", STUDY, "/runs?group=seeds", f"/run/{late.run_id}"):
                    page = opened.go(path)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, path
                page = opened.go("/runs")
                expect(page.locator("main")).to_contain_text(f"{count:,} runs", timeout=120_000)
                assert page.locator("tbody tr").count() == 200
                if width == 390:
                    steps = opened.go(f"/runs?where={late.run_id}").locator("tbody small")
                    expect(steps).to_have_text(re.compile("3 of 4"), timeout=30_000)
                    expect(steps).to_have_text(re.compile("1 of 4"), timeout=30_000)
                opened.close()
    finally:
        over.set()
        writing.join()
