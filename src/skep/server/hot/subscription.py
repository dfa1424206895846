"""Where a consumer group starts that does not exist yet, as clients say it.

A poll and the subscribe frame of a socket say it in the same words: `subscriptionMode` and
`subscriptionFrom`.
"""

from typing import Final

from skep.broker.directory import Subscription
from skep.broker.timestamps import parse_moment
from skep.model.wire import QUEUE_MODE

NOW: Final = "now"


def read_subscription(
    group: str, *, mode: str | None, start: str | None, default_mode: str
) -> Subscription:
    """Decide where a group starts.

    Args:
        group: Its name; queue mode always starts with the oldest message.
        mode: `subscriptionMode`, if it was sent.
        start: `subscriptionFrom`, if it was sent; it stands over the mode.
        default_mode: The mode of those who say nothing.

    Raises:
        BadRequest: The start is no time.
    """
    if group == QUEUE_MODE:
        return Subscription()
    if start and start != NOW:
        return Subscription(
            "timestamp", parse_moment("subscriptionFrom", start, alternatives=(NOW,))
        )
    is_new = start == NOW or (mode or default_mode) in {"new", "new-only"}
    return Subscription("new") if is_new else Subscription()
