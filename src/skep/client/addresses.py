"""Where brokers are, and how paths below them are spelled."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode, urlsplit

from skep.model.errors import BadRequest

DEFAULT_PORT = 6632


@dataclass(frozen=True, slots=True)
class Address:
    """One base URL, taken apart."""

    url: str
    host: str
    port: int
    is_tls: bool
    host_header: str
    prefix: str
    """What stands before every path; empty for most."""


def parse_address(url: str) -> Address:
    """Take a base URL apart; `host:port` alone is HTTP.

    Raises:
        BadRequest: It is none, or not of HTTP.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
        raise BadRequest(f"{url!r} is not the URL of a broker")
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


def path_of(*segments: str, **query: object) -> str:
    """Join names to a path below `/api/v1`; what is None in the query is left out.

    The first segment may contain slashes, the others are names and are quoted.
    """
    path = "/api/v1/" + "/".join([segments[0], *(quote(name, safe="") for name in segments[1:])])
    wanted = {name: spell(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def spell(value: object) -> str:
    """Spell a query value as the wire has it."""
    if isinstance(value, datetime):
        return spell_moment(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def spell_moment(moment: datetime) -> str:
    """Spell a time; one without a zone is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def affinity_of(queue: str, group: str) -> str:
    """Return what lets the requests of a group on a queue meet at one broker."""
    return f"{queue}\0{group}"
