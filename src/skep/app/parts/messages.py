"""Stored messages as operators see them: listings, dead letters, traces."""

from typing import Final

from skep.app.parts.core import Core
from skep.broker.dead_letters.letters import DeadLetters
from skep.broker.dead_letters.redrive import Redrives
from skep.broker.messages.listing import MessageList
from skep.broker.messages.single import Messages
from skep.broker.traces import Traces
from skep.db.access.functions import Functions


class MessageParts:
    """Finds, shows and moves stored messages. Needs the seed."""

    def __init__(self, core: Core) -> None:
        sql, seed, open_envelope = (
            Functions(core.query),
            core.hash_seed,
            core.key_ring.open_envelope,
        )
        self.dead_letters: Final = DeadLetters(
            sql,
            core.announcer,
            seed,
            open_envelope=open_envelope,
            seal_envelope=core.key_ring.seal_envelope,
        )
        self.redrives: Final = Redrives(sql, self.dead_letters)
        self.message_list: Final = MessageList(sql, seed, open_envelope)
        self.messages: Final = Messages(
            sql,
            self.dead_letters,
            core.announcer,
            seed,
            note_letters=core.meters.queues.note_letters,
            open_envelope=open_envelope,
        )
        self.traces: Final = Traces(sql, hash_seed=seed, open_envelope=open_envelope)
