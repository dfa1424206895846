"""How a client reaches its brokers; the same for both kinds of client."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from skep.client.retry import RetryPolicy

Token: TypeAlias = str | Callable[[], str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to reach the brokers."""

    urls: tuple[str, ...]
    token: Token = None
    """A token, or a function that returns the present one; it is called from any thread."""
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None = None
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0
    cool_off_s: float = 5.0
    retry: RetryPolicy


class Doubt:
    """Whether a request may have been carried out although nobody said so."""

    def __init__(self) -> None:
        self.is_possible = False
