"""What a machine grants: cores, threads, devices, rows that are computed at once; and the options of jobs."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.spec import host
from workbench.spec.host import OPTIONS, Host, Launch, checked, seconds

CPU_MOUNT = "33 25 0:28 {root} {place} rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
UNIFIED = "30 23 0:26 {root} {place} rw,nosuid - cgroup2 cgroup rw,nsdelegate"
OTHERS = "22 1 8:1 / / rw - ext4 /dev/sda rw\n34 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"


def at(mount: str, place: str = "/sys/fs/cgroup", root: str = "/") -> str:
    return f"{OTHERS}\n{mount.format(root=root, place=place)}"


V1, V1_NAME = at(CPU_MOUNT, "/sys/fs/cgroup/cpu,cpuacct"), "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected"),
    [
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "9900000 100000"}, 8),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "150000 100000"}, 1),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "399999 100000"}, 3),
        ("0::/", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "nonsense"}, 8),
        ("0::/", at(UNIFIED), {}, 8),
        # nested groups: the least quota of a group and those above it, and no quota of another
        ("0::/a/b/c", at(UNIFIED),
         {"sys/fs/cgroup/a/cpu.max": "350000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000",
          "sys/fs/cgroup/a/b/c/cpu.max": "700000 100000", "sys/fs/cgroup/z/cpu.max": "1 1"}, 3),
        ("0::/a/b", at(UNIFIED), {"sys/fs/cgroup/a/b/cpu.max": "250000 50000", "sys/fs/cgroup/a/cpu.max": "max 5"}, 5),
        ("0::/a:b/gone", at(UNIFIED), {"sys/fs/cgroup/a:b/cpu.max": "400000 100000"}, 4),
        # a container whose mount begins at its group, and one that is seen from outside of its namespace
        ("0::/docker/f00", at(UNIFIED, root="/docker/f00"), {"sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        ("0::/../../job", at(UNIFIED), {"sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        ("0::/a", at(UNIFIED, "/my\\040groups"), {"my groups/a/cpu.max": "300000 100000"}, 3),
        # version 1, and both versions side by side
        ("4:cpu,cpuacct:/", V1, {f"{V1_NAME}/cpu.cfs_quota_us": "-1", f"{V1_NAME}/cpu.cfs_period_us": "100000"}, 8),
        ("4:cpu,cpuacct:/", V1,
         {f"{V1_NAME}/cpu.cfs_quota_us": "250000\n", f"{V1_NAME}/cpu.cfs_period_us": "100000\n"}, 2),
        ("4:cpu,cpuacct:/docker/f00", at(CPU_MOUNT, "/cg/cpu", "/docker/f00"),
         {"cg/cpu/cpu.cfs_quota_us": "600000", "cg/cpu/cpu.cfs_period_us": "100000"}, 6),
        ("5:cpuset:/x\n4:cpuacct,cpu:/slurm/job\n1:name=systemd:/y\n0::/", f"{at(UNIFIED, '/cg/unified')}\n{V1}",
         {f"{V1_NAME}/slurm/job/cpu.cfs_quota_us": "-1", f"{V1_NAME}/slurm/job/cpu.cfs_period_us": "100000",
          f"{V1_NAME}/slurm/cpu.cfs_quota_us": "420000", f"{V1_NAME}/slurm/cpu.cfs_period_us": "100000"}, 4),
        ("5:cpuset:/x", V1, {f"{V1_NAME}/cpu.cfs_quota_us": "1", f"{V1_NAME}/cpu.cfs_period_us": "1"}, 8),
        (None, at(UNIFIED), {"sys/fs/cgroup/cpu.max": "200000 100000"}, 8),
    ],
)  # fmt: skip
def test_cpu_quotas_count_as_fewer_cores(
    groups: str | None,
    mounts: str,
    files: dict[str, str],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    given = files | {"proc/self/mountinfo": mounts} | ({"proc/self/cgroup": groups} if groups is not None else {})
    for name, content in given.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert host.cores(tmp_path) == expected


def test_cores_of_this_machine_are_within_those_that_the_process_is_bound_to() -> None:
    assert 1 <= host.cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(("limit", "expected"), [(None, 4), ("2", 2), ("3,2", 3), ("64", 4), ("0", 1), ("many", 4)])
def test_threads_stay_within_what_the_environment_grants(
    limit: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert host.threads_for_each(2) == expected


@example(12, 2, 4)  # a divisor of the batch, and not of the part of a device
@given(st.integers(1, 512), st.integers(1, 8), st.none() | st.integers(1, 600))
def test_rows_at_once_divide_the_part_of_each_device(batch: int, devices: int, micro: int | None) -> None:
    host = Host(devices=devices, micro_batch=micro)
    part = batch / devices
    if batch % devices or (micro is not None and part % min(micro, part)):
        uneven = batch % devices or devices == 1
        of = f"batch.size={batch}" if uneven else f"the {part:g} rows of each device"
        with pytest.raises(InputError, match=f"does not divide {of}; choose a divisor of it"):
            host.rows_at_once(batch)
    else:
        assert host.rows_at_once(batch) == (part if micro is None else min(micro, part))


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda:0", "has no CUDA device"),
        ("mps", "finds no Metal device"),
        *(
            (word, f"'{word}' is not one of auto, cpu,")
            for word in ("tpu", "cpu:-1", "cpu:0", "cuda:", "cuda:x", "cuda:٣")
        ),
    ],
)
def test_a_device_that_is_not_here_is_refused(device: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(InputError, match=words):
        Host(device=device).resolved_device()
    assert Host().resolved_device() == "cpu"


def test_a_card_that_is_not_here_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert Host(device="cuda:1").resolved_device() == "cuda:1"
    with pytest.raises(InputError, match="cuda:2: this machine has 2 CUDA devices, numbered from 0"):
        Host(device="cuda:2").resolved_device()


@pytest.mark.parametrize(
    ("given_host", "cuda", "capability", "width", "precision"),
    [
        ({}, False, "avx512_bf16", host.WIDE, "bf16"),
        ({}, False, "amx_bf16", host.WIDE, "bf16"),
        ({}, False, "avx512_bf16", host.WIDE - 1, "fp32"),
        ({}, False, "avx512_f", host.WIDE, "fp32"),
        ({}, True, "avx2", 8, "bf16"),
        ({"plain": True}, True, "amx_bf16", host.WIDE, "fp32"),
        ({"plain": True, "precision": "bf16"}, False, "avx2", 8, "bf16"),
        ({"precision": "fp32"}, True, "amx_bf16", host.WIDE, "fp32"),
    ],
)
def test_the_precision_follows_the_device_and_the_width(
    given_host: dict[str, Any], cuda: bool, capability: str, width: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {capability: True})
    assert Host(**given_host).resolved_precision(width) == precision


@pytest.mark.parametrize(
    ("variables", "launched", "follows"),
    [
        ({}, 1, False),
        ({"WORLD_SIZE": "4", "RANK": "2"}, 1, False),  # of another program than torchrun
        ({"WORLD_SIZE": "4", "RANK": "2", "TORCHELASTIC_RUN_ID": "x"}, 4, True),
        ({"WORLD_SIZE": "4", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, 4, False),
        ({"RANK": "1", host.PARENT: "17"}, 1, True),
    ],
)
def test_processes_of_torchrun_are_told_from_others(
    variables: dict[str, str], launched: int, follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", host.PARENT):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (host.launched(), host.follows()) == (launched, follows)


@pytest.mark.parametrize(
    ("capabilities", "widest"),
    [
        ({"amx_bf16": True, "avx512_bf16": True, "avx512_f": True, "avx2": True}, "amx"),
        ({"amx_bf16": False, "avx512_bf16": True, "avx512_f": True, "avx2": True}, "avx512-bf16"),
        ({"avx512_f": True, "avx2": True}, "avx512"),
        ({"avx2": True}, "avx2"),
        ({}, platform.machine()),
    ],
)
def test_the_widest_instructions_are_told_with_limits_that_the_environment_sets(
    capabilities: dict[str, bool], widest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    for name in host.ISA_LIMITS:
        monkeypatch.delenv(name, raising=False)
    assert host.instructions() == widest
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert host.instructions() == f"{widest}, ONEDNN_MAX_CPU_ISA=AVX512_CORE"


def test_every_option_is_a_field_of_a_launch_or_names_the_file_of_several() -> None:
    assert OPTIONS.keys() - {"profile"} == {field.name for field in dataclasses.fields(Launch)}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "profile"])
def test_a_checked_value_has_the_type_of_its_field(name: str) -> None:
    [value] = checked({name: OPTIONS[name][1]}, "--set").values()
    default = getattr(Launch(), name)
    assert str(value) == OPTIONS[name][1]
    assert isinstance(value, int) == (name in ("gpus", "cpus", "seconds_before"))
    assert default is None or type(value) is type(default)


@settings(max_examples=50)
@example("partition", True)
@given(st.sampled_from(sorted(OPTIONS)), st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text()))
def test_any_value_is_taken_or_refused_in_a_line(name: str, value: object) -> None:
    """What is taken has no line end, which would begin a line of its own in a job's script."""
    try:
        [found] = checked({name: value}, "profile.toml").values()
    except InputError as error:
        assert str(error).startswith(f"profile.toml: launch.{name}=") and "\n" not in str(error)
    else:
        assert not isinstance(value, bool) and str(found) and "\n" not in str(found) and "\x00" not in str(found)


