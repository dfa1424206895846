"""No public method of Queen's clients is left out of the scenarios.

This looks at the texts of both sides: what a client's classes define, and which methods the
scenarios call by name. What comes of the calls is the business of the other modules.
"""

import ast
from pathlib import Path

import pytest

SCENARIOS = [*Path(__file__).parent.glob("*scenarios.py"), Path(__file__).with_name("stage.py")]

CLASSES = {
    "Admin",
    "ConsumeBuilder",
    "DLQBuilder",
    "Ephemeral",
    "KV",
    "OperationBuilder",
    "PushBuilder",
    "Queen",
    "QueueBuilder",
    "Runner",
    "Stream",
    "TimerBuilder",
    "Timers",
    "TransactionBuilder",
    "TransactionKvBuilder",
    "TransactionQueueBuilder",
    "TransactionTimerBuilder",
}
"""Those that users get hold of; what the client builds its work from is not among them."""

CALLED_BY_THE_CLIENT = {
    "Queen.close": "by leaving the client's context",
    "Runner.start": "by Stream.run",
}

NO_REQUEST_TO_SEE = {
    "Ephemeral.flush": "sends what was buffered, and repeats for ever what the broker refuses",
    "TransactionKvBuilder.get_prefix": "is refused by the client itself",
}


@pytest.fixture
def public_methods(version, install_client):
    """The names of all public methods, as `Class.method`."""
    found = set()
    for path in (install_client(version) / "queen").rglob("*.py"):
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.ClassDef) and each.name in CLASSES:
                found |= {f"{each.name}.{name}" for name in _methods(each)}
    return found


def _methods(definition):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {each.name for each in definition.body if isinstance(each, functions)}
    return {name for name in names if not name.startswith("_")}


def test_every_public_method_is_called_by_a_scenario(public_methods):
    used = {
        node.attr
        for path in SCENARIOS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }

    missing = {name for name in public_methods if name.partition(".")[2] not in used}

    assert missing - set(CALLED_BY_THE_CLIENT) - set(NO_REQUEST_TO_SEE) == set()


def test_the_clients_have_the_methods_this_is_about(public_methods):
    assert {"Queen.ack", "QueueBuilder.consume", "Admin.get_overview"} <= public_methods
    assert len(public_methods) > 80
