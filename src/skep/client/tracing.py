"""OpenTelemetry context in and out, if asked for and installed.

The context travels in the headers of a message, under the names that the configured propagator
uses (`traceparent` and `tracestate`). Nothing here is imported unless a client is made with
`telemetry=True`.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from skep.client.pushes import Item


class Telemetry:
    """What a client does around messages: nothing, if it carries no context."""

    def inject(self, items: Sequence[Item]) -> None:
        """Put the present context into the headers of items."""

    @contextmanager
    def handling(self, queue: str, headers: Mapping[str, Any]) -> Generator[None]:
        """Run the block as the handling of a message, under the context that it carries."""
        del queue, headers
        yield


class OpenTelemetry(Telemetry):
    """Carries the context of OpenTelemetry."""

    def __init__(self) -> None:
        from opentelemetry import propagate, trace  # noqa: PLC0415 (optional, see above)

        self._propagate: Final = propagate
        self._tracer: Final = trace.get_tracer("skep.client")
        self._kind: Final = trace.SpanKind.CONSUMER

    def inject(self, items: Sequence[Item]) -> None:
        """Put the present context into the headers of items; those of the user stand over it."""
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier)
        if not carrier:
            return
        for item in items:
            item.headers = {**carrier, **(item.headers or {})}

    @contextmanager
    def handling(self, queue: str, headers: Mapping[str, Any]) -> Generator[None]:
        """Run the block in a span named after the queue, a child of the context of the message."""
        carrier = {name: str(value) for name, value in headers.items()}
        context = self._propagate.extract(carrier)
        with self._tracer.start_as_current_span(
            f"process {queue}", context=context, kind=self._kind
        ):
            yield


def telemetry_of(*, is_wanted: bool) -> Telemetry:
    """Return what a client uses.

    Raises:
        ImportError: It is wanted, and opentelemetry-api is not installed.
    """
    return OpenTelemetry() if is_wanted else Telemetry()
