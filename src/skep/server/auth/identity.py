"""Grants: the queues a token is restricted to, and what it may do with each.

The claim is an object, or an array of them:

    {"queues": ["orders", "orders.*"], "namespaces": ["billing"], "rights": "read-write"}

A grant covers a queue whose name fits one of `queues` or whose namespace fits one of `namespaces`;
`*` stands for any characters. `rights` is a role, and the role of the token is its ceiling. A token
without the claim is not restricted; one with an empty claim has no queue at all. A claim that
cannot be read refuses the token: to guess would mean to grant.

Pure. Which namespace a queue has is the caller's to find out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from skep.model.errors import Forbidden, InvalidToken
from skep.model.limits import NAME_CHARS_MAX
from skep.server.auth.access import LEVEL_BY_WORD, Level

GRANTS_MAX: Final = 100
"""Grants of one token, and patterns of one grant. All are looked at for a new name."""

_MEMBERS: Final = frozenset({"queues", "namespaces", "rights"})


class NamePattern:
    """A name, or a name with asterisks; matching is linear in the length of the name."""

    __slots__ = ("_first", "_is_exact", "_last", "_middle")

    def __init__(self, text: str) -> None:
        self._first, *rest = text.split("*")
        self._is_exact = not rest
        self._last = rest.pop() if rest else ""
        self._middle = rest

    def matches(self, name: str) -> bool:
        """Whether a name fits."""
        if self._is_exact:
            return name == self._first
        if not name.startswith(self._first):
            return False
        position = len(self._first)
        for part in self._middle:
            found = name.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        return len(name) - position >= len(self._last) and name.endswith(self._last)


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on the queues of some names and namespaces."""

    queues: Sequence[NamePattern]
    namespaces: Sequence[NamePattern]
    level: Level


class Grants:
    """All grants of one token."""

    __slots__ = ("_grants",)

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = grants

    @property
    def knows_namespaces(self) -> bool:
        """Whether the namespace of a queue can matter."""
        return any(grant.namespaces for grant in self._grants)

    def level_of_name(self, queue: str) -> Level:
        """Return what is granted on a queue whatever its namespace."""
        return self._highest(grant for grant in self._grants if _fits(queue, grant.queues))

    def level_of_namespace(self, namespace: str) -> Level:
        """Return what is granted on every queue of a namespace. No namespace is none."""
        if not namespace:
            return Level.NONE
        return self._highest(grant for grant in self._grants if _fits(namespace, grant.namespaces))

    def level_of(self, queue: str, namespace: str) -> Level:
        """Return what is granted on a queue."""
        return max(self.level_of_name(queue), self.level_of_namespace(namespace))

    @staticmethod
    def _highest(grants: Iterable[Grant]) -> Level:
        return max((grant.level for grant in grants), default=Level.NONE)


def parse_grants(claim: object, *, ceiling: Level) -> Grants | None:
    """Read the claim of a token; None when it has none and so is not restricted.

    Raises:
        InvalidToken: The claim is not made of grants.
    """
    if claim is None:
        return None
    entries = cast("list[object]", claim) if isinstance(claim, list) else [claim]
    if len(entries) > GRANTS_MAX:
        raise InvalidToken(f"Token has more than {GRANTS_MAX} grants")
    return Grants([_parse_grant(entry, ceiling) for entry in entries])


def _parse_grant(entry: object, ceiling: Level) -> Grant:
    if not isinstance(entry, dict):
        raise InvalidToken("A grant of the token is not an object")
    members = cast("dict[str, object]", entry)
    if not members.keys() <= _MEMBERS:
        # A condition that is not understood must not be left out of account.
        raise InvalidToken("A grant of the token has members that are not known")
    rights = members.get("rights", ceiling.word)
    level = LEVEL_BY_WORD.get(rights) if isinstance(rights, str) else None
    if level is None and "rights" in members:
        raise InvalidToken("The rights of a grant are not read-only, read-write or admin")
    return Grant(
        _parse_patterns(members.get("queues")),
        _parse_patterns(members.get("namespaces")),
        min(level or Level.NONE, ceiling),
    )


def _parse_patterns(value: object) -> list[NamePattern]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidToken("The queues and namespaces of a grant are arrays of names")
    named = cast("list[object]", value)
    if len(named) > GRANTS_MAX:
        raise InvalidToken(f"A grant of the token has more than {GRANTS_MAX} names")
    return [_parse_pattern(text) for text in named]


def _parse_pattern(text: object) -> NamePattern:
    if not isinstance(text, str) or not 0 < len(text) <= NAME_CHARS_MAX:
        raise InvalidToken("A name in a grant of the token is empty, too long or not text")
    return NamePattern(text)


def _fits(name: str, patterns: Sequence[NamePattern]) -> bool:
    return any(pattern.matches(name) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller."""

    subject: str | None
    """Stamped on what it pushes."""
    level: Level
    grants: Grants | None = field(default=None, repr=False)
    """The queues it is restricted to; None for all."""
    expires_at: float = math.inf
    """Seconds since 1970."""

    def require(self, level: Level) -> None:
        """Let pass whoever has at least this role.

        Raises:
            Forbidden: The role is a lower one.
        """
        if self.level < level:
            raise Forbidden(f"Insufficient permissions: this needs the role {level.word}")


ANYONE: Final = Identity(None, Level.ADMIN)
"""Every caller of a broker that does not authenticate."""

STRANGER: Final = Identity(None, Level.NONE)
"""A caller of a public route who did not say who it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNames:
    """Where a token says what."""

    role: str = "role"
    roles: str = "roles"
    grants: str = "skep_grants"
    levels: Mapping[str, Level]
    """The words that stand for roles."""


def identity_of(claims: Mapping[str, Any], names: ClaimNames, *, leeway_s: float) -> Identity:
    """Read the claims of a verified token.

    Raises:
        InvalidToken: A claim has a shape that it cannot have.
    """
    level = _level(claims, names)
    return Identity(
        subject=_subject(claims.get("sub")),
        level=level,
        grants=parse_grants(claims.get(names.grants), ceiling=level),
        expires_at=float(claims["exp"]) + leeway_s,
    )


def _level(claims: Mapping[str, Any], names: ClaimNames) -> Level:
    words: list[object] = [claims.get(names.role)]
    several = claims.get(names.roles)
    if isinstance(several, list):
        words += cast("list[object]", several)
    named = (names.levels.get(word) for word in words if isinstance(word, str))
    return max((level for level in named if level is not None), default=Level.NONE)


def _subject(claim: object) -> str | None:
    """Return who it is, fit to be stored with every message it pushes."""
    if claim is None:
        return None
    if not isinstance(claim, str) or len(claim) > NAME_CHARS_MAX or "\0" in claim:
        raise InvalidToken("The subject of the token is not text, too long or has a NUL")
    try:
        claim.encode()
    except UnicodeEncodeError:
        raise InvalidToken("The subject of the token is not Unicode") from None
    return claim
