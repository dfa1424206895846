"""What `--help` says, of every command."""

import shlex
from collections.abc import Iterator

import pytest
from typer.main import get_command

from skep.cli.commands import app

WIDTH = 80 - 2 - 6
"""Of a terminal of 80 columns, without the margin and the gaps around a name."""


def commands(group=None, path=("skep",)) -> Iterator:
    """Every command and group below, with its path."""
    group = group or get_command(app)
    for name, command in group.commands.items():
        yield (*path, name), command, WIDTH - max(map(len, group.commands))
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


ALL = list(commands())
LEAVES = [(path, command) for path, command, _ in ALL if not hasattr(command, "commands")]


def named(each):
    return " ".join(each) if isinstance(each, tuple) else ""


@pytest.mark.parametrize(("path", "command", "width"), ALL, ids=named)
def test_the_list_of_commands_says_in_a_line_what_each_does(path, command, width):
    said = command.get_short_help_str(width)

    assert said.endswith(".")
    assert not said.endswith("...")


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=named)
def test_every_flag_and_argument_is_explained(path, command):
    for parameter in command.params:
        assert (parameter.help or "").rstrip().endswith("."), parameter.name


def find_command(words):
    """Return the command that words name, and its arguments."""
    command = get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


EXAMPLES = [
    line.strip()
    for _, command in LEAVES
    for line in (command.epilog or "").splitlines()
    if line.strip().startswith("skep ")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_understood(example):
    words = shlex.split(example, comments=True)
    words = words[1 : next((words.index(mark) for mark in "<>" if mark in words), None)]
    command, arguments = find_command(words)

    assert command.make_context(named(tuple(words)), arguments) is not None


def test_the_commands_of_every_day_have_examples():
    assert {"serve", "push", "pop", "ack", "tail", "apply"} <= {
        example.split()[1] for example in EXAMPLES
    }


def help_of(run, *path):
    return run(*path, "--help").out


def test_commands_stand_in_groups(run):
    told = help_of(run)

    places = [
        told.index(f"\n{panel}:") for panel in ("Messages", "Operate", "Jobs", "Data", "Server")
    ]
    assert places == sorted(places)
    assert places[0] < told.index("  push ") < places[1] < told.index("  queues ") < places[2]


def test_what_names_the_broker_stands_behind_the_options_of_the_command(run):
    told = help_of(run, "queues", "list")

    options, connection = told.index("\nOptions:"), told.index("\nConnection:")
    assert options < told.index("--namespace") < connection < told.index("--url")
    assert told.count("--url") == 1


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=named)
def test_no_type_of_the_program_is_shown(run, path, command):
    told = help_of(run, *path[1:])

    assert not {"<int", "<str", "<float", "<bool", "<UUID", "x>="} & set(
        told.replace("[", " ").split()
    )
    for parameter in command.params:
        choices = parameter.type_descriptor.choices if hasattr(parameter, "type_descriptor") else ()
        for choice in choices or ():
            assert str(choice) in told


def test_the_version_is_an_option(run):
    assert run("--version").out.startswith("skep ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("queus",), "Did you mean 'queues'?"),
        (("queues", "lits"), "Did you mean 'list'?"),
        (("queues", "list", "--limt", "3"), "--limit"),
        (("queues", "list", "-o", "tabel"), "not one of table, wide, json, ndjson, yaml. Did you"),
        (("queues", "configure", "q", "--set", "leaseTme=1"), "Did you mean leaseTime?"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(run, arguments, said):
    assert said in run(*arguments, code=1).err
