import json
import logging
import sys

import pytest

from skep.telemetry.logs import JsonFormatter, TextFormatter, configure_logging


def record(message="call failed", *values, error=None, **fields):
    made = logging.LogRecord("skep.engine", logging.WARNING, "", 0, message, values, error)
    made.__dict__.update(fields)
    return made


def raised(error):
    try:
        raise error
    except type(error):
        return sys.exc_info()


def test_defect_54_a_json_line_holds_the_message_and_the_fields():
    line = json.loads(JsonFormatter().format(record("%d calls failed", 3, op="push")))

    assert line["message"] == "3 calls failed"
    assert line["level"] == "warning"
    assert line["logger"] == "skep.engine"
    assert line["op"] == "push"
    assert line["time"].endswith("+00:00")


def test_a_json_line_stays_one_line_with_a_stack():
    text = JsonFormatter().format(record("first\nsecond", error=raised(ValueError("why"))))

    assert "\n" not in text
    assert "ValueError: why" in json.loads(text)["stack"]


def test_a_value_that_json_does_not_know_is_shown_as_it_prints():
    line = json.loads(JsonFormatter().format(record(cause=ValueError("why"))))

    assert line["cause"] == "ValueError('why')"


def test_a_text_line_ends_with_the_fields_and_then_the_stack():
    text = TextFormatter().format(record(op="push", items=2, error=raised(ValueError("why"))))

    first, *stack = text.splitlines()
    assert first.endswith("WARNING skep.engine call failed op='push' items=2")
    assert stack[-1] == "ValueError: why"


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # The handlers of pytest are put aside, or configuring would close them.
    root.handlers = []
    yield root
    root.handlers, root.level = handlers, level


def test_the_log_goes_to_standard_error_from_the_chosen_level_on(root_logger, capsys):
    configure_logging(level="warning", style="json")

    logging.getLogger("skep.test").info("too quiet")
    logging.getLogger("skep.test").warning("loud enough")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert [json.loads(line)["message"] for line in captured.err.splitlines()] == ["loud enough"]


def test_lines_of_a_worker_say_which_one_it_is(root_logger, capsys):
    configure_logging(level="info", style="json", worker=3)

    logging.getLogger("skep.test").info("here")

    assert json.loads(capsys.readouterr().err)["worker"] == 3
