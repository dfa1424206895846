from datetime import UTC, datetime

import pytest

from skep.broker.directory import Subscription
from skep.model.errors import BadRequest
from skep.model.wire import QUEUE_MODE
from skep.server.hot.decoding import read_subscription

ALL, NEW = Subscription(), Subscription("new")


@pytest.mark.parametrize(
    ("mode", "start", "default_mode", "subscription"),
    [
        (None, None, "all", ALL),
        (None, None, "new", NEW),
        ("all", None, "new", ALL),
        ("new", None, "all", NEW),
        ("new-only", "", "all", NEW),
        ("all", "now", "all", NEW),
        (
            "new",
            "2026-01-01T12:00:00",
            "all",
            Subscription("timestamp", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ),
    ],
)
def test_a_start_stands_over_the_mode_and_the_mode_over_the_default(
    mode, start, default_mode, subscription
):
    found = read_subscription("bees", mode=mode, start=start, default_mode=default_mode)

    assert found == subscription


def test_queue_mode_always_starts_with_the_oldest():
    assert read_subscription(QUEUE_MODE, mode="new", start="now", default_mode="new") == ALL


def test_a_start_that_is_no_time_is_refused():
    with pytest.raises(BadRequest, match="subscriptionFrom must be 'now' or an ISO 8601 timestamp"):
        read_subscription("bees", mode=None, start="yesterday", default_mode="all")
