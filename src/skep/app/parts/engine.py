"""How the operations of a worker batch, and share its connections."""

import dataclasses
from typing import Final

from skep.broker.overload.shares import engine_shares
from skep.engine.fusion import FusionCore
from skep.engine.limiter import ConcurrencyLimiter, StaticLimiter, VegasLimiter
from skep.engine.policy import BatchPolicy
from skep.settings import Settings

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


def engine_core(settings: Settings) -> FusionCore:
    """Return the pure part of an engine by these settings."""
    shares = engine_shares(
        push=settings.push_load_max / 100,
        pop=settings.pop_load_max / 100,
        ack=settings.ack_load_max / 100,
    )
    operations: dict[str, tuple[BatchPolicy, ConcurrencyLimiter]] = {
        name: (
            dataclasses.replace(policy, own_share=shares[name].own, ceiling=shares[name].ceiling),
            _limiter(settings, policy.concurrency_max),
        )
        for name, policy in policies(
            settings.connections, push_hold_s=settings.push_hold_ms / 1000
        ).items()
    }
    return FusionCore(
        operations,
        slots=settings.connections,
        weight_capacity=settings.engine_weight_mib * _MIB,
    )


def policies(connections: int, *, push_hold_s: float = 0.02) -> dict[str, BatchPolicy]:
    """Return how each operation batches. Weights are bytes.

    A push call holds its partitions until it commits, so a second one leaves early only when the
    first carries enough to be worth an overlap. Polls share a claim per group. The rest is rare.
    """
    rare = BatchPolicy(
        preferred_weight=1, hold_s_max=0.005, weight_max=_MIB, concurrency_max=min(2, connections)
    )
    polls = BatchPolicy(
        preferred_weight=16 * 512,
        hold_s_max=0.005,
        weight_max=64 * 512,
        concurrency_max=connections,
        calls_per_partition=2,
        partitions_per_call=1,
    )
    # Each is a call of its own, and shares nothing with the others but the limit on calls.
    alone = BatchPolicy(
        preferred_weight=1, hold_s_max=0, weight_max=_MIB, units_max=1, concurrency_max=connections
    )
    changes = BatchPolicy(
        preferred_weight=64 * _KIB,
        hold_s_max=0.01,
        gather_share=0.25,
        weight_max=_MIB,
        concurrency_max=connections,
    )
    return {
        "push": BatchPolicy(
            preferred_weight=256 * _KIB,
            hold_s_max=push_hold_s,
            gather_share=0.25,
            weight_max=4 * _MIB,
            units_max=4096,
            concurrency_max=connections,
        ),
        "pop": polls,
        "pop_partition": polls,
        "ack": BatchPolicy(
            preferred_weight=64 * 256,
            hold_s_max=0.01,
            weight_max=_MIB,
            concurrency_max=connections,
        ),
        "renew": rare,
        "release": rare,
        "undo": rare,
        # One at a time, so that requests for the same new partition share a call. With each waits
        # what is to be pushed.
        "provision": dataclasses.replace(rare, weight_max=4 * _MIB, concurrency_max=1),
        "subscribe": rare,
        "transaction": alone,
        "cycle": alone,
        "schedule": rare,
        "kv": changes,
        "timers": changes,
        "kv_read": BatchPolicy(
            preferred_weight=64 * _KIB,
            hold_s_max=0.005,
            weight_max=_MIB,
            concurrency_max=connections,
        ),
        # Half of the connections at most: such reads may be long, and deliveries go first. Few
        # reads in a call: each may bring a message as large as there can be.
        "fetch": BatchPolicy(
            preferred_weight=64 * _KIB,
            hold_s_max=0.005,
            weight_max=_MIB,
            units_max=16,
            concurrency_max=max(1, connections // 2),
        ),
        # One at a time: operations of a partition are accepted in the order they came.
        "defer": dataclasses.replace(rare, weight_max=4 * _MIB, concurrency_max=1),
    }


def _limiter(settings: Settings, cap: int) -> ConcurrencyLimiter:
    return StaticLimiter(cap) if settings.concurrency == "static" else VegasLimiter(cap)
