"""Who is asking: made from the claims of a verified token.

The role is a word in one claim or an array of words in another, as with Queen; the highest counts.
A token without one of our roles is known and may do nothing. Words that are no role are passed
over, because the same array often serves other systems.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from skep.model.errors import Forbidden, InvalidToken
from skep.model.limits import NAME_CHARS_MAX
from skep.server.auth.access import Level
from skep.server.auth.grants import Grants, parse_grants


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
