"""Progress of preparing a corpus where there is no terminal: few lines, the first at once."""

from __future__ import annotations

import pytest

from workbench import progress


def test_a_stage_has_a_line_at_once_and_then_one_in_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.shown() as update:
        for seconds, stage, done, total in (
            (0.0, "reading", 0, 200), (9.9, "reading", 99, 200), (10.0, "reading", 100, 200),
            (10.5, "writing", 0, 0), (19.9, "reading", 150, 200), (21.0, "writing", 3_400_000, 0),
        ):  # fmt: skip
            now[0] = 100.0 + seconds
            update(stage, done, total)
    assert capsys.readouterr().err.splitlines() == ["reading", "reading 50 %", "writing", "writing 3 MB"]


def test_on_a_terminal_a_bar_takes_all_updates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with progress.shown() as update:
        update("[bold] text", 10, 20)
        update("[bold] text", 20, 20)
    assert capsys.readouterr().out == ""  # progress is no part of the results
