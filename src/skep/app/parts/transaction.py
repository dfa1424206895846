"""Transactions and stream cycles: pushes and acks that commit together."""

from typing import Final

from skep.app.parts.core import MIB, Core, utc_now
from skep.app.parts.failover import FailoverParts
from skep.app.parts.pop import PopParts
from skep.app.parts.push import PushParts
from skep.broker.push.stored_keys import KeyLoader
from skep.broker.streams import CycleExecutor, Streams
from skep.broker.transaction.settlement import Settler, Stager
from skep.broker.transaction.transaction import Transaction, TransactionExecutor
from skep.engine.dedup.cache import DedupCache

SETTLEMENT_DEDUP_BYTES: Final = 8 * MIB
"""Keys that transactions and stream cycles pushed; about 300,000 in 3,000 partitions."""


class TransactionParts:
    """Commits transactions and stream cycles. Needs the seed."""

    def __init__(self, core: Core, push: PushParts, pop: PopParts, failover: FailoverParts) -> None:
        slots = core.hot
        stager = Stager(
            pop.leases,
            hash_seed=core.hash_seed,
            now=utc_now,
            check_partition=failover.diversion.refuse_if_waiting,
            requires_lease=core.settings.require_lease,
        )
        self.transaction: Final = Transaction(core.engine, core.directory, stager)
        self.streams: Final = Streams(core.query, core.engine, core.directory, stager)
        cache = DedupCache(memory_bytes_max=SETTLEMENT_DEDUP_BYTES)
        self.settler: Final = Settler(
            slots,
            directory=core.directory,
            provisioner=push.partitions,
            listener=KeyLoader(slots, cache),
            rule_book=push.rule_book,
            gate=push.gate,
            cache=cache,
            leases=pop.leases,
            announcer=core.announcer,
            meters=core.meters,
        )
        core.engine.serve("transaction", TransactionExecutor(slots, self.settler))
        core.engine.serve("cycle", CycleExecutor(self.settler, core.announcer))
