"""The pytest plugin gives a running broker, and takes it away again."""

import socket
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

import pytest

from skep.testing import BrokerNotStarted, running_broker

USERS_TESTS = """
def test_a_message_comes_back(skep_client, skep_queue):
    skep_client.push(skep_queue, {"n": 1})

    (message,) = skep_client.pop(skep_queue)

    assert message.data == {"n": 1}


def test_another_has_another_queue(skep_client, skep_queue, skep_broker):
    assert skep_client.pop(skep_queue) == []
    assert skep_broker.url.startswith("http://")
"""


def is_listening(url):
    parts = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


@pytest.mark.slow
def test_the_fixtures_serve_tests_of_a_user(tmp_path):
    (tmp_path / "test_orders.py").write_text(USERS_TESTS)
    # The plugin is found by its entry point, as it is by users.
    command = [sys.executable, "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_broker_and_its_files_are_gone_after_the_block(database_url, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # others use the usual one, too
    with running_broker(["--database-url", database_url]) as broker:
        assert is_listening(broker.url)
        (home,) = tmp_path.glob("skep-testing-*")

    assert not is_listening(broker.url)
    assert not home.exists()


def test_a_broker_that_does_not_start_says_why():
    with pytest.raises(BrokerNotStarted, match="skep serve"), running_broker(["--port", "-5"]):
        pass
