"""What operators and maintainers rely on: pages on how to survive, and checks of every change."""

import re

import pytest

from tests.tidy.tree import ROOT

CHECKED = {"style": "ruff check", "types": "pyright", "imports": "lint-imports", "tests": "pytest"}


def recipe(name):
    """Return what a recipe of the Makefile runs, with the recipes it needs."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{name}:([^#\n]*).*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
    assert found, name
    needed = [each for each in found[1].split() if re.fullmatch("[a-z]+", each)]
    return "".join(map(recipe, needed)) + found[2]


@pytest.mark.parametrize("what", CHECKED)
def test_defect_56_a_change_is_checked_by_more_than_the_build(what):
    (command,) = re.findall(r"make (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)

    assert CHECKED[what] in recipe(command)


@pytest.mark.parametrize(
    "remedy", ["synchronous_standby_names", "base backups", "pg_dump", "adopt_restored_log"]
)
def test_defect_55_operators_are_told_how_to_survive_the_loss_of_the_primary(remedy):
    assert remedy in (ROOT / "docs" / "operations" / "postgresql.md").read_text()
