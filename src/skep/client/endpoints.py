"""Choose which of several brokers gets a request. Pure: the caller brings the time.

Requests about the same thing go to the same broker as long as it is well, because brokers fuse what
arrives at one of them, and remember the leases they gave. Each key has its own order of all brokers
(the highest of a hash of key and URL comes first), so that losing one moves only its own keys. One
that failed is passed over for a while, unless none is left.
"""

from collections.abc import Container, Sequence
from hashlib import blake2b
from typing import Final

from skep.client.addresses import Address, parse_address
from skep.model.errors import BadRequest

ORDERS_MAX: Final = 1_024
"""Orders remembered; computing one anew costs a microsecond per broker."""


class Endpoint:
    """A broker, and since when it is not to be asked."""

    __slots__ = ("address", "failures", "shunned_until_s")

    def __init__(self, address: Address) -> None:
        self.address: Final = address
        self.failures = 0
        self.shunned_until_s = float("-inf")


class Endpoints:
    """All brokers of a client.

    Args:
        urls: At least one.
        cool_off_s: How long one that failed is passed over.
    """

    def __init__(self, urls: Sequence[str], *, cool_off_s: float = 5.0) -> None:
        if not urls:
            raise BadRequest("a client needs the URL of a broker")
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
        """Say whether a broker that is well was not tried yet, so that nobody need wait."""
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
