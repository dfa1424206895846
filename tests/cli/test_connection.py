"""Commands that speak to a broker: what they are given, and how they fail."""

import os
import subprocess
import sys

import pytest
import typer

from skep.cli.shared.connection import complete_queue, with_client
from skep.cli.shared.exits import Nothing, exit_code_of, line_of
from skep.cli.shared.options import confirm
from skep.client import AccessDenied, NotSent, OutcomeUnknown
from skep.db.access.errors import NotExecuted
from skep.model.errors import BadRequest, Defect, Forbidden, NotFound, Overloaded


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadRequest(), 1),
        (NotFound(), 1),
        (Overloaded(), 2),
        (Defect(), 2),
        (OutcomeUnknown(), 2),
        (NotSent(), 2),
        (AccessDenied(), 3),
        (Forbidden(), 3),
        (Nothing(), 4),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (NotFound("Queue not found"), "`skep queues list`"),
        (NotFound("Consumer group not found"), "`skep groups list`"),
        (NotExecuted("cannot connect to the database"), "`skep config`"),
    ],
)
def test_an_error_that_names_no_command_is_told_with_one(error, advice):
    assert line_of(error).startswith(f"skep: {error.message}; ")
    assert advice in line_of(error)


@pytest.fixture
def probe(monkeypatch):
    """A command that asks the broker how it is."""
    app = typer.Typer()

    @app.command()
    @with_client
    def probe(client, word: str, *, times: int = 1):
        typer.echo(f"{word * times} {client.health()['status']}")

    monkeypatch.setattr("skep.cli.commands.app", app)


def test_a_command_gets_a_client_and_the_flags_for_it(skep, probe, broker):
    assert skep("hi", "--times", "2").out == "hihi healthy\n"
    assert "--context" in skep("--help").out


def test_flags_name_the_broker(run, probe, broker):
    assert run("hi", "--url", broker.url).out == "hi healthy\n"


def test_a_broker_that_is_away_is_named_in_one_line(run, probe):
    said = run("hi", "--url", "http://127.0.0.1:1", code=2).err

    assert "http://127.0.0.1:1 does not answer: Connect" in said
    assert "Errno" not in said
    assert "the URL is from --url" in said
    assert "skep context show" in said
    assert len(said.splitlines()) == 1


def typed(**params):
    return type("Context", (), {"params": params})


def test_queues_are_completed_from_the_broker(broker, api, config_home, queue):
    api.queues.configure(queue)

    assert queue in complete_queue(typed(url=broker.url), queue[:-1])
    assert complete_queue(typed(url=broker.url), "no-such-queue-") == []


def test_completion_is_silent_when_the_broker_is_away(config_home, capsys):
    assert complete_queue(typed(url="http://127.0.0.1:1"), "") == []
    assert complete_queue(typed(url="nonsense"), "") == []
    assert capsys.readouterr() == ("", "")


def test_a_shell_completes_queues_in_a_process_of_its_own(broker, api, config_home, queue):
    api.queues.configure(queue)
    program = "import sys; sys.argv = ['skep']; from skep.cli import main; sys.exit(main())"

    def complete(words):
        variables = {
            "_SKEP_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert queue in complete(f"skep tail --url {broker.url} {queue[:-1]}")
    assert complete("skep tail --url http://127.0.0.1:1 queue") == []
    assert complete("skep conte") == ["context"]


class Terminal:
    def __init__(self, answer):
        self._answer = answer

    def isatty(self):
        return True

    def readline(self, *_):
        return self._answer


def test_a_question_is_not_asked_when_it_is_answered():
    confirm("Really?", is_answered=True)


def test_a_question_is_refused_where_nobody_is(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(BadRequest, match="--yes"):
        confirm("Really?", is_answered=False)


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False)])
def test_a_person_is_asked(monkeypatch, answer, goes_on):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("builtins.input", lambda _="": answer.strip())

    if goes_on:
        confirm("Really?", is_answered=False)
    else:
        with pytest.raises(typer.Abort):
            confirm("Really?", is_answered=False)


HEAVY = ("asyncpg", "litestar", "pyspark", "rich", "skep.app", "skep.client", "skep.db", "yaml")


def test_help_imports_nothing_that_only_commands_need():
    program = f"import sys, skep.cli.commands; print([m for m in {HEAVY} if m in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.strip() == "[]", done.stderr
