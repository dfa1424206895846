"""Where the brokers are, how paths below them are spelled, and which broker gets a request. Pure.

Requests about the same thing go to the same broker while it is well, because a broker combines the
requests that arrive at it and remembers the leases it gave. Each key has its own order of all
brokers (rendezvous hashing), so that losing a broker moves only its own keys. A broker that failed
is passed over for a while, unless none is left.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from skep.model.errors import BadRequest

DEFAULT_PORT = 6632

ORDERS_MAX: Final = 1_024
"""Orders remembered; computing one costs a microsecond per broker."""


def path_of(*segments: str, **query: object) -> str:
    """Join names to a path below `/api/v1`; query values that are None are left out.

    The first segment may contain slashes, the others are names and are quoted.
    """
    path = "/api/v1/" + "/".join([segments[0], *(quote(name, safe="") for name in segments[1:])])
    wanted = {name: _spell(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def _spell(value: object) -> str:
    if isinstance(value, datetime):
        return spell_time(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def spell_time(time: datetime) -> str:
    """Spell a time in ISO 8601; one without a zone is UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


def affinity_of(queue: str, group: str) -> str:
    """Return the key that brings all requests of a group on a queue to one broker."""
    return f"{queue}\0{group}"


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL, taken apart."""

    url: str
    host: str
    port: int
    is_tls: bool
    host_header: str
    prefix: str
    """Precedes every path; usually empty."""


def parse_address(url: str) -> Address:
    """Take a base URL apart; `host:port` alone is HTTP.

    Raises:
        BadRequest: It is not an HTTP URL.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
        raise BadRequest(f"invalid broker URL {url!r}: use http://host:port or https://host:port")
    is_tls = parts.scheme == "https"
    if port is None:
        port = 443 if is_tls else DEFAULT_PORT
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    prefix = parts.path.rstrip("/")
    return Address(
        url=f"{parts.scheme}://{shown}:{port}{prefix}",
        host=host,
        port=port,
        is_tls=is_tls,
        host_header=f"{shown}:{port}",
        prefix=prefix,
    )


class Endpoint:
    """A broker, and until when it is passed over."""

    __slots__ = ("address", "failures", "shunned_until_s")

    def __init__(self, address: Address) -> None:
        self.address: Final = address
        self.failures = 0
        self.shunned_until_s = float("-inf")


class Endpoints:
    """All brokers of a client, at least one; one that failed is passed over for `cool_off_s`."""

    def __init__(self, urls: Sequence[str], *, cool_off_s: float = 5.0) -> None:
        if not urls:
            raise BadRequest("no broker URL given: pass at least one")
        self.all: Final = [Endpoint(parse_address(url)) for url in dict.fromkeys(urls)]
        self._cool_off_s: Final = cool_off_s
        self._orders: Final[dict[str, list[Endpoint]]] = {}

    def choose(self, key: str, now_s: float, avoiding: Container[Endpoint] = ()) -> Endpoint:
        """Return the broker for a key: the first that is well and was not tried already.

        When all are tried or shunned, the one whose time comes first.
        """
        if len(self.all) == 1:
            return self.all[0]
        order = self._order_of(key)
        for endpoint in order:
            if endpoint.shunned_until_s <= now_s and endpoint not in avoiding:
                return endpoint
        return min(order, key=lambda endpoint: endpoint.shunned_until_s)

    def has_other(self, now_s: float, avoiding: Container[Endpoint]) -> bool:
        """Say whether a broker that is well was not tried yet, so that no pause is needed."""
        return any(
            endpoint.shunned_until_s <= now_s and endpoint not in avoiding for endpoint in self.all
        )

    def report_failure(self, endpoint: Endpoint, now_s: float) -> None:
        """Note that a broker did not answer, or cannot serve at present."""
        endpoint.failures += 1
        endpoint.shunned_until_s = now_s + self._cool_off_s

    def report_success(self, endpoint: Endpoint) -> None:
        """Note that a broker served."""
        if endpoint.failures:
            endpoint.failures = 0
            endpoint.shunned_until_s = float("-inf")

    def _order_of(self, key: str) -> list[Endpoint]:
        order = self._orders.get(key)
        if order is None:
            if len(self._orders) >= ORDERS_MAX:
                self._orders.clear()
            order = sorted(self.all, key=lambda endpoint: _weight(key, endpoint), reverse=True)
            self._orders[key] = order
        return order


def _weight(key: str, endpoint: Endpoint) -> bytes:
    return blake2b(f"{key}\0{endpoint.address.url}".encode(), digest_size=8).digest()
