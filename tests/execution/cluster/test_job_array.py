"""Arrays of jobs: their scripts, what sbatch may answer, and damaged records of submitted jobs."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.errors import InputError
from workbench.execution.cluster import job_array
from workbench.execution.cluster.job_array import Submitted, Work
from workbench.execution.cluster.job_options import launch_of
from workbench.spec.host import OPTIONS, Launch


def submitted_in(home: Path) -> Submitted:
    return job_array.submit(job_array.new_folder(home, "x"), Launch(), Work(("a", "b"), "true", 1))


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        (b"echo 12", "12"),
        (b"echo '12;cluster'", "12"),
        (b"echo Welcome; echo 12", "12"),
        (b"printf 'caf\\351\\n12\\n'", "12"),
    ],
)
def test_the_number_of_the_jobs_is_found(answer: bytes, job: str, tool: Tool, tmp_path: Path) -> None:
    tool("sbatch", answer)
    submitted = submitted_in(tmp_path / "jobs")
    assert submitted.job == job
    assert job_array.submissions(tmp_path / "jobs") == [submitted]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"exit 0", "sbatch printed no number of a job, but ''; see squeue --me"),
        (b"echo --help", "sbatch printed no number of a job, but '--help'"),
        (b"printf '\\377\\376' >&2; exit 1", "sbatch refused the jobs: "),
        (b"exit 3", "sbatch refused the jobs: sbatch ended with exit code 3"),
    ],
)
def test_an_answer_without_a_number_is_refused(answer: bytes, message: str, tool: Tool, tmp_path: Path) -> None:
    tool("sbatch", answer)
    with pytest.raises(InputError) as error:
        submitted_in(tmp_path / "jobs")
    assert message in str(error.value) and "\n" not in str(error.value)
    assert job_array.submissions(tmp_path / "jobs") == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b'"12"', b'"13"'),
        lambda content: content[:-9],
        lambda content: b'{"job":"12","runs":["a","b"]}',
        lambda content: b'{"job":"12","runs":[["a"]]}',
        lambda content: b"null",
    ],
)
def test_a_changed_record_of_submitted_jobs_is_not_used(
    damage: Callable[[bytes], bytes], tool: Tool, tmp_path: Path
) -> None:
    tool("sbatch", b"echo 12")
    path = submitted_in(tmp_path / "jobs").folder / "submitted.json"
    path.write_bytes(damage(path.read_bytes()))
    tool("squeue", b"echo '12|RUNNING|None'; echo '13|RUNNING|None'")
    assert job_array.submissions(tmp_path / "jobs") == []
    assert job_array.in_queue(tmp_path / "jobs", ("a", "b"), "carry out these runs") is None


def test_the_script_is_valid_shell_and_has_every_option(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    values = {name: example for name, (_, example) in OPTIONS.items() if name != "profile"}
    _, launch = launch_of("slurm", [f"launch.{name}={value}" for name, value in values.items()])
    assert launch is not None
    text = job_array.script(folder, launch, Work(("a",), "true", 5))
    file = folder / "job.sh"
    file.write_text(text)
    subprocess.run(["bash", "-n", str(file)], check=True)
    directives = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    expected = {
        "--array=0-4", "--signal=B:USR1@120", "--requeue", "--partition=gpu", "--time=04:00:00", "--gpus-per-node=1",
        "--cpus-per-task=4", "--mem=16G", "--constraint=a100", "--account=nlp", "--qos=normal", "--exclude=node7",
        "--nice",
    }  # fmt: skip
    assert expected <= set(directives)
    assert text.index("#SBATCH --requeue") < text.index("limit=no") < text.index("module load cuda")


def test_blanks_and_signs_in_options_and_folders_reach_sbatch_as_they_are(tmp_path: Path) -> None:
    """sbatch takes quotes as a shell does, and %x in the name of a log as the name of the job."""
    folder = tmp_path / "it's 100%x #1"
    _, launch = launch_of("slurm", ["launch.options=--comment='two words' --exclude node7"])
    assert launch is not None
    text = job_array.script(folder, launch, Work(("a",), "true", 1))
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    words = [word for line in lines for word in shlex.split(line)]
    assert f"--output={tmp_path}/it's 100%%x #1/%A_%a.log" in words
    assert words[-3:] == ["--comment=two words", "--exclude", "node7"]


def test_options_that_are_not_given_are_left_to_the_cluster(tmp_path: Path) -> None:
    text = job_array.script(tmp_path, Launch(), Work(("a",), "true", 1))
    assert not any(f"--{name}=" in text for name in ("partition", "time", "mem", "gpus-per-node", "qos"))


def test_no_more_jobs_than_wanted_run_at_a_time(tmp_path: Path) -> None:
    for at_once, given in ((3, "--array=0-9%3"), (10, "--array=0-9"), (job_array.MOST, "--array=0-9")):
        text = job_array.script(tmp_path, Launch(), Work(("a",), "true", 10, at_once))
        assert f"#SBATCH {given}\n" in text


def test_a_refused_array_leaves_no_folder(tool: Tool, tmp_path: Path) -> None:
    tool("sbatch", b"echo no >&2; exit 1")
    with pytest.raises(InputError, match="sbatch refused the jobs: no"):
        submitted_in(tmp_path / "jobs")
    assert not list((tmp_path / "jobs").iterdir())


def test_jobs_that_have_left_the_queue_are_waited_for_no_longer(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_array, "LOOK", 0.0)
    monkeypatch.setattr(job_array.live, "REFRESH", 0.01)
    tool("squeue", f"cat {tmp_path}/queue".encode())
    (tmp_path / "queue").write_text("12|PENDING|Priority\n12|RUNNING|None\n13|RUNNING|None\n")
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            (tmp_path / "queue").write_text("12|COMPLETED|None\n")

    job_array.wait(Submitted("12", tmp_path, ("a",)), look)
    assert len(looks) == 3  # once more after the end
    assert "SLURM 12: 1 running, 1 pending (Priority)" in capsys.readouterr().err


def test_the_last_line_of_the_newest_log_is_named(tmp_path: Path) -> None:
    assert job_array.last_words(tmp_path) == ""
    (tmp_path / "12_0.log").write_text("first\nworkbench: no text\n")
    (tmp_path / "12_1.log").write_text("")
    assert job_array.last_words(tmp_path) == "; 12_0.log ends with: workbench: no text"
    assert job_array.last_words(tmp_path, "*_1.log") == ""
