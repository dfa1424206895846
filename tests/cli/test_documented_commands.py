"""Every command in the documents exists, with its arguments and flags."""

import re
import shlex

import pytest
import typer

from skep.cli.admin.declared_queues import parse_declaration
from skep.cli.commands import app
from tests.tidy.tree import ROOT, documents, short

BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^skep .*", re.MULTILINE)


def documented():
    for path in documents():
        for block in BLOCK.findall(path.read_text()):
            for line in COMMAND.findall(block.replace("\\\n", " ")):
                yield pytest.param(line, id=f"{short(path)}: {line}")


def parsed(arguments):
    """Read arguments as the command would, and do nothing."""
    command = typer.main.get_command(app)
    context = command.context_class(command)
    while hasattr(command, "resolve_command"):
        name, command, arguments = command.resolve_command(context, arguments)
        context = command.context_class(command, info_name=name)
    return command.make_context(command.name, arguments)


def arguments_of(line):
    words = shlex.split(line, comments=True)[1:]
    ends = [place for place, word in enumerate(words) if word in {"|", "||", "<", ">", "&"}]
    return words[: min(ends, default=len(words))]


@pytest.mark.parametrize("line", list(documented()))
def test_a_documented_command_exists(line):
    assert parsed(arguments_of(line)).command.callback is not None


def test_there_are_many_of_them():
    assert len(list(documented())) > 100


def test_a_flag_that_does_not_exist_would_be_found():
    with pytest.raises(Exception, match="--nothing"):
        parsed(["queues", "list", "--nothing"])


def test_the_file_of_queues_is_one():
    guide = (ROOT / "docs" / "guide" / "cli-admin.md").read_text()
    (text,) = re.findall(r"Save as `queues.yaml`:\n\n```yaml\n(.*?)```", guide, re.DOTALL)

    assert list(parse_declaration(text, source="guide")) == ["orders", "mails"]
