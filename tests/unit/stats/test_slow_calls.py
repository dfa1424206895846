import logging
from time import perf_counter

from skep.telemetry.meters import Meters
from skep.telemetry.slow_calls import OTHER, CallWatch, function_of

CALL = "select * from skep.push_segments($1, $2)"


def test_a_statement_is_named_after_the_function_it_calls():
    assert function_of(CALL) == "push_segments"
    assert function_of("select skep.now()") == "now"
    assert function_of("select q.id from skep.queue q") == OTHER


def test_calls_are_counted_by_function_and_failures_apart():
    meters = Meters()
    watch = CallWatch(meters)

    watch.note(CALL, [], perf_counter(), 1)
    watch.note(CALL, [], perf_counter(), None)

    assert meters.calls["push_segments"].durations.count == 2
    assert meters.calls["push_segments"].failures == 1


def test_a_slow_call_is_logged_with_its_sizes_and_without_what_was_sent(caplog):
    watch = CallWatch(slow_s=1.0)

    with caplog.at_level(logging.WARNING):
        watch.note(CALL, [[1, 2, 3], [b"secret", b"keys"], "name"], perf_counter() - 2, 5)

    [line] = caplog.records
    assert [line.function, line.items, line.rows] == ["push_segments", 3, 5]
    assert line.bytes == 3 * 8 + 10 + 4
    assert line.seconds >= 2
    assert "secret" not in str(vars(line))


def test_a_quick_call_is_not_logged_and_none_is_when_it_is_switched_off(caplog):
    CallWatch(slow_s=1.0).note(CALL, [], perf_counter(), 1)
    CallWatch(slow_s=0).note(CALL, [], perf_counter() - 99, 1)

    assert caplog.records == []
