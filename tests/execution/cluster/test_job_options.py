"""Options of jobs: which --set values they take, the script that follows, and the sentences where that cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.errors import InputError
from workbench.execution.cluster.job_options import launch_of
from workbench.spec.host import OPTIONS, Launch


def test_options_of_jobs_are_parted_from_those_of_the_spec() -> None:
    rest, launch = launch_of("slurm", ["optim.lr=1e-3", "launch.time=1-04:00:00", "launch.gpus=2", "launch.setup=a b"])
    assert rest == ["optim.lr=1e-3"]
    assert launch == Launch(time="1-04:00:00", gpus=2, setup="a b")


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "profile"])
def test_the_example_of_every_option_is_usable(name: str) -> None:
    _, launch = launch_of("slurm", [f"launch.{name}={OPTIONS[name][1]}"])
    assert str(getattr(launch, name)) == OPTIONS[name][1]


@pytest.mark.parametrize(
    ("launcher", "setting", "words"),
    [
        ("pbs", "launch.time=1", "local or slurm"),
        ("local", "launch.time=1", "add --launcher slurm"),
        ("slurm", "launch.tme=1", "did you mean 'launch.time'"),
        ("slurm", "launch.time", "launch.key=value"),
        ("slurm", "launch.time=soon", "04:00:00"),
        ("slurm", "launch.gpus=0", "launch.gpus='0' cannot be used"),
        ("slurm", "launch.partition=a b", "cannot be used"),
        ("slurm", "launch.options=--a\n#SBATCH --b", "cannot be used"),
        ("slurm", "launch.options=--comment='a b", "has a quotation mark that is not closed"),
        ("slurm", "launch.profile=nowhere.toml", "No such file"),
        ("slurm", "launch.profile=/dev/zero", "is not a regular file; name a file of TOML"),
    ],
)
def test_what_cannot_be_used_is_named(launcher: str, setting: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        launch_of(launcher, [setting])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_profile_that_is_a_pipe_or_huge_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    for name, words in (("pipe", "is not a regular file"), ("huge", "has 1099511627776 bytes, more than")):
        with pytest.raises(InputError, match=words):
            launch_of("slurm", [f"launch.profile={tmp_path / name}"])


def test_a_profile_gives_options_over_which_set_takes_precedence(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('time = "02:00:00"\ngpus = 4\npartition = "long"\n')
    _, launch = launch_of("slurm", [f"launch.profile={file}", "launch.gpus=1"])
    assert launch == Launch(time="02:00:00", gpus=1, partition="long")
    for content, words in (
        ("gpu = 1", "did you mean 'launch.gpu"),
        ("gpus =", "is not TOML"),
        ("gpus = true", "cannot"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=words):
            launch_of("slurm", [f"launch.profile={file}"])


@pytest.mark.parametrize("settings", [["time=2"], ["time=00:01:00"], ["time=5", "seconds_before=300"]])
def test_a_time_within_which_a_job_would_only_save_is_refused(settings: list[str]) -> None:
    with pytest.raises(InputError, match=r"^launch\.time=\S+ is not longer than launch\.seconds_before=\d+, so each"):
        launch_of("slurm", [f"launch.{setting}" for setting in settings])
    assert launch_of("slurm", ["launch.time=0"])[1] == Launch(time="0"), "no limit"
