from hypothesis import given
from hypothesis import strategies as st

from skep.telemetry.families import FAMILY_BY_COUNTER
from skep.telemetry.meters import COUNTERS, OTHER_QUEUES, Meters, QueueMeters

PUSHED = COUNTERS.index("push_messages")


def pushed(deltas):
    return {delta.queue: delta.counts[PUSHED] for delta in deltas}


def test_only_what_is_new_is_told():
    queues = QueueMeters()
    queues.of("a").push_messages += 3

    assert pushed(queues.tell()) == {"a": 3}
    assert queues.tell() == []
    queues.of("a").push_messages += 1
    assert pushed(queues.tell()) == {"a": 1}


def test_what_could_not_be_passed_on_is_told_again():
    queues = QueueMeters()
    queues.of("a").push_messages += 3
    queues.note_delivery(queues.of("a"), 2, 0.7, is_redelivery=False)

    queues.take_back(queues.tell())
    queues.of("a").push_messages += 1
    [delta] = queues.tell()

    assert delta.counts[PUSHED] == 4
    assert delta.lag_ms_max == 700
    assert sum(delta.lag_counts) == 2


def test_the_greatest_lag_is_that_since_the_last_time():
    queues = QueueMeters()
    for lag_s in (5.0, 1.0):
        queues.note_delivery(queues.of("a"), 1, lag_s, is_redelivery=False)
        last = queues.tell()[0]

    assert last.lag_ms_max == 1000


def test_a_lag_just_above_a_bound_counts_above_it():
    queues = QueueMeters()
    queues.note_delivery(queues.of("a"), 1, 0.0019, is_redelivery=False)

    assert queues.tell()[0].lag_counts[:3] == (0, 1, 0)
    assert queues.lag.counts[:3] == [0, 1, 0]


def test_clocks_that_differ_make_no_negative_lag():
    queues = QueueMeters()
    queues.note_delivery(queues.of("a"), 1, -3.0, is_redelivery=True)

    [delta] = queues.tell()

    assert delta.lag_counts[0] == 1
    assert delta.counts[COUNTERS.index("lag_ms_sum")] == 0
    assert delta.counts[COUNTERS.index("redelivered")] == 1


def test_queues_beyond_the_bound_are_shown_together_and_forgotten_when_idle():
    queues = QueueMeters(exposed_max=1)
    for name in ("a", "b", "c"):
        queues.of(name).push_messages += 1

    while queues.tell():
        pass

    totals = {name: values[PUSHED] for name, values in queues.totals().items()}
    assert totals == {"a": 1, OTHER_QUEUES: 2}
    queues.of("b").push_messages += 1
    assert pushed(queues.tell()) == {"b": 1}
    assert queues.totals()[OTHER_QUEUES][PUSHED] == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from("abcd")),
        st.just(("tell", "")),
        st.just(("fail", "")),
    )
)


@given(STEPS)
def test_nothing_is_told_twice_or_never_whatever_fails(steps):
    queues = QueueMeters(exposed_max=2)
    told, made = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)

    for step, queue in [*steps, ("tell", "")]:
        if step == "push":
            queues.of(queue).push_messages += 1
            made[queue] += 1
            continue
        deltas = queues.tell()
        if step == "fail":
            queues.take_back(deltas)
        else:
            for name, count in pushed(deltas).items():
                told[name] += count

    assert told == made
    assert sum(values[PUSHED] for values in queues.totals().values()) == sum(made.values())


def test_requests_and_messages_are_summed_up():
    meters = Meters()
    meters.routes["push"].note(201, 0.0)
    meters.routes["pop"].note(204, 0.0)
    meters.queues.of("a").push_messages += 2
    meters.queues.of("b").pop_messages += 3

    assert [meters.requests_total, meters.messages_total] == [2, 5]
    assert meters.routes["push"].statuses == {201: 1}


def test_every_counter_but_the_sum_of_the_lag_is_shown():
    assert set(COUNTERS) - FAMILY_BY_COUNTER.keys() == {"lag_ms_sum"}
