"""What the commands of SLURM may answer, and damaged records of submitted jobs: sentences, and no wrong job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.errors import InputError
from workbench.execution.cluster import slurm
from workbench.execution.cluster.job_options import launch_of
from workbench.execution.workers import Assignment
from workbench.spec.host import Host
from workbench.spec.launch import OPTIONS, Launch

Tool = Callable[[str, bytes], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Write a program that stands for a command of SLURM."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name: str, content: bytes) -> None:
        (folder / name).write_bytes(b"#!/bin/sh\n" + content)
        (folder / name).chmod(0o755)

    return write


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    return Assignment(tmp_path / "runs", "x", ("a", "b"), (), Host(device="cpu", launch=Launch()), "", 0)


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        (b"echo 12", "12"),
        (b"echo '12;cluster'", "12"),
        (b"echo Welcome; echo 12", "12"),
        (b"printf 'caf\\351\\n12\\n'", "12"),
    ],
)
def test_the_number_of_the_jobs_is_found(answer: bytes, job: str, tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", answer)
    submitted = slurm._submit(assignment, 1)
    assert submitted.job == job
    assert slurm._submissions(assignment.store) == [submitted]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"exit 0", "sbatch printed no number of a job, but ''; see squeue --me"),
        (b"echo --help", "sbatch printed no number of a job, but '--help'"),
        (b"printf '\\377\\376' >&2; exit 1", "sbatch refused the jobs: "),
        (b"exit 3", "sbatch refused the jobs: sbatch ended with exit code 3"),
    ],
)
def test_an_answer_without_a_number_is_refused(answer: bytes, message: str, tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", answer)
    with pytest.raises(InputError) as error:
        slurm._submit(assignment, 1)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert slurm._submissions(assignment.store) == []


def test_a_command_that_cannot_be_started_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "squeue").write_bytes(b"\x7fELF")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(OSError, match="the queue of SLURM cannot be read: squeue cannot be started: "):
        slurm._queue(["12"])


def test_other_lines_among_those_of_the_queue_are_not_read(tool: Tool) -> None:
    tool("squeue", b"echo Welcome; echo '12|RUNNING'; printf '12|PENDING|caf\\351\\n'; echo '13|RUNNING|None'; echo")
    assert slurm._queue(["12"]) == {"12": [("PENDING", "caf\ufffd")]}


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
    damage: Callable[[bytes], bytes], tool: Tool, assignment: Assignment
) -> None:
    tool("sbatch", b"echo 12")
    path = slurm._submit(assignment, 1).folder / "submitted.json"
    path.write_bytes(damage(path.read_bytes()))
    tool("squeue", b"echo '12|RUNNING|None'; echo '13|RUNNING|None'")
    assert slurm._submissions(assignment.store) == []
    assert slurm._in_queue(assignment) is None


def test_two_commands_of_one_second_submit_jobs_of_their_own(tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", b"echo 12")
    assert len({slurm._submit(assignment, 1).folder for _ in range(5)}) == 5


def test_the_script_is_valid_shell_and_has_every_option(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    values = {name: example for name, (_, example) in OPTIONS.items() if name != "profile"}
    _, launch = launch_of("slurm", [f"launch.{name}={value}" for name, value in values.items()])
    assert launch is not None
    text = slurm.script(folder, launch, 5)
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


def test_options_that_are_not_given_are_left_to_the_cluster(tmp_path: Path) -> None:
    text = slurm.script(tmp_path, Launch(), 1)
    assert not any(f"--{name}=" in text for name in ("partition", "time", "mem", "gpus-per-node", "qos"))


def test_without_slurm_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="the command sbatch is not found"):
        slurm.check()
    assert slurm.queued(Path("runs")) == []
