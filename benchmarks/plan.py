"""What the runner and the generator processes say to each other, one JSON value per line.

A generator is started with a `Plan` and says with a first `Snapshot` that its connections stand.
From then on it answers every command with one: `snapshot` changes nothing, `open` forgets the
latency samples so far, `close` adds those since, `stop` ends the load. Counters only grow: a
measured window is the difference of two snapshots.
"""

import msgspec


class PushRole(msgspec.Struct, frozen=True, tag="push"):
    """Connections that push to one queue, going round its partitions.

    The items of a request lie in runs of `run_length` per partition: 1 spreads every item to
    another partition, `items` keeps a request within one. Without `rate` (requests per second)
    each connection sends as soon as it is answered; with it, requests leave when they are due,
    whatever the answers do, and latency counts from the moment they were due.
    """

    name: str
    connections: int
    queue: str
    partitions: int
    items: int
    payload_bytes: int
    seed: int
    run_length: int = 1
    is_shuffled: bool = True
    is_stamped: bool = False
    rate: float | None = None
    request_limit: int | None = None


class PopRole(msgspec.Struct, frozen=True, tag="pop"):
    """Connections that pop from one queue, and ack what they popped unless `auto_ack`.

    `wait_ms` parks on an empty queue. On stamped messages, latency runs from the moment the push
    was due to the arrival of the message; otherwise it is that of the pop request.
    """

    name: str
    connections: int
    queue: str
    batch: int
    partitions: int = 1
    auto_ack: bool = True
    wait_ms: int = 0
    group: str = ""
    is_stamped: bool = False


Role = PushRole | PopRole


class Plan(msgspec.Struct, frozen=True):
    """The load of one generator process; its connections go round the ports."""

    host: str
    ports: list[int]
    roles: list[Role]
    source: str | None = None
    """The address to connect from: one has ports for 28,000 connections only."""


class Counts(msgspec.Struct):
    """What one role did so far. `messages`: stored, or delivered (acked where acks are sent)."""

    requests: int = 0
    messages: int = 0
    empties: int = 0


class Snapshot(msgspec.Struct):
    """The counters of a generator at one moment; `latencies_us` by role only after `close`."""

    at_s: float
    cpu_s: float
    roles: dict[str, Counts]
    errors: dict[str, int]
    examples: list[str]
    is_done: bool
    latencies_us: dict[str, list[int]] = msgspec.field(default_factory=dict[str, list[int]])
