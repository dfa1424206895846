"""Defaults for a purpose: one word instead of half a dozen settings.

A preset lies below everything that is set by hand, and above the defaults. `balanced` is the
defaults themselves.

- `throughput` serves many clients that send much: more calls in flight, calls that gather for
  longer, and more memory for what waits and for recognising duplicates.
- `latency` serves few clients that wait for each answer: calls leave sooner, none is held back by
  a measured limit, and polls that nothing woke look more often, at the price of more and smaller
  calls.
"""

from collections.abc import Mapping
from typing import Final

PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "balanced": {},
    "throughput": {
        "connections": 8,
        "push_hold_ms": 50,
        "engine_weight_mib": 512,
        "dedup_memory_mib": 256,
    },
    "latency": {
        "concurrency": "static",
        "push_hold_ms": 2,
        "poll_interval_ms": 25,
        "poll_interval_ms_max": 250,
    },
}
"""By name: the settings that get another default."""
