"""Who is calling, and which queues it may use: made from the claims of a verified token.

The role is a name in one claim or an array of names in another, as with Queen; the highest counts.
A token without a known role may do nothing. Unknown names are ignored, because the same array often
serves other systems.

Grants restrict a token to some queues. The claim is an object, or an array of them:

    {"queues": ["orders", "orders.*"], "namespaces": ["billing"], "rights": "read-write"}

A grant covers a queue whose name matches one of `queues` or whose namespace matches one of
`namespaces`; `*` matches any characters. `rights` is a role, at most the token's own. A token
without the claim is not restricted; an empty claim grants no queue. A malformed claim refuses the
token.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from skep.model.errors import Forbidden, InvalidToken
from skep.model.limits import NAME_CHARS_MAX
from skep.server.auth.access import LEVEL_BY_WORD, Level

GRANTS_MAX: Final = 100
"""Grants of one token, and patterns of one grant."""

_MEMBERS: Final = frozenset({"queues", "namespaces", "rights"})


class NamePattern:
    """A name, optionally with asterisks; matching takes linear time."""

    __slots__ = ("_first", "_is_exact", "_last", "_middle")

    def __init__(self, text: str) -> None:
        self._first, *rest = text.split("*")
        self._is_exact = not rest
        self._last = rest.pop() if rest else ""
        self._middle = rest

    def matches(self, name: str) -> bool:
        """Whether a name matches."""
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
    """Rights on queues, by name and by namespace."""

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
        """Return the level granted by a queue's name."""
        return self._highest(grant for grant in self._grants if _fits(queue, grant.queues))

    def level_of_namespace(self, namespace: str) -> Level:
        """Return the level granted by a namespace; none for the empty one."""
        if not namespace:
            return Level.NONE
        return self._highest(grant for grant in self._grants if _fits(namespace, grant.namespaces))

    @staticmethod
    def _highest(grants: Iterable[Grant]) -> Level:
        return max((grant.level for grant in grants), default=Level.NONE)


def parse_grants(claim: object, *, ceiling: Level) -> Grants | None:
    """Parse the grants of a token; None without the claim: the token is not restricted."""
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
        # An unknown member may be a condition.
        raise InvalidToken("A grant of the token has unknown members")
    rights = members.get("rights", ceiling.word)
    level = LEVEL_BY_WORD.get(rights) if isinstance(rights, str) else None
    if level is None and "rights" in members:
        raise InvalidToken("The rights of a grant must be read-only, read-write or admin")
    return Grant(
        _parse_patterns(members.get("queues")),
        _parse_patterns(members.get("namespaces")),
        min(level or Level.NONE, ceiling),
    )


def _parse_patterns(value: object) -> list[NamePattern]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidToken("The queues and namespaces of a grant must be arrays of names")
    named = cast("list[object]", value)
    if len(named) > GRANTS_MAX:
        raise InvalidToken(f"A grant of the token has more than {GRANTS_MAX} names")
    return [_parse_pattern(text) for text in named]


def _parse_pattern(text: object) -> NamePattern:
    if not isinstance(text, str) or not 0 < len(text) <= NAME_CHARS_MAX:
        raise InvalidToken("A name in a grant of the token is empty, too long or not a string")
    return NamePattern(text)


def _fits(name: str, patterns: Sequence[NamePattern]) -> bool:
    return any(pattern.matches(name) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller."""

    subject: str | None
    """Stored with the messages it pushes."""
    level: Level
    grants: Grants | None = field(default=None, repr=False)
    """The queues it is restricted to; None if unrestricted."""
    expires_at: float = math.inf
    """Seconds since 1970."""

    def require(self, level: Level) -> None:
        """Raise `Forbidden` unless the caller has at least this role."""
        if self.level < level:
            raise Forbidden(f"Insufficient permissions: this requires the role {level.word}")


ANYONE: Final = Identity(None, Level.ADMIN)
"""Every caller of a broker without authentication."""

STRANGER: Final = Identity(None, Level.NONE)
"""A caller without a token, of a public route or with a signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNames:
    """The claims that contain roles and grants."""

    role: str = "role"
    roles: str = "roles"
    grants: str = "skep_grants"
    levels: Mapping[str, Level]
    """By the names of roles."""


def identity_of(claims: Mapping[str, Any], names: ClaimNames, *, leeway_s: float) -> Identity:
    """Return the identity of a verified token."""
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
    """Return the subject; it must be storable with the messages it pushes."""
    if claim is None:
        return None
    if not isinstance(claim, str) or len(claim) > NAME_CHARS_MAX or "\0" in claim:
        raise InvalidToken("The subject of the token is not a string, too long or contains a NUL")
    try:
        claim.encode()
    except UnicodeEncodeError:
        raise InvalidToken("The subject of the token is not valid Unicode") from None
    return claim
