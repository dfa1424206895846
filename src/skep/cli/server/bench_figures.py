"""What a load test counts, and what it says in the end. Pure.

Latencies are kept in steps of 2 %, so that a test of any length needs the same little memory.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import Any, Final

_STEP: Final = log(1.02)
_SHORTEST_S: Final = 1e-6

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Latencies:
    """Durations, as counts by size."""

    def __init__(self) -> None:
        self._counts: Final[Counter[int]] = Counter()
        self.longest_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration."""
        self._counts[round(log(max(seconds, _SHORTEST_S)) / _STEP)] += times
        self.longest_s = max(self.longest_s, seconds)

    def quantile(self, share: float) -> float | None:
        """Return the duration that so many did not exceed, to 1 %; None without any."""
        wanted = ceil(share * self._counts.total())
        seen = 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= wanted:
                return min(exp(step * _STEP), self.longest_s)
        return None

    def in_milliseconds(self) -> dict[str, float | None]:
        """Return the percentiles and the longest."""
        shown: dict[str, float | None] = {
            name: _milliseconds(self.quantile(share)) for name, share in SHARES.items()
        }
        return {**shown, "max": _milliseconds(self.longest_s) if shown["p50"] else None}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


@dataclass(slots=True)
class Flow:
    """What went in one direction."""

    messages: int = 0
    requests: int = 0
    ended_at: float = 0.0
    """When the last request was answered, by the clock of the test."""
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, messages: int, began: float, now: float) -> None:
        """Count a request that carried so many messages."""
        self.messages += messages
        self.requests += 1
        self.ended_at = now
        self.latencies.add(now - began)


@dataclass(slots=True)
class Tally:
    """What a load test has done so far."""

    began_at: float = 0.0
    pushed: Flow = field(default_factory=Flow)
    acked: Flow = field(default_factory=Flow)
    delivery: Latencies = field(default_factory=Latencies)
    """From push to delivery, by message."""
    cpu_s: float = 0.0
    """What this process used."""

    @property
    def left(self) -> int:
        """Messages that were pushed and not consumed."""
        return self.pushed.messages - self.acked.messages

    def report(self, payload_bytes: int) -> dict[str, Any]:
        """Return the result for people and programs."""
        seconds = max(self.pushed.ended_at, self.acked.ended_at) - self.began_at
        return {
            "seconds": round(seconds, 2),
            "push": self._flow(self.pushed, payload_bytes),
            "consume": self._flow(self.acked, payload_bytes),
            "latencyMs": {
                "push": self.pushed.latencies.in_milliseconds(),
                "ack": self.acked.latencies.in_milliseconds(),
                "delivery": self.delivery.in_milliseconds(),
            },
            "left": self.left,
            "clientCpuShare": round(self.cpu_s / seconds, 3) if seconds > 0 else None,
        }

    def _flow(self, flow: Flow, payload_bytes: int) -> dict[str, Any]:
        seconds = flow.ended_at - self.began_at
        rate = flow.messages / seconds if flow.requests else 0.0
        return {
            "messages": flow.messages,
            "requests": flow.requests,
            "messagesPerSecond": round(rate, 1),
            "megabytesPerSecond": round(rate * payload_bytes / 1e6, 3),
        }
