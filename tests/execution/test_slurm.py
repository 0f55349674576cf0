"""What the commands of SLURM may answer: sentences, and no wrong job."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.data.preprocessing import Plan
from workbench.data.sources import Hub
from workbench.errors import InputError
from workbench.execution import slurm
from workbench.execution.slurm import Submitted, Work, job_options
from workbench.execution.study_options import scores_of_encoders, spec_settings
from workbench.execution.workers import Assignment
from workbench.options import EvaluateOptions, checked, words
from workbench.spec.host import OPTIONS, Host, Launch
from workbench.spec.parts import DataSpec
from workbench.spec.run_spec import split_settings
from workbench.store.run_directory import RunDir


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


def test_a_command_that_cannot_be_started_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "squeue").write_bytes(b"\x7fELF")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(OSError, match="the queue of SLURM cannot be read: squeue cannot be started: "):
        slurm.queue_of(["12"])


def test_other_lines_among_those_of_the_queue_are_not_read(tool: Tool) -> None:
    tool("squeue", b"echo Welcome; echo '12|RUNNING'; printf '12|PENDING|caf\\351\\n'; echo '13|RUNNING|None'; echo")
    assert slurm.queue_of(["12"]) == {"12": [("PENDING", "caf\ufffd")]}


def test_without_slurm_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="the command sbatch is not found"):
        slurm.check()
    assert slurm.queued(Path("runs")) == []


def test_options_of_jobs_are_parted_from_those_of_the_spec() -> None:
    settings = {"optim.lr": 1e-3, "launch.time": "1-04:00:00", "launch.gpus": 2, "launch.setup": "a b"}
    assert spec_settings(settings) == {"optim.lr": 1e-3}
    assert job_options("slurm", settings) == Launch(time="1-04:00:00", gpus=2, setup="a b")


@pytest.mark.parametrize(
    ("launcher", "setting", "words"),
    [
        ("local", "launch.time=1", "add --launcher slurm"),
        ("slurm", "launch.tme=1", "did you mean 'launch.time'"),
        ("slurm", "launch.time", "key=value"),
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
        job_options(launcher, split_settings([setting]))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_profile_that_is_a_pipe_or_huge_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    for name, said in (("pipe", "is not a regular file"), ("huge", "has 1099511627776 bytes, more than")):
        with pytest.raises(InputError, match=said):
            job_options("slurm", {"launch.profile": str(tmp_path / name)})


def test_a_profile_gives_options_over_which_set_takes_precedence(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('time = "02:00:00"\ngpus = 4\npartition = "long"\n')
    launch = job_options("slurm", {"launch.profile": str(file), "launch.gpus": 1})
    assert launch == Launch(time="02:00:00", gpus=1, partition="long")
    for content, said in (
        ("gpu = 1", "did you mean 'launch.gpu"),
        ("gpus =", "is not TOML"),
        ("gpus = true", "cannot"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=said):
            job_options("slurm", {"launch.profile": str(file)})


@pytest.mark.parametrize("settings", [["time=2"], ["time=00:01:00"], ["time=5", "seconds_before=300"]])
def test_a_time_within_which_a_job_would_only_save_is_refused(settings: list[str]) -> None:
    with pytest.raises(InputError, match=r"^launch\.time=\S+ is not longer than launch\.seconds_before=\d+, so each"):
        job_options("slurm", split_settings(f"launch.{setting}" for setting in settings))
    assert job_options("slurm", {"launch.time": "0"}) == Launch(time="0"), "no limit"


def submitted_in(home: Path) -> Submitted:
    return slurm.submit(slurm.new_folder(home, "x"), Launch(), Work(("a", "b"), "true", 1))


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
    assert slurm.submissions(tmp_path / "jobs") == [submitted]


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
    assert slurm.submissions(tmp_path / "jobs") == []


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
    assert slurm.submissions(tmp_path / "jobs") == []
    assert slurm.in_queue(tmp_path / "jobs", ("a", "b"), "carry out these runs") is None


def test_the_script_is_valid_shell_and_has_every_option(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    values = {name: example for name, (_, example) in OPTIONS.items() if name != "profile"}
    launch = job_options("slurm", {f"launch.{name}": value for name, value in values.items()})
    assert launch is not None
    text = slurm.script(folder, launch, Work(("a",), "true", 5))
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
    launch = job_options("slurm", {"launch.options": "--comment='two words' --exclude node7"})
    assert launch is not None
    text = slurm.script(folder, launch, Work(("a",), "true", 1))
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    words = [word for line in lines for word in shlex.split(line)]
    assert f"--output={tmp_path}/it's 100%%x #1/%A_%a.log" in words
    assert words[-3:] == ["--comment=two words", "--exclude", "node7"]


def test_options_that_are_not_given_are_left_to_the_cluster(tmp_path: Path) -> None:
    text = slurm.script(tmp_path, Launch(), Work(("a",), "true", 1))
    assert not any(f"--{name}=" in text for name in ("partition", "time", "mem", "gpus-per-node", "qos"))


def test_no_more_jobs_than_wanted_run_at_a_time(tmp_path: Path) -> None:
    for at_once, given in ((3, "--array=0-9%3"), (10, "--array=0-9"), (slurm.MOST, "--array=0-9")):
        text = slurm.script(tmp_path, Launch(), Work(("a",), "true", 10, at_once))
        assert f"#SBATCH {given}\n" in text


def test_a_refused_array_leaves_no_folder(tool: Tool, tmp_path: Path) -> None:
    tool("sbatch", b"echo no >&2; exit 1")
    with pytest.raises(InputError, match="sbatch refused the jobs: no"):
        submitted_in(tmp_path / "jobs")
    assert not list((tmp_path / "jobs").iterdir())


def test_jobs_that_have_left_the_queue_are_waited_for_no_longer(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm, "LOOK", 0.0)
    monkeypatch.setattr(slurm.workers, "REFRESH", 0.01)
    tool("squeue", f"cat {tmp_path}/queue".encode())
    (tmp_path / "queue").write_text("12|PENDING|Priority\n12|RUNNING|None\n13|RUNNING|None\n")
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            (tmp_path / "queue").write_text("12|COMPLETED|None\n")

    slurm.wait(Submitted("12", tmp_path, ("a",)), look)
    assert len(looks) == 3  # once more after the end
    assert "SLURM 12: 1 running, 1 pending (Priority)" in capsys.readouterr().err


def test_the_last_line_of_the_newest_log_is_named(tmp_path: Path) -> None:
    assert slurm.last_words(tmp_path) == ""
    (tmp_path / "12_0.log").write_text("first\nworkbench: no text\n")
    (tmp_path / "12_1.log").write_text("")
    assert slurm.last_words(tmp_path) == "; 12_0.log ends with: workbench: no text"
    assert slurm.last_words(tmp_path, "*_1.log") == ""


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    return Assignment(tmp_path / "runs", "x", {}, ("a", "b"), (), Host(device="cpu", launch=Launch(cpus=3)), "", 0)


def test_two_commands_of_one_second_submit_jobs_of_their_own(tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", b"echo 12")
    assert len({slurm._submit_runs(assignment, 1).folder for _ in range(5)}) == 5


def test_the_worker_gets_the_assignment_without_the_launcher(tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", b"echo 12")
    array = slurm._submit_runs(assignment, 2)
    given = Assignment.read(array.folder / "assignment.json")
    assert given.host.launch is None and given.host.threads == 3 and given.runs == assignment.runs
    script = (array.folder / "job.sh").read_text()
    assert f"worker {array.folder / 'assignment.json'} &" in script and "--array=0-1\n" in script


def test_runs_that_no_job_has_trained_are_counted(
    tool: Tool, assignment: Assignment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.workers, "REFRESH", 0.0)
    monkeypatch.setattr(RunDir, "damage", None)
    tool("sbatch", b"echo 12")
    tool("squeue", b"exit 0")
    with caplog.at_level(logging.WARNING):
        slurm.share_runs(assignment, ["a", "b"], 4)
    assert "the jobs 12 of SLURM have ended, and 2 runs are not trained" in caplog.text
    slurm.share_runs(assignment, [], 4)  # nothing is left to do, and nothing is submitted
    assert len(list((assignment.store / "jobs").iterdir())) == 1


@pytest.mark.parametrize("number", [0, 1])
def test_each_job_measures_its_model(tmp_path: Path, number: int) -> None:
    """The script is carried out by bash, with a program that repeats its words in the place of Python."""
    folder = tmp_path / "a b"
    folder.mkdir()
    names, options = ["one model", "$(two)"], ["--tasks", "it's.csv", "--set", "tasks.lr=1e-3"]
    work = slurm._work(folder, names, options, ("x", "y"), 1)
    echo = tmp_path / "echo"
    echo.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    echo.chmod(0o755)
    text = slurm.script(folder, Launch(), work).replace(shlex.quote(sys.executable), str(echo))
    subprocess.run(["bash", "-c", text], check=True, env={"SLURM_ARRAY_TASK_ID": str(number), "PATH": "/usr/bin:/bin"})
    words = (folder / f"{number}.json").read_text().splitlines()
    assert words == ["-m", "workbench", "evaluate", "--json", *options, "--", names[number]]
    assert "--array=0-1%1\n" in text


def test_the_options_are_those_of_the_command(tmp_path: Path) -> None:
    typed = ["--tasks", "x.csv", "--scale", "mini", "--set", "optim.lr=0.001", "--set", "tasks.rows=unset", "--runs",
             str(tmp_path), "--flops", "1e+18", "--allow-bin", "--device", "cpu"]  # fmt: skip
    given = {"tasks": "x.csv", "scale": "mini", "set": {"optim.lr": 1e-3, "tasks.rows": None}, "runs": tmp_path,
             "flops": 1e18, "allow_bin": True, "device": "cpu"}  # fmt: skip
    assert words(checked(EvaluateOptions, given | {"encoder": "x"})) == typed


@pytest.mark.parametrize("content", ["", "[{", "null", '{"score": 1}'])
def test_a_job_without_scores_is_named(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    array = Submitted("12", tmp_path, ("m",))
    (tmp_path / "0.json").write_text(content)
    (tmp_path / "12_0.log").write_text("workbench: m has no config.json\n")
    with caplog.at_level(logging.WARNING):
        assert slurm._rows(array, 0, "m") == []
    assert "m was not measured by the jobs 12" in caplog.text
    assert "12_0.log ends with: workbench: m has no" in caplog.text
    (tmp_path / "0.json").write_text('[{"model": "m", "value": 1.0}]')
    assert slurm._rows(array, 0, "m") == [{"model": "m", "value": 1.0}]


def test_a_number_of_jobs_needs_a_cluster() -> None:
    with pytest.raises(InputError, match="--workers 3 is the number of jobs at a time; add --launcher slurm"):
        scores_of_encoders(EvaluateOptions(("x",), workers=3))


def test_more_models_than_an_array_has_jobs_are_refused(tool: Tool, tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scontrol"):
        tool(name, b"exit 1")
    with pytest.raises(InputError, match="1,001 models are named"):
        slurm.measure_models(["m"] * 1001, [], tmp_path / "runs", Launch(), None)
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    slices = tuple((Hub(name, None, "1", size=5),) for name in ("a", "b", "c"))
    (tmp_path / "slices").mkdir()
    return Plan(tmp_path, "key", DataSpec(), tmp_path / "tokenizers/x", slices)


def test_jobs_take_the_slices_that_are_missing(
    plan: Plan, tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(slurm, "LOOK", 0.0)
    monkeypatch.setattr(slurm.workers, "REFRESH", 0.01)
    plan.folder(1).mkdir()
    tool("sbatch", b"echo 12")
    tool("squeue", f"[ -d {plan.folder(2)} ] || echo '12|RUNNING|None'; mkdir -p {plan.folder(2)}".encode())
    sizes: list[int] = []

    def advance(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 2:
            plan.folder(0).mkdir()

    slurm.encode_text(plan, 8, advance, Launch())
    assert sizes == [5, 5, 5]
    [script] = (tmp_path / "jobs").glob("key-*/job.sh")
    assert f"encode-slices {plan.path} &" in script.read_text() and "--array=0-1\n" in script.read_text()
    slurm.encode_text(plan, 8, lambda _: None, Launch())  # all are there: nothing is submitted
    assert len(list((tmp_path / "jobs").iterdir())) == 1


def test_slices_that_are_missing_in_the_end_are_an_error(
    plan: Plan, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.workers, "REFRESH", 0.0)
    tool("sbatch", b"echo 12")
    tool("squeue", b"exit 0")
    with pytest.raises(InputError, match="the jobs 12 of SLURM have ended, and 3 slices of the text are not there"):
        slurm.encode_text(plan, 8, lambda _: None, Launch())
