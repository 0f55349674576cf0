"""A run folder that is not as it was left: the command names it, does the others, and writes nothing through it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workbench.cpu import compiled
from workbench.store.atomic import read_object, sealed
from workbench.store.environment import kinds_of_arithmetic
from workbench.store.run_store import RunDir

from .conftest import SETS, Command


def words(text: Path, table: Path) -> list[str]:
    given = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", table, "--budget", "steps=12"]
    given += ["--micro-batch", 4, "--save-every", 5, *SETS, "--set", "encoder.dropout=0.1"]
    return [*map(str, given), "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]


@pytest.fixture(scope="module")
def finished(workbench: Command, text: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    workbench(*words(text, table), cwd=folder, ends=0)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the trained run."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    (tmp_path / "victim" / "step-00000001").mkdir(parents=True)
    (tmp_path / "victim" / ".tmp-precious").mkdir()
    return next((tmp_path / "runs").glob("rtd-*"))


def interrupted(run: Path) -> None:
    """As if it had been killed before its end."""
    (run / "done.json").unlink()
    shutil.rmtree(run / "encoder")
    shutil.rmtree(run / "scores")


def replaced(name: str, content: str | None = None) -> Callable[[Path], None]:
    """`name` is another file, or with None a link to a folder outside."""

    def damage(run: Path) -> None:
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if content is None:
            path.symlink_to(run.parents[1] / "victim")
        else:
            path.write_text(content)

    return damage


def changed(name: str, **more: object) -> Callable[[Path], None]:
    """Other content with a hash that fits it."""

    def damage(run: Path) -> None:
        path = next(run.glob(name))
        path.write_bytes(sealed(read_object(path) | more))

    return damage


def pipe(name: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return damage


def without_a_row(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:4] + lines[5:]))


def bit_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flipped(run: Path) -> None:
    """A bit of the encoder's weights, which are still to be measured."""
    bit_flipped(run / "encoder" / "model.safetensors")
    for name in os.listdir(run / "scores"):
        RunDir(run).remove(f"scores/{name}")


