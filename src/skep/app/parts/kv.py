"""Keys and values."""

from typing import Final

from skep.app.parts.core import Core
from skep.broker.kv.accept import Kv
from skep.broker.kv.browse import KvBrowser
from skep.broker.kv.execute import KvExecutor
from skep.db.access.functions import Functions


class KvParts:
    """Carries out calls on keys, and shows keys."""

    def __init__(self, core: Core) -> None:
        self.kv: Final = Kv(core.engine)
        self.browser: Final = KvBrowser(Functions(core.query))
        executor = KvExecutor(core.hot)
        core.engine.serve("kv", executor.write)
        core.engine.serve("kv_read", executor.read)
