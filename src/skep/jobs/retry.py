"""When a job that failed is tried again: pure arithmetic.

    delay(n) = min(initial * multiplier ** (n - 1), cap), varied by up to `jitter` of itself

after the n-th failure, until there were `max_attempts` of them. Attempts that were lost with their
worker count as failures; those that asked to run later do not.
"""

import random
from dataclasses import dataclass

from skep.model.errors import BadRequest

MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when to try again."""

    max_attempts: int = MAX_ATTEMPTS
    initial_s: float = 1.0
    multiplier: float = 2.0
    cap_s: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise BadRequest("max_attempts must be at least 1")
        if self.initial_s < 0 or self.cap_s < 0 or self.multiplier < 1:
            raise BadRequest("a delay cannot be negative, nor shrink from one attempt to the next")
        if not 0 <= self.jitter <= 1:
            raise BadRequest("jitter is a share between 0 and 1")

    def is_exhausted(self, failures: int) -> bool:
        """Whether a job that failed so often is given up."""
        return failures >= self.max_attempts

    def delay_s(self, failures: int, chance: random.Random) -> float:
        """How long to wait after so many failures."""
        try:
            exact_s = min(self.initial_s * self.multiplier ** (failures - 1), self.cap_s)
        except OverflowError:  # beyond any cap, unless it begins with nothing
            exact_s = self.cap_s if self.initial_s else 0.0
        return exact_s * chance.uniform(1 - self.jitter, 1 + self.jitter)
