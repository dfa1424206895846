"""The pure parts of the benchmark of ages: minutes, costs, and which requests may be sent again."""

from benchmarks.aging import Interval, Pushed, cost, first_and_last, seconds_until
from benchmarks.plan import PushRole
from benchmarks.wire import PushRequests

ROLE = PushRole("push", connections=4, queue="q", partitions=7, items=5, payload_bytes=50, seed=3)


def interval(began_s, cpu_us, *, seconds=10.0, messages=100):
    return Interval(
        began_s=began_s,
        seconds=seconds,
        messages=messages,
        delivered=0,
        cpu_us=cpu_us,
        broker_us=cpu_us,
        postgres_us=0.0,
        p50_ms=None,
        p99_ms=None,
        worker_rss_mib=0.0,
        hidden_files_mib=0.0,
        dead_rows=0,
        table_mib=0.0,
        index_mib=0.0,
    )


def test_a_cost_is_weighted_by_messages():
    assert cost([interval(0, 10.0, messages=300), interval(10, 50.0, messages=100)]) == 20.0


def test_the_first_and_the_last_minute_of_a_long_life_are_minutes():
    life = [interval(at, at) for at in range(0, 300, 10)]

    first, last = first_and_last(life, 60.0)

    assert [each.began_s for each in first] == [0, 10, 20, 30, 40, 50]
    assert [each.began_s for each in last] == [240, 250, 260, 270, 280, 290]


def test_the_first_and_the_last_minute_of_a_short_life_share_nothing():
    life = [interval(at, at) for at in range(0, 50, 10)]

    first, last = first_and_last(life, 60.0)

    assert [each.began_s for each in first] == [0, 10]
    assert [each.began_s for each in last] == [30, 40]


def test_speed_is_back_when_the_first_interval_with_messages_that_cost_as_little_has_ended():
    after = [
        interval(90, 0.0, messages=0),
        interval(100, 90.0),
        interval(110, 12.0),
        interval(120, 10.0),
    ]

    assert seconds_until(after, 13.0, from_s=95.0) == 25.0
    assert seconds_until(after, 9.0, from_s=95.0) is None


def test_only_requests_surely_sent_inside_the_window_and_answered_are_sent_again():
    pushed = Pushed(ROLE)
    for at_s, answered in ((0.0, 0), (10.0, 50), (20.0, 100)):
        pushed.note(at_s, answered)

    assert pushed.within(5.0) == range(54, 96)
    assert not pushed.within(20.0)
    assert not Pushed(ROLE).within(0.0)


def test_a_request_of_the_same_number_is_the_same_bytes():
    first, again = PushRequests(ROLE, "h"), PushRequests(ROLE, "h")

    sent = [first.render(number) for number in range(20)]

    assert again.render(13) == sent[13]
    assert len(set(sent)) == len(sent)
