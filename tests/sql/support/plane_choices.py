"""What the scenes of the message plane choose from."""

from hypothesis import strategies as st

from tests.sql.support.log import QUEUE_MODE

PARTITIONS = ("a", "b", "c")
GROUPS = (QUEUE_MODE, "bees", "drones")

partitions = st.sampled_from(["a", "a", "a", "b", "c"])
groups = st.sampled_from(["bees", "bees", "bees", "drones", QUEUE_MODE])
recency = st.sampled_from([0, 0, 0, 1, 2, 3, 5])
"""How many claims ago."""
picks = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8, 11])
"""Which of the things there are, counted around."""
statuses = st.sampled_from(
    ["completed", "failed", "completed", "failed", "retry", "dlq", "expired"]
)

options = {
    "retry_limit": st.sampled_from([0, 1, 2]),
    "retry_delay_ms": st.sampled_from([5000, 5000, 0]),
    "ttl_s": st.sampled_from([0, 0, 30]),
    "max_deliveries": st.sampled_from([0, 1, 2]),
    "ack_mode": st.sampled_from(["cumulative", "individual"]),
    "delayed_processing_s": st.sampled_from([0, 0, 10]),
    "window_buffer_s": st.sampled_from([0, 0, 7]),
    "dedup_window_s": st.sampled_from([0, 20, 3600]),
    "retention_s": st.sampled_from([0, 25]),
    "completed_retention_s": st.sampled_from([0, 15]),
    "max_wait_time_s": st.sampled_from([0, 20]),
}


def action(name, **arguments):
    """Something to do, by the name of the method that does it."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


changes = st.one_of([st.fixed_dictionaries({name: values}) for name, values in options.items()])


class Actions:
    """A machine with rules that stand for several actions each."""

    def perform(self, action):
        name, arguments = action
        getattr(self, name)(**arguments)
