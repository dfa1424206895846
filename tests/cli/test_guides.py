"""A newcomer's way: the commands of README and guides run, page after page, in one broker."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, short

WRITTEN_URL = "http://127.0.0.1:6632"
WAY = (
    "README.md",
    "docs/guide/tutorial.md",
    "docs/guide/jobs.md",
    "docs/guide/cli.md",
    "docs/guide/cli-admin.md",
    "docs/guide/pipelines.md",
    "docs/guide/spark.md",
)
"""The steps of a page work after those of all pages before it."""

# The steps share a broker, so one process takes them all, whichever of them it is asked for.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("guides"), pytest.mark.timeout(600)]


class Newcomer:
    """Follows pages in one folder, with a shell; keeps what they printed."""

    def __init__(self, broker, folder):
        self._url = broker.url
        self._folder = folder
        self._printed = {}
        programs = folder / "bin"
        programs.mkdir()
        for name, module in (("skep", "-m skep"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)
        self._variables = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            # Nothing may reach the contexts and the keyring of the person who runs this.
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "SKEP_DATABASE_URL": broker.database_url,
            "SKEP_DATA_DIR": str(folder),
            "SKEP_URL": broker.url,
        }

    def follow(self, page):
        """Follow all pages up to this one that were not followed yet; return what it printed."""
        for name in WAY[: WAY.index(page) + 1]:
            if name not in self._printed:
                self._printed[name] = self._run((ROOT / name).read_text())
        return self._printed[page]

    def _run(self, text):
        text = text.replace(WRITTEN_URL, self._url)
        for name, content in re.findall(r"Save as `(\S+?)`:\n\n```\w+\n(.*?)```", text, re.DOTALL):
            (self._folder / name).write_text(content)
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
        with subprocess.Popen(
            ["bash", "-ec", commands],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                printed, _ = shell.communicate(timeout=240)
            finally:
                stop_all(shell)
        assert shell.returncode == 0, printed
        return printed


def stop_all(shell):
    """End what the commands left in the background, if they did not end it themselves."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def newcomer(start_broker, tmp_path_factory):
    """Someone with a broker of their own, which nothing else has used."""
    with start_broker("--workers", "1") as broker:
        yield Newcomer(broker, tmp_path_factory.mktemp("newcomer"))


def test_the_readme_pushes_pops_and_acks(newcomer):
    printed = newcomer.follow("README.md")

    assert '"status":"queued"' in printed
    assert '"success":true' in printed


def test_the_tutorial_runs_from_a_first_message_to_a_stream(newcomer):
    printed = newcomer.follow("docs/guide/tutorial.md")

    assert re.findall(r"^billed .*", printed, re.MULTILINE) == [
        "billed customer-7 40 in paris",
        "billed customer-7 2 in paris",
    ]
    assert "a negative amount" in printed
    assert "order 42 is on its way" in printed
    assert sorted(re.findall(r'"data":(\{"shop".*?\})', printed)) == [
        '{"shop":"paris","amount":2}',
        '{"shop":"paris","amount":40}',
    ]


def test_jobs_fail_visibly_and_go_on_when_the_cause_is_removed(newcomer):
    printed = newcomer.follow("docs/guide/jobs.md")

    assert "ConnectionError: the mail gateway is down" in printed
    assert '"sent to bob@example.org"' in printed
    assert len(re.findall(r" write +completed", printed)) == 2


def test_the_commands_on_messages_run_in_their_order(newcomer):
    printed = newcomer.follow("docs/guide/cli.md")

    assert "500 lines of numbers.ndjson: 500 queued, 0 duplicate" in printed
    assert "500 lines of numbers.ndjson: 0 queued, 500 duplicate" in printed
    assert "note-1" in printed
    assert "pooler" in printed


def test_the_commands_for_operators_run_in_their_order(newcomer):
    printed = newcomer.follow("docs/guide/cli-admin.md")

    assert "Applied 2 changes" in printed
    assert "cannot be parsed" in printed
    assert re.search(r"^consume +[\d,]+", printed, re.MULTILINE)


def test_the_pipeline_writes_the_window_that_is_over(newcomer):
    printed = newcomer.follow("docs/guide/pipelines.md")

    assert "revenue: 1 test passed" in printed
    assert re.search(r'"shop":"paris","orders":2,"revenue":42\b', printed)
    assert re.search(r"^file://.*/pipelines/revenue-\w+/data/.*\.parquet$", printed, re.MULTILINE)
    assert re.search(r"positive \(queue, drop\): 0 of \d+ rows? failed", printed)


def test_a_command_on_spark_prints_its_own_lines_only(newcomer):
    printed = newcomer.follow("docs/guide/pipelines.md")

    started = re.findall(r"^Starting Spark .* its log: (.*)$", printed, re.MULTILINE)
    assert len(started) == 2
    assert "WARN" not in printed
    assert all("log4j" in Path(each).read_text() for each in started)


def test_spark_reads_and_writes_queues(newcomer):
    printed = newcomer.follow("docs/guide/spark.md")

    assert '"data":{"partition":"kitchen","mean":21.5}' in printed
    assert '"data":{"celsius":31}' in printed


def test_every_page_with_commands_to_run_is_on_the_way():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]

    assert {short(page) for page in pages if "\n```sh\n" in page.read_text()} == set(WAY)
