"""Pages in a real browser: Chromium without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [
    *([] if CHROMIUM else ["no Chromium on the PATH"]),
    *(f"no Python package {name}" for name in ("playwright", "axe_playwright_python") if find_spec(name) is None),
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser. While it runs, no other event loop can be started in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, page: Path, width: int = 1440, height: int = 900, *, dark: bool = False, script: bool = True,
    unfolded: bool = False,
) -> Iterator[Page]:  # fmt: skip
    """Open a page in a window of its own, with all folded parts open if `unfolded`.

    Fails if the page raises an error or if its policy blocks anything.
    """
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
        java_script_enabled=script, permissions=["clipboard-read", "clipboard-write"],
    )  # fmt: skip
    try:
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        tab.goto(page.as_uri())
        if unfolded:
            tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        if script:  # without one, nothing is drawn again, and no timer runs
            settle(tab)
        yield tab
    finally:
        context.close()
    assert not faults, faults


def settle(tab: Page) -> None:
    """Wait until figures are drawn at the size that they have now."""
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))))")


def barriers(tab: Page, contrast: bool = True) -> list[str]:
    """Return what axe-core finds on a page: the rule, its importance, the first element and what is wrong there.

    The rule on the contrast of colours takes five times as long as all others together.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    tab.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": contrast}}}
    found: dict[str, Any] = tab.evaluate("options => axe.run(document, options)", options)
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}: {each['nodes'][0]['failureSummary']}"
        for each in found["violations"]
    ]
