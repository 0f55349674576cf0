"""What is printed on stdout, and which values the shared options refuse."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from workbench import cli
from workbench.cli import command as commands
from workbench.cli.command import emit
from workbench.errors import InputError
from workbench.store.run_store import refuse_other_report

Ended = Callable[..., int]

# ---- printing ----


@pytest.mark.parametrize("value", [[], {}, [{"run": "größe", "step": None, "done": True}], {"a": [1, 2.5]}, "text\n"])
def test_json_is_one_document_and_nothing_else(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    emit(value, True)
    found = capsys.readouterr()
    assert json.loads(found.out) == value and found.out.endswith("\n") and found.err == ""


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_an_error_and_no_half_document(
    number: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError):
        emit({"good": 1, "bad": [number]}, True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("value", "text"), [("a\nb", "a\nb\n"), ("a\n\n\n", "a\n"), ("", "\n"), (3, "3\n"), ("ö ", "ö \n")]
)
def test_text_ends_in_one_line_end(value: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit(value, False)
    assert capsys.readouterr().out == text


# ---- values ----


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("most-seeds", 1), ("most-seeds", 1001), ("workers", 0), ("workers", 1025), ("seeds", 0), ("seeds", "many"),
        ("threads", 0), ("threads", 4097), ("micro-batch", 0), ("save-every", 0), ("most-epochs", 0),
        ("most-epochs", -1), ("precision", "fp16"), ("launcher", "pbs"), ("track", "nowhere"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_before_anything_is_done(
    option: str, number: Any, tmp_path: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert ended("run", "ablation", f"--{option}", str(number)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and f"--{option}" in printed.err and printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_word_in_place_of_a_whole_number_is_refused_in_a_sentence(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("run", "ablation", "--workers", "many") == 2
    assert capsys.readouterr().err == "workbench: Invalid value for '--workers': give a whole number\n"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_help_names_itself_in_whatever_order_its_names_come(seed: str) -> None:
    """typer keeps the names -h and --help as a set, whose order follows the seed of hashes."""
    words = [sys.executable, "-m", "workbench", "sweep", "-h"]
    done = subprocess.run(words, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
    assert "  -h, --help " in done.stdout


def test_help_has_each_command_in_one_section() -> None:
    names = " ".join(cli.SECTIONS.values()).split()
    assert sorted(names) == sorted([*cli.COMMANDS, "data"])
    shown = CliRunner().invoke(cli.app, ["-h"]).stdout
    assert [re.search(rf"^  {name} ", shown, re.MULTILINE) for name in names].count(None) == 0
    places = [shown.index(f"\n{title}:\n") for title in cli.SECTIONS]
    assert places == sorted(places) and "Commands:" not in shown


@pytest.mark.parametrize("words", ["nan", "inf", "-inf", "1e400", "-1", "0", "ten"])
@pytest.mark.parametrize(
    "command",
    ["plan-study ablation --sd", "bench --seconds", "evaluate x --flops", "run ablation --most-epochs"],
)
def test_a_number_that_cannot_be_used_is_named_with_its_range(command: str, words: str) -> None:
    found = CliRunner().invoke(cli.app, [*command.split(), words])
    option = command.rpartition(" ")[2]
    assert found.exit_code == 2 and found.stdout == ""
    assert f"Invalid value for '{option}'" in found.stderr and f"'{words}' is not a number from " in found.stderr


@pytest.mark.parametrize(
    "words",
    [
        "run ablation --corpus https://h/x.txt?sig={}", "run ablation --set data.corpus=docs,s3://me:{}@b/k",
        "run ablation --set data.tokenizer=https://me:{}@h/t", "run ablation --set tasks.glue=https://h/g?token={}",
        "run ablation --tasks https://h/x.csv?X-Goog-Signature={}", "run ablation --set start.from=me:{}@h/a,b",
        "sweep --over data.corpus=docs,https://h/x?key={}", "sweep tune --storage postgresql://me:{}@h/d",
        "evaluate hf_{}{}@owner/name", "evaluate https://me:{}@huggingface.co/o/n",
        "data prepare --corpus ftp://me:{}@h/x",
        "submit x --out x.zip --glue https://h/x#{}", "push run https://me:{}@huggingface.co/o/n",
        "flops --set data.corpus=https://h/x?{}",
        "report x --runs s3://me:{}@b/runs", "runs --where data.corpus=h/x?sig={}",
    ],
)  # fmt: skip
def test_an_address_with_a_secret_is_refused_in_every_option(words: str, tmp_path: Path) -> None:
    secret = "Pl4ntedS3cret"
    refused = CliRunner().invoke(cli.app, words.format(*[secret] * 2).split(), env={"WORKBENCH_CACHE": str(tmp_path)})
    assert isinstance(refused.exception, InputError) and "an address may hold no " in str(refused.exception)
    assert secret not in str(refused.exception) + refused.output and list(tmp_path.iterdir()) == []


def test_an_address_with_a_secret_in_the_file_of_an_experiment_is_refused(tmp_path: Path) -> None:
    axes = "{'encoder.family': ('electra', 'https://h/x?sig=Pl4ntedS3cret')}"
    (tmp_path / "families.py").write_text(f'"""Which family?"""\nQUESTION = "Which family?"\nAXES = {axes}\n')
    refused = CliRunner().invoke(cli.app, ["run", str(tmp_path / "families.py"), "--dry-run"])
    assert "experiment families: https://...: an address may hold no query parameter 'sig'" in str(refused.exception)
    assert "S3cret" not in str(refused.exception) + refused.output


LOUD = '''"""Prints wherever it is called."""
from workbench.objectives import bert_mlm
from workbench.objectives.bert_mlm import Objective, Options

print("loaded")

def cost(spec):
    print("priced")
    return bert_mlm.cost(spec)
'''


def test_what_an_objective_prints_is_no_part_of_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: Ended
) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    assert ended("flops", "--objective", str(tmp_path / "loud.py"), "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out), "one document"
    assert "loaded" in printed.err and "priced" in printed.err
    emit("afterwards", False)
    assert capsys.readouterr().out == "afterwards\n"


def test_a_path_in_a_folder_that_the_user_must_not_enter_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is bad input. The superuser may enter every folder, so the check of permissions is replaced here."""
    monkeypatch.setattr(cli.os, "access", lambda path, mode: Path(path) != tmp_path / "closed")
    (tmp_path / "closed").mkdir()
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "closed" / "runs" / "store.json"))
    assert cli._system_error(error) == 2
    assert f"no permission to enter {tmp_path / 'closed'}; name another path" in capsys.readouterr().err
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "runs"))
    assert cli._system_error(error) == 74


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "ENODEV", "EUCLEAN", "EREMOTEIO", "ENOTCONN", "ETIMEDOUT"])
def test_a_disk_that_fails_or_is_gone_is_told_and_no_internal_error(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    number = getattr(errno, name, errno.EIO)
    assert cli._system_error(OSError(number, os.strerror(number), "/disk/runs/lease")) == 74
    said = f"{os.strerror(number)}; see that the disk and the connection to it work and give the same command again"
    assert capsys.readouterr().err == f"workbench: /disk/runs/lease: {said}\n"


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EMFILE, "raise ulimit -n and"), (errno.ENFILE, "end other"), (errno.EAGAIN, "ulimit -u")],
)
def test_limits_of_the_system_are_told_and_no_internal_error(
    capsys: pytest.CaptureFixture[str], number: int, says: str
) -> None:
    assert cli._system_error(OSError(number, os.strerror(number))) == 2
    told = capsys.readouterr().err
    assert says in told and told.endswith(" and give the same command again\n") and told.count("\n") == 1


