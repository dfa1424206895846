# ruff: noqa: T201 (it talks to the person who runs it)
"""Read lines and push them, many to a request; a broker that restarts meanwhile is waited for.

seq 100000 | python examples/buffered_producer.py http://127.0.0.1:6632 numbers
"""

import sys

from skep.client import BufferLimits, Client, Item, spread


def main(url: str, queue: str) -> None:
    """Push every line of standard input."""
    with Client(url) as client:
        items = (Item(queue, line.strip(), spread(line, 16)) for line in sys.stdin)
        counts = client.push_from(items, limits=BufferLimits(count=1_000))
    print(f"stored {counts.queued} messages")


if __name__ == "__main__":
    main(*sys.argv[1:])
