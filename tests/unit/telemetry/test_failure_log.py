"""Failures of handlers in the log: a traceback once, then lines, then counts."""

import logging

import pytest

from skep.telemetry.failures import KINDS_MAX, QUIET_S, TOLD_EACH, FailureLog

log = logging.getLogger("skep.test")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def failures(clock):
    return FailureLog(log, clock=clock)


def fail(text="out of paper"):
    raise ValueError(text)


def fail_elsewhere():
    raise ValueError("out of ink")


def tell(failures, handler=fail, where="orders", count=1):
    for number in range(1, count + 1):
        try:
            handler()
        except ValueError as error:
            failures.tell(logging.WARNING, where, f"message {number} failed", error)


def test_the_first_failure_has_its_traceback_and_what_failed(failures, caplog):
    tell(failures)

    (told,) = caplog.records
    assert told.getMessage() == "message 1 failed: ValueError: out of paper"
    # Not the captured text: where PySpark was used before, that is JSON.
    assert "in fail\n    raise ValueError(text)" in logging.Formatter().formatException(
        told.exc_info
    )


def test_a_repeat_is_a_line_without_one(failures, caplog):
    tell(failures, count=2)

    assert caplog.messages[1] == "message 2 failed: ValueError: out of paper"
    assert caplog.records[1].exc_info is None


def test_many_repeats_are_told_by_counts(failures, clock, caplog):
    tell(failures, count=1_000)

    assert len(caplog.messages) == TOLD_EACH + 2
    assert caplog.messages[-2].endswith("(89 more like it in the last 0 s)")
    assert caplog.messages[-1].endswith("(899 more like it in the last 0 s)")


def test_what_repeats_slowly_is_told_once_a_minute(failures, clock, caplog):
    tell(failures, count=TOLD_EACH + 5)
    told = len(caplog.messages)

    clock.now += QUIET_S
    tell(failures)

    assert len(caplog.messages) == told + 1
    assert caplog.messages[-1].endswith("(5 more like it in the last 60 s)")


@pytest.mark.parametrize("other", [{"where": "letters"}, {"handler": fail_elsewhere}])
def test_another_place_is_another_kind(failures, caplog, other):
    tell(failures)
    tell(failures, **other)

    assert all(record.exc_info for record in caplog.records)


def test_kinds_are_not_kept_without_bound(failures):
    for number in range(KINDS_MAX + 10):
        tell(failures, where=f"queue {number}")

    assert len(failures._kinds) == KINDS_MAX
