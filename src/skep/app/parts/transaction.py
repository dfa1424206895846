"""Transactions and stream cycles: pushes and acks that commit together."""

from typing import Final

from skep.app.parts.core import Core, utc_now
from skep.app.parts.failover import FailoverParts
from skep.app.parts.pop import PopParts
from skep.app.parts.push import PushParts
from skep.broker.overload.fallback import Fallback
from skep.broker.streams import Streams
from skep.broker.transaction.settlement import Settler, Stager
from skep.broker.transaction.transaction import Transaction


class TransactionParts:
    """Commits transactions and stream cycles. Needs the seed."""

    def __init__(
        self,
        core: Core,
        push: PushParts,
        pop: PopParts,
        failover: FailoverParts,
        fallback: Fallback,
    ) -> None:
        slots = core.hot
        stager = Stager(
            pop.leases,
            hash_seed=core.hash_seed,
            now=utc_now,
            check_partition=failover.diversion.refuse_if_waiting,
            requires_lease=core.settings.require_lease,
        )
        self.settler: Final = Settler(
            core.engine,
            slots,
            directory=core.directory,
            partitions=push.cached_partitions(),
            rule_book=push.rule_book,
            gate=push.gate,
            leases=pop.leases,
            announcer=core.announcer,
            meters=core.meters,
        )
        self.transaction: Final = Transaction(stager, self.settler, fallback)
        self.streams: Final = Streams(core.query, stager, self.settler, core.announcer)
        core.engine.serve("transaction", self.settler.execute)
        core.engine.serve("cycle", self.settler.execute)
