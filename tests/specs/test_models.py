"""The models of `specs` hold, their mistakes are found, and SQL names the actions it implements."""

import os
import re

import pytest

from tests.specs.support.models import MISTAKES, SOUND_MODELS, SPECS, check
from tests.tidy.tree import SQL

ACTION = re.compile(r"((?:^\\\*.*\n)+)^(\w+)(?:\(\w+(?:, \w+)*\))? ==", re.MULTILINE)
MODEL_LINE = re.compile(r"^-- Model +(\S.*)$", re.MULTILINE)
FUNCTIONS = {path.stem: path for path in (SQL / "functions").rglob("*.sql")}


@pytest.mark.parametrize("model", SOUND_MODELS, ids=str)
def test_the_model_holds_in_all_its_states(model):
    done = check(model, dict(os.environ))

    assert done.violated is None, done.output
    assert done.distinct, done.output
    assert done.distinct > 100


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_made_on_purpose_is_found(mistake):
    done = check(mistake, dict(os.environ))

    assert done.violated == mistake.invariants[0], done.output
    assert len(done.steps) > 1


def actions_by_function():
    """Return which actions of the models name a function of SQL in the comment above them."""
    actions = {}
    for path in SPECS.glob("*.tla"):
        for comment, action in ACTION.findall(path.read_text()):
            for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", comment):
                if word in FUNCTIONS:
                    actions.setdefault(word, set()).add(f"{path.stem}!{action}")
    return actions


def test_functions_name_the_actions_that_they_implement():
    named = {
        name: set(found[1].split(", "))
        for name, path in FUNCTIONS.items()
        if (found := MODEL_LINE.search(path.read_text()))
    }

    assert named == actions_by_function()
    assert len(named) > 10