def in_order(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda run: [damage(run) for damage in damages] and None


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "checkpoints is a link": (in_order(interrupted, replaced("checkpoints")), "checkpoints is a link or a file"),
    "encoder is a file": (replaced("encoder", "x"), "encoder is a link or a file"),
    "scores is a link": (replaced("scores"), "scores is a link or a file"),
    "the log is a pipe": (in_order(interrupted, pipe("metrics.jsonl")), "metrics.jsonl is not a regular file"),
    "the lease is a pipe": (in_order(interrupted, pipe("lease")), "lease is not a regular file"),
    "the lease is a folder": (in_order(interrupted, lambda run: (run / "lease").mkdir()), "lease is not a regular"),
    "the log lacks a row": (without_a_row, "metrics.jsonl has"),
    "the log lacked a row": (in_order(interrupted, without_a_row), "lacks the row of step 5"),
    "a bit of the encoder": (flipped, "model.safetensors has changed"),
    "a score": (changed("scores/*.json", value=99.9), "is not among its values"),
    "a score's values": (changed("scores/*.json", values=3), "no usable 'values'"),
    "a plan of words": (in_order(interrupted, changed("plan.json", steps="many")), "no usable 'steps'"),
    "a shorter plan": (in_order(interrupted, changed("plan.json", steps=10)), "there is a checkpoint of step 12"),
    "an environment": (in_order(interrupted, changed("env.json", versions=[])), "no usable 'versions'"),
    "an error": (replaced("error.json", '{"format":1,"kind":"failed","message":"x"}'), "error.json has changed"),
    "a wanted score": (replaced("wanted.json", '{"format":1,"scores":["../../../x"]}'), "wanted.json has changed"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_named_and_left_alone(case: str, run: Path, workbench: Command, text: Path, table: Path) -> None:
    damage, named = CASES[case]
    damage(run)
    folder = run.parents[1]
    before = sorted(os.walk(folder / "victim"))
    done = workbench(*words(text, table), cwd=folder)
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stderr.splitlines() if named in line]
    assert told and str(run) in told[0], done.stderr
    assert re.search("give (the same command|the command that trained it) again", told[0]), done.stderr
    assert "internal error" not in done.stderr and "Error" not in done.stderr, done.stderr
    assert sorted(os.walk(folder / "victim")) == before


@pytest.mark.parametrize("name", ["encoder/model.safetensors", "heads/model.safetensors"])
def test_no_command_calls_a_changed_run_done(run: Path, name: str, workbench: Command, text: Path, table: Path) -> None:
    bit_flipped(run / name)
    folder = run.parents[1]
    spare = folder / "spare"
    commands: dict[str, list[str]] = {
        "run": words(text, table), "status": ["status"], "runs": ["runs"], "report": ["report", "ablation"],
        "report without hashes": ["report", "ablation", "--no-verify"], "export": ["export", "ablation"],
        "models": ["export", run.name, "--checkpoint", str(spare)], "dry run": [*words(text, table), "--dry-run"],
    }  # fmt: skip
    for command in commands if name.startswith("encoder") else ("run", "status", "report", "models"):
        done = workbench(*commands[command], cwd=folder)
        assert done.returncode == 1, (command, done.stdout, done.stderr)
        printed = done.stdout if command in ("status", "runs") else done.stderr
        assert "damaged" in printed and run.name in printed, (command, printed)
        if command != "runs":
            assert f"{name} has changed since it was written" in printed, (command, printed)
        if command not in ("status", "runs"):
            assert re.search(r"give the .* again, .* \(workbench verify (\S*/)?runs names", printed), (command, printed)
        if command == "run":
            assert "1 of 2 runs are done" in done.stdout and f"damaged: {run.name}: {name}" in done.stdout
    assert not spare.exists()


def test_run_says_what_its_report_left_out_even_if_times_do_not_tell(
    run: Path, workbench: Command, text: Path, table: Path
) -> None:
    bit_flipped(run / "encoder/model.safetensors")
    time.sleep(0.02)
    os.utime(run / "done.json")
    done = workbench(*words(text, table), "--json", cwd=run.parents[1])
    states = {row["run_id"]: row["state"] for row in json.loads(done.stdout)["runs"]}
    assert done.returncode == 1 and states.pop(run.name) == "damaged" and set(states.values()) == {"done"}


def test_an_encoder_that_changed_in_its_run_is_not_evaluated(
    run: Path, workbench: Command, table: Path, tmp_path: Path
) -> None:
    words = ["--tasks", table, "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]
    bit_flipped(run / "encoder/model.safetensors")
    done = workbench("evaluate", run / "encoder", *words, cwd=tmp_path)
    assert done.returncode == 1 and "model.safetensors has changed since it was written; to evaluate" in done.stderr
    shutil.copytree(run / "encoder", tmp_path / "encoder")
    assert workbench("evaluate", tmp_path / "encoder", *words, cwd=tmp_path).returncode == 0


def test_a_link_in_place_of_the_records_is_not_followed(run: Path, workbench: Command, text: Path, table: Path) -> None:
    folder = run.parents[1]
    before = sorted(os.walk(folder / "victim"))
    shutil.rmtree(folder / "runs" / "experiments")
    (folder / "runs" / "experiments").symlink_to(folder / "victim")
    done = workbench(*words(text, table), cwd=folder)
    assert done.returncode == 2 and "experiments must be a folder" in done.stderr
    assert sorted(os.walk(folder / "victim")) == before


def test_fields_of_a_later_version_are_left_alone(run: Path, workbench: Command, text: Path, table: Path) -> None:
    in_order(interrupted, changed("plan.json", later=1), changed("env.json", later=1))(run)
    workbench(*words(text, table), cwd=run.parents[1], ends=0)


@pytest.mark.parametrize(("change", "key"), [(["--micro-batch", "8"], "micro_batch"), (["--plain"], "plain")])
def test_what_changes_the_last_digits_is_said_and_kept(
    change: list[str], key: str, run: Path, workbench: Command, text: Path, table: Path
) -> None:
    interrupted(run)
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    before = json.loads((run / "env.json").read_text())["arithmetic"]
    given = words(text, table)
    if change[0] in given:
        del given[(at := given.index(change[0])) : at + 2]
    done = workbench(*given, *change, cwd=run.parents[1])
    assert done.returncode == 0 and f"continues with {key}" in done.stderr, done.stderr
    also = ["kernels"] if key == "plain" and compiled.available(torch.float32) else []  # which that leaves out
    facts = json.loads((run / "env.json").read_text())
    assert [each["key"] for each in facts["changes"]] == [key, *also]
    # Micro-batches change the order of sums alone; --plain is another kind of arithmetic.
    assert before.startswith("fp32 / ") and ("/ plain /" in facts["arithmetic"]) == (key == "plain")
    assert kinds_of_arithmetic(facts) == [before, facts["arithmetic"]][key == "micro_batch" :]


def test_prepared_tokens_that_changed_are_prepared_anew(
    workbench: Command, text: Path, table: Path, tmp_path: Path
) -> None:
    given = [*words(text, table), "--set", "seed=7"]
    cache = tmp_path / "cache"
    workbench("data", "prepare", "--corpus", text, *SETS, cwd=tmp_path, WORKBENCH_CACHE=str(cache))
    shard = next(cache.rglob("tokens-00000.bin"))
    whole = shard.read_bytes()
    bit_flipped(shard)
    done = workbench(*given, cwd=tmp_path, WORKBENCH_CACHE=str(cache))
    assert (
        done.returncode == 0 and f"{shard.parent} in the cache cannot be used: {shard.name} has changed" in done.stderr
    )
    assert shard.read_bytes() == whole
