"""What is said while work goes on."""

import pytest

from workbench import progress


def test_a_long_fine_tuning_is_heard_of_before_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.measuring("rtd-nano-s0", 2) as told:
        told.step("CoLA", 1, 804)
        told.scored("CoLA", 10.0)
        told.step("CoLA", 2, 804)
        told.scored("CoLA", 20.0)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        "rtd-nano-s0: score 1 of 2, CoLA, step 1 of 804",
        "rtd-nano-s0: score 2 of 2, CoLA, step 2 of 804",
    ]
    assert said[2].startswith("rtd-nano-s0: 2 scores in ") and said[2].endswith("CoLA 15.0")


def test_a_short_one_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.measuring("rtd-nano-s0", 1) as told:
        for step in range(50):
            told.step("CoLA", step, 50)
        told.scored("CoLA", 10.0)
    assert len(capsys.readouterr().err.splitlines()) == 1
