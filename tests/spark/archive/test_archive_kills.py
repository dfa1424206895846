"""An archive run whose process is killed: the next one goes on, and every message is there once."""

import signal
import subprocess
import sys

import pytest

from skep.spark.runtime.postgres import forget_connections
from tests.spark.support.archives import Shop

ARCHIVE = """
import os, signal, sys
from skep.spark.archive.archiver import Archiver, ArchivePlan
from skep.spark.archive.lake import Lake
from skep.spark.runtime.tasks import run_here

url, warehouse, step = sys.argv[1:]

def die(done):
    if done == step:
        os.kill(os.getpid(), signal.SIGKILL)

plan = ArchivePlan(url=url, warehouse=warehouse, messages_per_run=3, messages_per_task=1)
with Lake(url, {}) as lake:
    Archiver(lake, plan, run_here, on_step=die).archive()
"""


@pytest.fixture
def shop(database_url, tmp_path, writer):
    yield Shop(database_url, tmp_path / "lake", writer)
    forget_connections()


@pytest.mark.slow
def test_killed_at_every_step_in_turn_the_ledger_is_whole(shop):
    pushed = []
    for number, step in enumerate(["planned", "copied", "added", "deleted", "committed"]):
        batch = list(range(number * 10, number * 10 + 4))
        for payload in batch:
            shop.push_old(payload, partition=f"p{payload % 3}")
        shop.read_all()
        pushed += batch

        command = [sys.executable, "-c", ARCHIVE, shop.url, shop.warehouse, step]
        ended = subprocess.run(command, timeout=60, check=False)

        assert ended.returncode == -signal.SIGKILL
        assert shop.read(tier="all") == pushed
    shop.archive()

    assert shop.archived() == pushed
    assert shop.live() == []
    assert shop.left_over() == []
