"""The lines about progress that are written while work goes on."""

import pytest

from workbench import progress


def test_a_long_fine_tuning_writes_lines_before_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.measuring("rtd-nano-s0", 2) as callbacks:
        callbacks.step("CoLA", 1, 804)
        callbacks.scored("CoLA", 10.0)
        callbacks.step("CoLA", 2, 804)
        callbacks.scored("CoLA", 20.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "rtd-nano-s0: score 1 of 2, CoLA, step 1 of 804",
        "rtd-nano-s0: score 2 of 2, CoLA, step 2 of 804",
    ]
    assert lines[2].startswith("rtd-nano-s0: 2 scores in ") and lines[2].endswith("CoLA 15.0")


def test_a_short_fine_tuning_writes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.measuring("rtd-nano-s0", 1) as callbacks:
        for step in range(50):
            callbacks.step("CoLA", step, 50)
        callbacks.scored("CoLA", 10.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("rtd-nano-s0: 1 score in ")


def test_scores_that_failed_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.measuring("rtd-nano-s0", 3) as callbacks:
        callbacks.scored("CoLA", 10.0)
    with progress.measuring("rtd-nano-s1", 3):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("rtd-nano-s0: 1 of 3 scores in ") and lines[0].endswith(": CoLA 10.0")
    assert lines[1].startswith("rtd-nano-s1: 0 of 3 scores in ")


def test_a_warning_comes_once_for_each_sentence(caplog: pytest.LogCaptureFixture) -> None:
    for sentence in ("100 % of a test", "another sentence of a test", "100 % of a test"):
        progress.warn_once(sentence)
    assert caplog.messages == ["100 % of a test", "another sentence of a test"]


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (42.4, "42 s"), (59.6, "1 min 0 s"), (7800, "2 h 10 min"), (172_799, "47 h 59 min"), (273_600, "3 d 4 h"),
        (505_801_000, "5,854 d"),
    ],
)  # fmt: skip
def test_a_duration_is_given_in_units_that_are_easy_to_grasp(seconds: float, text: str) -> None:
    assert progress.clock(seconds) == text
