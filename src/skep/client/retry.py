"""Decide whether a request is repeated, and after which pause. Pure: no clock, no dice of its own.

Repeated are 429 (if wanted), 502, 503, 504 and requests that nobody answered. Every request of this
client may be repeated: pushes carry transaction ids, everything else says what shall be so.
"""

from dataclasses import dataclass
from typing import Final

from skep.client.errors import GATEWAY_STATUSES

_DOUBLINGS_MAX: Final = 30
"""Beyond, the pause has long reached its limit, and a float would not hold the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient a client is.

    Args:
        retries: Repetitions after the first try; None never gives up.
        first_pause_s: The pause after the first failure; it doubles with each.
        max_retry_delay: No pause is longer, in seconds, whatever the broker asks for.
        retry_on_429: Whether a full queue or an overloaded broker is asked again.
        honor_retry_after: Whether a pause lasts at least as long as the broker asks for.
    """

    retries: int | None = 5
    first_pause_s: float = 0.1
    max_retry_delay: float = 30.0
    retry_on_429: bool = True
    honor_retry_after: bool = True

    def is_repeated(self, status: int | None) -> bool:
        """Say whether an answer of this status is worth another try; None is no answer."""
        if status == 429:
            return self.retry_on_429
        return status is None or status in GATEWAY_STATUSES

    def has_try_left(self, failures: int) -> bool:
        """Say whether a request that failed so often is tried once more."""
        return self.retries is None or failures <= self.retries

    def pause_s(self, failures: int, retry_after_s: float | None, chance: float) -> float:
        """Return how long to wait after so many failures.

        Args:
            failures: At least 1.
            retry_after_s: What the broker asked for.
            chance: Between 0 and 1. It spreads clients that failed together over half the pause.
        """
        whole = self.first_pause_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        pause = min(whole, self.max_retry_delay) * (0.5 + chance / 2)
        if self.honor_retry_after and retry_after_s is not None:
            # Later than asked for by some chance, or all would come back in the same moment.
            pause = max(pause, retry_after_s * (1 + chance / 10))
        return min(pause, self.max_retry_delay)
