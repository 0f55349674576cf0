"""A real SLURM cluster of one node on this machine (Debian: slurm-wlm and munge), and commands that use it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drills.small import environment

Tool = Callable[[str, bytes], None]  # writes a program that stands for a command of SLURM
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={other}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    """Why there can be no cluster here, or "" if there can."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"SLURM is not installed: no {', '.join(missing)} (Debian: slurm-wlm and munge)"
    return "" if os.geteuid() == 0 else "SLURM's daemons are started by root alone"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Yield the path of slurm.conf of a cluster with one idle node, whose daemons are stopped afterwards."""
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    path = folder / "slurm.conf"
    ports = free_port(), free_port()
    cpus = len(os.sched_getaffinity(0))
    path.write_text(CONFIGURATION.format(host=host, port=ports[0], other=ports[1], folder=folder, cpus=cpus))
    munge()
    cluster = {"SLURM_CONF": str(path)}
    surroundings = os.environ | cluster
    try:
        subprocess.run(["slurmctld", "-f", str(path)], check=True, env=surroundings, timeout=60)
        until(lambda: "Slurmctld(primary) at" in asked(cluster, "scontrol", "ping"), 30)
        subprocess.run(["slurmd", "-f", str(path), "-N", host], check=True, env=surroundings, timeout=60)
        until(lambda: "idle" in asked(cluster, "sinfo", "--noheader"), 60)
        yield str(path)
    finally:
        asked(cluster, "scancel", "--user=root")
        for name in ("d.pid", "ctld.pid"):
            with suppress(OSError, ValueError):
                os.kill(int((folder / name).read_text()), signal.SIGTERM)


def munge() -> None:
    """Start the authentication daemon unless it runs."""
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
        return
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    subprocess.run(["su", "munge", "-s", "/bin/sh", "-c", "munged --force"], check=True, timeout=60)
    until(lambda: subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0, 10)


def asked(cluster: dict[str, str], *command: str) -> str:
    """Return what a command of SLURM printed."""
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | cluster, check=False, timeout=60)
    return done.stdout + done.stderr


def until(condition: Callable[[], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "SLURM did not get ready"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


LIMIT = 400.0


def begun(given: list[str], folder: Path, cache: Path, cluster: dict[str, str]) -> subprocess.Popen[str]:
    with (folder / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", *given, "--launcher", "slurm"], cwd=folder,
            env=environment(cache) | cluster, stderr=said, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip


def wait_for(found: Callable[[], Any], process: subprocess.Popen[str], folder: Path) -> Any:
    until = time.monotonic() + LIMIT
    while not (value := found()):
        assert process.poll() is None and time.monotonic() < until, (folder / "said").read_text()
        time.sleep(0.1)
    return value


def submitted(folder: Path) -> str:
    match = re.search(r"submitted to SLURM as (\d+)", (folder / "said").read_text())
    return match[1] if match else ""
