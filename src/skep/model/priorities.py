"""How much a kind of work matters when there is not room for all: the smaller, the more."""

from enum import IntEnum


class Priority(IntEnum):
    """Kinds of work, the most important first."""

    SYSTEM_EVENT = 1
    """What keeps promises already made: leases renewed, claims given back."""
    BATCH_ACK = 3
    ACK = 4
    PUSH = 5
    """Also transactions, stream cycles and messages for later."""
    POP = 6
    BACKGROUND = 8
    ANALYTICS = 10
