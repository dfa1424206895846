"""`skep context`, and which broker a command speaks to."""

import stat
import sys
from types import SimpleNamespace

import pytest

from skep.cli.shared.connection import DEFAULT_URL, find_server
from skep.cli.shared.contexts import usable_keyring
from skep.settings.connection import ConnectionChoice


class MemoryKeyring:
    """A keyring that protects what it keeps, or fails at everything."""

    def __init__(self, priority=5, failure=None):
        self.priority = priority
        self.failure = failure
        self.kept = {}

    def get_password(self, service, name):
        self._fail()
        return self.kept.get((service, name))

    def set_password(self, service, name, token):
        self._fail()
        self.kept[service, name] = token

    def delete_password(self, service, name):
        self._fail()
        del self.kept[service, name]

    def _fail(self):
        if self.failure is not None:
            raise self.failure


@pytest.fixture(autouse=True)
def keyring(monkeypatch):
    """Let no test touch the keyring of whoever runs it."""
    backend = MemoryKeyring()
    module = SimpleNamespace(get_keyring=lambda: backend)
    monkeypatch.setitem(sys.modules, "keyring", module)
    return backend


def test_the_first_context_is_used_and_another_one_when_asked(run):
    run("context", "add", "home", "http://localhost:6632")
    run("context", "add", "prod", "https://a.example,https://b.example")

    assert run("context", "show", "-o", "json").json()["urls"] == "http://localhost:6632"
    run("context", "use", "prod")
    shown = run("context", "show", "-o", "json").json()
    assert shown["urls"] == "https://a.example,https://b.example"
    assert shown["from"] == "context prod"
    listed = run("context", "list", "-o", "json").json()
    assert [(each["name"], each["current"]) for each in listed] == [("home", False), ("prod", True)]


def test_a_token_is_kept_in_the_keyring_and_never_shown(run, keyring, config_home):
    run("context", "add", "prod", "https://a.example", "--token", "s3cret")

    assert keyring.kept == {("skep", "prod"): "s3cret"}
    assert "s3cret" not in (config_home / "contexts.toml").read_text()
    assert not (config_home / "tokens.toml").exists()
    assert find_server(ConnectionChoice()).token == "s3cret"
    for command in ("show", "list"):
        assert "s3cret" not in run("context", command).out
    run("context", "remove", "prod", "--yes")
    assert keyring.kept == {}


@pytest.mark.parametrize("is_locked", [True, False])
def test_without_a_keyring_a_token_is_in_a_file_of_the_owners(run, keyring, config_home, is_locked):
    if is_locked:
        keyring.failure = RuntimeError("locked")
    else:
        keyring.priority = 0

    run("context", "add", "prod", "https://a.example", "--token", "-", stdin='a"b\\c\n')

    file = config_home / "tokens.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find_server(ConnectionChoice()).token == 'a"b\\c'
    run("context", "remove", "prod", "--yes")
    assert "a" not in file.read_text()


def test_a_file_of_tokens_that_others_may_read_is_refused(run, keyring, config_home):
    keyring.priority = 0
    run("context", "add", "prod", "https://a.example", "--token", "t")
    (config_home / "tokens.toml").chmod(0o644)

    assert "chmod 600" in run("context", "show", code=1).err


def test_a_keyring_that_is_not_installed_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)

    assert usable_keyring() is None


def test_a_token_that_is_gone_from_where_it_was_says_so(run, keyring, config_home):
    run("context", "add", "prod", "https://a.example", "--token", "t")
    keyring.kept.clear()
    assert "add it again" in run("context", "show", code=1).err
    keyring.failure = RuntimeError("locked")
    assert "locked" in run("context", "show", code=2).err
    keyring.priority = 0
    assert "not available" in run("context", "show", code=2).err


def test_flags_win_over_variables_and_those_over_the_current_context(run, monkeypatch):
    assert find_server(ConnectionChoice()).urls == (DEFAULT_URL,)
    run("context", "add", "one", "http://one", "--token", "token-one")
    run("context", "add", "two", "http://two", "--token", "token-two")

    def chosen(**flags):
        server = find_server(ConnectionChoice(**flags))
        return server.urls[0], server.token

    assert chosen() == ("http://one", "token-one")
    assert chosen(context="two") == ("http://two", "token-two")
    monkeypatch.setenv("SKEP_CONTEXT", "two")
    assert chosen() == ("http://two", "token-two")
    monkeypatch.setenv("SKEP_URL", "http://variable")
    assert chosen() == ("http://variable", None)
    assert chosen(context="one") == ("http://one", "token-one")
    monkeypatch.setenv("SKEP_TOKEN", "token-variable")
    assert chosen() == ("http://variable", "token-variable")
    assert chosen(url="http://flag", token="token-flag") == ("http://flag", "token-flag")
    assert chosen(url="http://flag", context="one") == ("http://flag", "token-one")


def test_the_token_of_the_current_context_goes_nowhere_else(run):
    run("context", "add", "one", "http://one", "--token", "token-one")

    assert find_server(ConnectionChoice(url="http://elsewhere")).token is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "a b", "http://x"), "letters, digits"),
        (("add", "x", "ftp://x"), "Invalid broker URL"),
        (("add", "x", "http://x:99999"), "Invalid broker URL"),
        (("use", "nobody"), "context nobody does not exist"),
        (("remove", "nobody"), "context nobody does not exist"),
        (("show", "--context", "nobody"), "context nobody does not exist"),
        (("show", "--url", ","), "is empty"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, arguments, told):
    ended = run("context", *arguments, code=1)

    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_broken_file_is_named(run, config_home):
    config_home.mkdir(parents=True)
    (config_home / "contexts.toml").write_text("[[")

    assert "cannot read" in (said := run("context", "list", code=1).err)
    assert "contexts.toml" in said


def test_a_context_is_not_forgotten_where_nobody_can_be_asked(run):
    run("context", "add", "one", "http://one")

    assert "--yes" in run("context", "remove", "one", code=1).err
    assert len(run("context", "list", "-o", "ndjson").ndjson()) == 1


def test_adding_again_replaces_url_and_token(run, keyring):
    run("context", "add", "one", "http://one", "--token", "t")
    run("context", "add", "one", "http://uno")

    assert keyring.kept == {}
    assert find_server(ConnectionChoice()).urls == ("http://uno",)
