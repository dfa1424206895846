"""The command line, run in this process against a broker in processes of its own."""

import io
import json
from dataclasses import dataclass

import pytest

from skep.cli import main
from skep.client import Client


@dataclass(frozen=True)
class Ending:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)

    def ndjson(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def config_home(tmp_path, monkeypatch):
    """A user's configuration directory with nothing in it, and no variables."""
    for name in ("SKEP_URL", "SKEP_TOKEN", "SKEP_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "skep"


@pytest.fixture
def run(capsys, config_home, monkeypatch):
    """Run a command as `skep` would; a code that is not expected fails the test."""

    def run(*arguments, code=0, stdin=""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        ended = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert ended == code, said.out + said.err
        return Ending(ended, said.out, said.err)

    return run


@pytest.fixture
def skep(run, broker, monkeypatch):
    """Run a command against the broker."""
    monkeypatch.setenv("SKEP_URL", broker.url)
    return run


@pytest.fixture
def api(broker):
    """A client of the broker, to prepare and to look."""
    with Client(broker.url) as client:
        yield client