def test_a_folder_in_the_place_of_a_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._system_error(IsADirectoryError(errno.EISDIR, "Is a directory", "/disk/x.json")) == 2
    assert capsys.readouterr().err == "workbench: Is a directory (/disk/x.json)\n"


OUTPUTS = [["report", "ablation", "--out"], ["export", "ablation", "--out"], ["export", "ablation", "--babylm"],
           ["export", "ablation", "--checkpoint"], ["run", "ablation", "--out"], ["sweep", "lambda", "--out"],
           ["bench", "--out"], ["submit", "ablation", "--out"]]  # fmt: skip


@pytest.mark.parametrize("words", OUTPUTS, ids=" ".join)
def test_a_home_folder_in_an_output_is_found_or_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell leaves `--out=~/x` as it is, and no folder of the name `~` must be made for it."""
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(cli.app, [*words, "~nobodyx/here"])
    assert str(refused.exception) == f"{words[-1]} ~nobodyx/here: ~nobodyx has no home folder; give the full path"
    assert list(tmp_path.iterdir()) == []


def test_a_home_folder_is_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"out": commands.typed_path(SimpleNamespace(opts=["--out"]), Path("~/here"))}  # type: ignore[arg-type]
    assert given["out"] == tmp_path / "here"


# ---- what people meet ----


@pytest.mark.parametrize("command", ["run", "plan-study"])
def test_without_an_experiment_they_are_listed(command: str, ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"workbench: name an experiment, as in workbench {command} ablation") and len(lines) > 5
    assert any(line.split()[0] == "ablation" and line.endswith("?") for line in lines[1:])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("list",), "list: LIST is missing: objectives, scales, "), (("new",), "new: KIND is missing: "),
        (("cp", "ablation"), "cp: --to is missing: "),
        (("sweep",), "sweep needs an experiment, such as generator-size"),
        (("frobnicate",), "No such command 'frobnicate'; workbench -h lists what there is"),
        (("diff", "a"), "diff: RUN is missing: Another run."), (("export",), "export: EXPERIMENT is missing: "),
    ],
)  # fmt: skip
def test_a_missing_word_is_named_with_its_meaning(
    words: tuple[str, ...], sentence: str, ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*words) == 2
    assert capsys.readouterr().err.startswith(f"workbench: {sentence}")


def test_verify_takes_the_folder_in_either_way(ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("verify", "nowhere"), ("verify", "--runs", "nowhere")):
        assert ended(*words) == 2
        assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("run ablation --learning-rate 1e-3", "--learning-rate: there is no such option; give --set optim.lr=VALUE"),
        ("run ablation --num_train_epochs 3", "give --budget tokens=N"),
        ("run ablation --set mlm_probability=0.2", "did you mean 'corruption.rate'?"),
        ("run ablation --set per_device_train_batch_size=8", "did you mean 'batch.size'?"),
        ("sweep --over max_seq_length=64,128", "did you mean 'data.length'?"),
    ],
)
def test_names_of_other_programs_get_advice(
    words: str, advice: str, ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*words.split()) == 2
    told = capsys.readouterr().err
    assert advice in told and told.count("\n") == 1


@pytest.mark.parametrize("words", [["--show-completion"], ["--show-completion", "bash"], ["run", "-h"], ["-h"]])
def test_help_and_completion_end_well(
    words: list[str], ended: Ended, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "bash")
    assert ended(*(words[:1] if words[0] == "--show-completion" else words)) == 0
    printed = capsys.readouterr()
    assert ("Usage: workbench" in printed.out or "workbench" in printed.out) and not printed.err


def test_completion_is_installed_for_the_shell_that_asks(
    tmp_path: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "bash")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ended("--install-completion") == 0
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "COMP_WORDS" in script.read_text() and str(script) in (tmp_path / ".bashrc").read_text()


def test_a_report_on_runs_of_another_store_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "runs" / "rtd-nano-s0-000000000001").mkdir(parents=True)
    store: Any = SimpleNamespace(root=tmp_path / "runs")
    refuse_other_report(tmp_path / "report", store)  # there is no report yet
    table = "run_id,arm\nuntrained-nano-s0-1,untrained\nrtd-nano-s0-{},rtd\n"
    (tmp_path / "report" / "runs.csv").write_text(table.format("000000000001"))
    refuse_other_report(tmp_path / "report", store)
    (tmp_path / "report" / "runs.csv").write_text(table.format("000000000002"))
    with pytest.raises(
        InputError, match=r"holds a report on runs of another store, none of which is in .*; give --out"
    ):
        refuse_other_report(tmp_path / "report", store)
