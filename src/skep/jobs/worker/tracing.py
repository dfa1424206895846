"""Carry the context of a trace through chains: from the process that starts one to every attempt.

A chain and each of its jobs keep a context as text: the `traceparent` of the W3C, and behind a line
break its `tracestate` if there is one. A job gets that of the attempt it continues, so that a chain
is one trace through all its processes; a job that waited for other chains is linked to theirs.

`Propagation` only hands contexts on. `skep.jobs.worker.otel` makes spans of them.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, Protocol
from uuid import UUID

from skep.jobs.declare.context import JobFacts

CONTEXT_CHARS_MAX: Final = 1_000

_current: Final[ContextVar[str | None]] = ContextVar("skep_job_trace", default=None)


class Tracing(Protocol):
    """Is told of chains that start and of attempts."""

    def starting(self, job: str, chain_id: UUID) -> str | None:
        """Return the context that a chain about to be started keeps."""
        ...

    def attempting(
        self, facts: JobFacts, awaited: Sequence[str]
    ) -> AbstractContextManager[str | None]:
        """Wrap an attempt; yields the context of the job that continues it.

        `awaited` are the contexts of the chains that the job waited for.
        """
        ...


class Propagation:
    """Hands contexts on."""

    def starting(self, job: str, chain_id: UUID) -> str | None:
        """Return the context of the attempt that starts the chain, if one does."""
        del job, chain_id
        return _current.get()

    @contextmanager
    def attempting(self, facts: JobFacts, awaited: Sequence[str]) -> Generator[str | None]:
        """Make the context of a job that of the chains it starts."""
        del awaited
        token = _current.set(facts.trace)
        try:
            yield facts.trace
        finally:
            _current.reset(token)


def spell_context(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """Return a context as it is kept; a state that is too long is left out."""
    if not traceparent:
        return None
    whole = f"{traceparent}\n{tracestate}" if tracestate else traceparent
    return whole if len(whole) <= CONTEXT_CHARS_MAX else traceparent


def read_context(text: str | None) -> dict[str, str]:
    """Return the headers that a kept context stands for."""
    if not text:
        return {}
    traceparent, _, tracestate = text.partition("\n")
    return {"traceparent": traceparent} | ({"tracestate": tracestate} if tracestate else {})
