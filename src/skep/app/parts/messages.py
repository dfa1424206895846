"""Stored messages as operators see them: listings, dead letters, traces."""

from typing import Final

from skep.app.parts.core import Core
from skep.broker.dead_letters.letters import DeadLetters
from skep.broker.dead_letters.moves import Mover
from skep.broker.dead_letters.redrive import Redrives
from skep.broker.messages.listing import MessageList
from skep.broker.messages.single import Messages
from skep.broker.traces import Traces


class MessageParts:
    """Finds, shows and moves stored messages. Needs the seed."""

    def __init__(self, core: Core) -> None:
        slots, seed, open_envelope = core.query, core.hash_seed, core.key_ring.open_envelope
        mover = Mover(
            slots,
            core.announcer,
            hash_seed=seed,
            open_envelope=open_envelope,
            seal_envelope=core.key_ring.seal_envelope,
        )
        self.dead_letters: Final = DeadLetters(slots, mover, open_envelope=open_envelope)
        self.redrives: Final = Redrives(slots, self.dead_letters, mover)
        self.message_list: Final = MessageList(slots, hash_seed=seed)
        self.messages: Final = Messages(
            slots,
            self.dead_letters,
            core.announcer,
            hash_seed=seed,
            note_letters=core.meters.queues.note_letters,
            open_envelope=open_envelope,
        )
        self.traces: Final = Traces(slots, hash_seed=seed, open_envelope=open_envelope)