@pytest.mark.parametrize("value", ["a\x00", "\x1b[2J", "a b"])
def test_a_name_has_no_control_characters_and_no_blanks(value: str) -> None:
    with pytest.raises(InputError, match=r"launch\.account="):
        checked({"account": value}, "profile.toml")


@pytest.mark.parametrize(
    ("time", "length"),
    [
        ("0", 0), ("90", 5400), ("90:30", 5430), ("04:00:00", 14400), ("100:00:59", 360059), ("1-0", 86400),
        ("2-23", 255600), ("1-2:30", 95400), ("1-02:30:05", 95405),
    ],
)  # fmt: skip
def test_a_time_is_taken_as_sbatch_takes_it(time: str, length: int) -> None:
    assert checked({"time": time}, "--set") == {"time": time} and seconds(time) == length


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "99:99:99"), ("time", "1:60"), ("time", "1-24"), ("time", "1-2:60"), ("time", "99999999"),
        ("time", "\u0663:\u0663"), ("time", "1-2-3"), ("time", "1:2:3:4"), ("memory", "\u0663G"), ("memory", "1e3"),
        ("memory", "99999T"), ("gpus", "1\u0663"), ("cpus", "0"),
    ],
)  # fmt: skip
def test_a_time_or_an_amount_that_no_job_has_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=rf"^--set: launch\.{name}=.* cannot be used; a usable value is '"):
        checked({name: value}, "--set")
