"""How one operation batches: the numbers the fusion core decides by.

A policy is a plain value, checked once when it is built. The rules that use it live in
`skep.engine.fusion`; the limiter decides how many calls the database can take at the moment.
"""

from dataclasses import dataclass
from typing import Final

UNITS_PER_CALL_MAX: Final = 1_024
"""Units one call carries by default. All of them are answered in one go when the call comes back,
so this bounds how long a single call can keep the event loop busy."""


_BOUNDS: Final = (
    "preferred_weight", "weight_max", "concurrency_max", "calls_per_partition",
    "partitions_per_call", "units_max",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """When a call of an operation leaves, and what it may carry.

    Weight is in the unit of the fusion core's capacity, which all operations share.
    """

    preferred_weight: int
    """A call leaves although others are in flight once this much waits ..."""

    hold_s_max: float
    """... or once the oldest unit that could leave has waited this long."""

    weight_max: int
    """A call carries at most this much, but always at least one unit."""

    concurrency_max: int
    """Calls of this operation in flight, at most; the limiter may allow fewer."""

    gather_share: float = 0.0
    """When the last call in flight came back, the next waits for the clients it answered to come
    again: until three quarters of its weight are back, at most for this share of the time it took,
    and never longer than `hold_s_max`. 0 does not wait."""

    calls_per_partition: int = 1
    """Calls in flight that may carry the same partition; one keeps its units strictly in order."""

    partitions_per_call: int | None = None
    """Partitions one call may carry; None is any number."""

    own_share: float = 1.0
    """Of the capacity, how much units of this operation may fill by themselves."""

    ceiling: float = 1.0
    """Up to which share of the capacity units of this operation are let in, whatever fills it.
    The lower it is, the sooner the operation makes room for the others."""

    units_max: int = UNITS_PER_CALL_MAX
    """Units one call may carry, however light."""

    def __post_init__(self) -> None:
        """Refuse numbers with which nothing would ever leave."""
        for name in _BOUNDS:
            bound: int | None = getattr(self, name)
            if bound is not None and bound < 1:
                raise ValueError(f"{name} must be at least 1, not {bound}")
        if not self.hold_s_max >= 0:
            raise ValueError(f"hold_s_max must not be negative, not {self.hold_s_max}")
        if not 0 <= self.gather_share <= 1:
            raise ValueError(f"gather_share must be between 0 and 1, not {self.gather_share}")
        for name, share in {"own_share": self.own_share, "ceiling": self.ceiling}.items():
            if not 0 < share <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, not {share}")
