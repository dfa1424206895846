"""Keys and values, and the locks that are made of them."""

from typing import Final

from skep.app.parts.core import Core, utc_now
from skep.broker.kv.accept import Kv
from skep.broker.kv.browse import KvBrowser
from skep.broker.kv.execute import KvExecutor
from skep.broker.locks.wait import Locks
from skep.db.access.functions import Functions


class KvParts:
    """Carries out calls on keys and on locks, and shows keys."""

    def __init__(self, core: Core) -> None:
        self.kv: Final = Kv(core.engine)
        self.browser: Final = KvBrowser(Functions(core.query))
        executor = KvExecutor(core.hot)
        core.engine.serve("kv", executor.write)
        self.locks: Final = Locks(self.kv, core.announcer, utc_now=utc_now)
        core.meters.counts["skep_lock_operations"] = lambda: self.locks.counts
        core.meters.watch("skep_lock_waiters", lambda: self.locks.waiting_count)
        core.engine.serve("kv_read", executor.read)
