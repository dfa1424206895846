"""The pulse: figures of the whole broker, sampled once for all who watch.

A watcher costs one wait and one write per sample, however many there are. Without watchers nothing
is sampled. The pace follows the cost: a sample that takes long, because there are very many
partitions, is followed by a pause many times as long, so that watching never costs more than
`1 / PAUSE_PER_COST` of a core.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeAlias

INTERVAL_S: Final = 2.0
PAUSE_PER_COST: Final = 100
BEAT_S: Final = 2.0
"""After so long without a sample followers hear that the pulse is still there."""

TakeSample: TypeAlias = Callable[[], Awaitable[bytes]]


class Pulse:
    """Hands the newest sample to everybody who follows."""

    def __init__(self, take_sample: TakeSample) -> None:
        self._take_sample: Final = take_sample
        self._watchers = 0
        self._sampling: _Sampling | None = None
        self._is_stopped = False

    async def follow(self) -> AsyncGenerator[bytes | None, None]:
        """Yield samples until the pulse stops, at once the newest if there is one.

        None is a beat without a sample: those that cost much are rare, and followers have more to
        do at each beat than to show them.

        Raises:
            SkepError: A sample could not be taken. The next follower tries again.
        """
        if self._is_stopped:
            return
        sampling = self._enter()
        try:
            if sampling.latest is not None:
                yield sampling.latest
            while True:
                told = sampling.next
                if not (await asyncio.wait([told], timeout=BEAT_S))[0]:
                    yield None
                    continue
                sample = told.result()
                if sample is None:
                    return
                yield sample
        finally:
            self._leave(sampling)

    def stop(self) -> None:
        """Let every follower come to its end, and those that come later, too."""
        self._is_stopped = True
        if self._sampling is not None:
            self._sampling.end()

    def _enter(self) -> "_Sampling":
        if self._sampling is None or self._sampling.has_ended:
            self._sampling = _Sampling(self._take_sample)
            self._watchers = 0
        self._watchers += 1
        return self._sampling

    def _leave(self, sampling: "_Sampling") -> None:
        if sampling is not self._sampling:
            return
        self._watchers -= 1
        if not self._watchers:
            sampling.end()


class _Sampling:
    """From the first follower to the last."""

    def __init__(self, take_sample: TakeSample) -> None:
        self.latest: bytes | None = None
        self.next = self._future()
        self._take_sample: Final = take_sample
        self._task: Final = asyncio.create_task(self._run())

    @property
    def has_ended(self) -> bool:
        return self.next.done()

    def end(self) -> None:
        """Take no more samples, and tell that there will be none."""
        self._task.cancel()
        if not self.next.done():
            self.next.set_result(None)

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                self._publish(await self._take_sample())
            except Exception as error:  # noqa: BLE001 (it is for those who wait to judge)
                self.next.set_exception(error)
                return
            await asyncio.sleep(max(INTERVAL_S, (now() - began) * PAUSE_PER_COST))

    def _publish(self, sample: bytes) -> None:
        self.latest = sample
        told, self.next = self.next, self._future()
        told.set_result(sample)

    @staticmethod
    def _future() -> asyncio.Future[bytes | None]:
        return asyncio.get_running_loop().create_future()
