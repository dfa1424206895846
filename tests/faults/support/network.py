"""A TCP proxy that treats connections badly: it delays, dribbles, truncates, cuts, or says nothing.

It knows nothing of the protocol above it, so it stands before a broker as well as before
PostgreSQL. Whom it leads to may change, as behind a virtual address after a failover.
"""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

from tests.support.broker import Connection

CHUNK_BYTES = 1 << 16
_GONE = (OSError, asyncio.IncompleteReadError)


@dataclass(frozen=True)
class Treatment:
    """What happens to one connection.

    Args:
        question_bytes: So much of what the client sends is passed on; then the connection is cut.
        answer_bytes: So much of what the server sends is passed on; then the connection is cut.
        latency_s: Every piece waits so long, in either direction.
        pause_s: Answers come byte by byte with such pauses.
        is_half_open: Answers never arrive, and nobody says that the connection is gone.
    """

    question_bytes: float = inf
    answer_bytes: float = inf
    latency_s: float = 0
    pause_s: float = 0
    is_half_open: bool = False


CLEAN = Treatment()


class Network:
    """The way to a server at `port`; `port_here` leads through it.

    Args:
        port: Where to, on this machine.
        treat: Chooses the treatment of each new connection.
    """

    def __init__(self, port, treat=lambda: CLEAN):
        self.port = port
        self.treat = treat
        self.treated = 0
        """How many connections were treated badly."""
        self._listener = None
        self._links = {}
        self._lost_answers = []

    @property
    def port_here(self):
        return self._listener.sockets[0].getsockname()[1]

    async def open(self):
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self):
        self._listener.close()
        serving = list(self._links.values())
        self.cut_all()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    @asynccontextmanager
    async def connect(self):
        """Open a connection through it to the broker behind."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port_here)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()

    def lose_next_answer(self, beginning):
        """Pass on the next request that begins so, and cut when its answer comes."""
        lost = asyncio.Event()
        self._lost_answers.append((beginning, lost))
        return lost

    def cut_all(self):
        """Cut every connection there is."""
        for link in tuple(self._links):
            link.cut()

    def find_loss(self, data):
        for loss in self._lost_answers:
            if data.startswith(loss[0]):
                self._lost_answers.remove(loss)
                return loss[1]
        return None

    def _accept(self, reader, writer):
        treatment = self.treat()
        self.treated += treatment != CLEAN
        link = _Link(self, reader, writer, treatment)
        self._links[link] = asyncio.ensure_future(self._serve(link))

    async def _serve(self, link):
        try:
            await link.run(self.port)
        except _GONE:
            pass
        finally:
            link.cut()
            del self._links[link]


class _Link:
    """One connection."""

    def __init__(self, network, reader, writer, treatment):
        self._network = network
        self._reader = reader
        self._writer = writer
        self._treatment = treatment
        self._far_writer = None
        self._loss = None

    async def run(self, port):
        far_reader, self._far_writer = await asyncio.open_connection("127.0.0.1", port)
        passing = [
            asyncio.ensure_future(self._pass_questions()),
            asyncio.ensure_future(self._pass_answers(far_reader)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

    def cut(self):
        for writer in (self._writer, self._far_writer):
            if writer is not None:
                writer.transport.abort()

    async def _pass_questions(self):
        budget = self._treatment.question_bytes
        while budget > 0 and (data := await self._reader.read(CHUNK_BYTES)):
            self._loss = self._loss or self._network.find_loss(data)
            await asyncio.sleep(self._treatment.latency_s)
            part = data if len(data) <= budget else data[: int(budget)]
            budget -= len(part)
            self._far_writer.write(part)
            await self._far_writer.drain()
        # A client that is gone ends the connection, and so does a spent budget.

    async def _pass_answers(self, far_reader):
        budget = self._treatment.answer_bytes
        while budget > 0 and (data := await far_reader.read(CHUNK_BYTES)):
            if self._loss is not None:
                self._loss.set()
                return
            if self._treatment.is_half_open:
                continue
            await asyncio.sleep(self._treatment.latency_s)
            part = data if len(data) <= budget else data[: int(budget)]
            budget -= len(part)
            await self._write(part)

    async def _write(self, data):
        if not self._treatment.pause_s:
            self._writer.write(data)
        else:
            for byte in data:
                self._writer.write(bytes([byte]))
                await asyncio.sleep(self._treatment.pause_s)
        await self._writer.drain()


@asynccontextmanager
async def network_to(port, treat=lambda: CLEAN):
    """Open a way to this port."""
    network = Network(port, treat)
    await network.open()
    try:
        yield network
    finally:
        await network.close()
