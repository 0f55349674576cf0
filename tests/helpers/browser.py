"""Pages measured in a real browser: Chromium without a window, which lays a page out in frames of several widths."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DARK = "--blink-settings=preferredColorScheme=0"

RUN = """
onload = async () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const doc = frame.contentDocument, win = frame.contentWindow;
    doc.querySelectorAll("details").forEach(each => { each.open = true; });
    await new Promise(done => setTimeout(done, 300));
    try { found[frame.id.slice(1)] = await measure(doc, win); } catch (error) { found.error = String(error.stack); }
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
"""


def measured(page: Path, script: str, folder: Path, widths: tuple[int, ...], dark: bool = False) -> dict[str, Any]:
    """Return by width what a script returns for a page in a frame of it; its arguments are `doc` and `win`.

    All folded parts are open. Fails if the browser blocked anything or the page raised an error.
    """
    assert BROWSER is not None
    wrapper = folder / "wrapper.html"
    frames = "".join(
        f"<iframe id=w{width} src='{page.as_uri()}' width={width} height=900></iframe>" for width in widths
    )
    wrapper.write_text(
        f"<!doctype html><body>{frames}<pre id=found></pre><script>"
        f"const measure = async (doc, win) => {{\n{script}\n}};\n{RUN}</script>"
    )
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=20000",
        f"--user-data-dir={folder / 'profile'}", *([DARK] if dark else []), wrapper.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None and found[1], done.stderr[-2000:]
    assert "Content Security Policy" not in done.stderr and "Uncaught" not in done.stderr, done.stderr[-2000:]
    values: dict[str, Any] = json.loads(unescape(found[1]))
    assert "error" not in values, values
    return values
