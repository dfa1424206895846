from hypothesis import given
from hypothesis import strategies as st

from skep.jobs.identifiers import new_id
from skep.jobs.signals import PAYLOAD_BYTES_MAX, Announcements, Signals, each_line, in_payloads
from skep.model.errors import Unavailable


class Recorder:
    """Stands for the database: remembers what it was asked, and may be away."""

    def __init__(self, *, is_away=False):
        self.calls = []
        self._is_away = is_away

    async def call(self, statement, channels, payloads):
        if self._is_away:
            raise Unavailable
        self.calls.append(list(zip(channels, payloads, strict=True)))
        return []


async def test_case_37_a_burst_of_signals_is_one_call_with_each_name_once():
    recorder = Recorder()
    announcements = Announcements(recorder)
    for _ in range(10_000):
        announcements.add(Signals(types_ready=["price"]))
    closed = new_id()
    announcements.add(Signals(chains_closed=[closed], jobs_lost=[closed]))

    await announcements.flush()

    assert recorder.calls == [
        [
            ("skep_job_ready", "price"),
            ("skep_chain_closed", str(closed)),
            ("skep_job_lost", str(closed)),
        ]
    ]


async def test_case_36_signals_that_cannot_be_sent_harm_nobody():
    announcements = Announcements(Recorder(is_away=True))

    announcements.add(Signals(types_ready=["price"]))

    await announcements.flush()


async def test_who_is_told_not_to_notify_does_not():
    recorder = Recorder()
    announcements = Announcements(recorder, is_silent=True)

    announcements.add(Signals(types_ready=["price"]))
    await announcements.flush()

    assert recorder.calls == []


@given(
    st.lists(
        st.text(
            st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]),
            min_size=1,
            max_size=255,
        )
    )
)
def test_payloads_are_small_enough_and_say_everything_in_order(texts):
    payloads = in_payloads(texts)
    heard = []
    for payload in payloads:
        each_line(heard.append)(payload)

    assert heard == texts
    assert all(len(payload.encode()) <= PAYLOAD_BYTES_MAX for payload in payloads)
