"""How a worker process hears that its settings were changed while it runs.

The thread that listens to the supervisor delivers, the event loop listens. News that come before
anybody listens are kept, the last of them.
"""

from collections.abc import Callable
from threading import Lock

from skep.settings import Settings


class SettingsNews:
    """Passes settings from one thread to another."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listener: Callable[[Settings], object] | None = None
        self._missed: Settings | None = None

    def deliver(self, settings: Settings) -> None:
        """Tell whoever listens, or the next one who does."""
        with self._lock:
            if self._listener is None:
                self._missed = settings
            else:
                self._listener(settings)

    def listen(self, listener: Callable[[Settings], object]) -> None:
        """Call `listener` with all settings from now on, on the thread that delivers them."""
        with self._lock:
            self._listener = listener
            if self._missed is not None:
                listener(self._missed)
                self._missed = None

    def close(self) -> None:
        """Tell nobody any more."""
        with self._lock:
            self._listener = None
