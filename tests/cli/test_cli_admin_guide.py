"""The examples of the guide for operators are commands, with arguments and flags that exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from skep.cli.admin.declared_queues import parse_declaration
from skep.cli.commands import app

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "cli-admin.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
LINES = [
    line.partition(" #")[0].strip()
    for language, block in BLOCKS
    if not language
    for line in block.splitlines()
    if line.startswith("skep ")
]


def parsed(arguments):
    """Read arguments as the command would, and do nothing."""
    command = typer.main.get_command(app)
    context = command.context_class(command)
    while hasattr(command, "resolve_command"):
        name, command, arguments = command.resolve_command(context, arguments)
        context = command.context_class(command, info_name=name)
    return command.make_context(command.name, arguments)


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_a_command(line):
    assert parsed(shlex.split(line)[1:]).command.callback is not None


def test_a_flag_that_does_not_exist_would_be_found():
    with pytest.raises(Exception, match="--nothing"):
        parsed(["queues", "list", "--nothing"])


def test_the_file_of_queues_is_one():
    (text,) = [block for language, block in BLOCKS if language == "yaml"]

    assert list(parse_declaration(text, source="guide")) == ["orders", "mails"]
