"""Which patterns may run on another's machine: those that take time in proportion to the text.

Java tries a regular expression in all the ways there are to match it, and nothing interrupts it.
`a.*a.*a.*b` takes minutes for 800 letters and weeks for 8,000, other patterns twice as long with
each letter. So a pattern is accepted only if the ways to match from one place are few, however long
the text is:

- Alternatives, and what may be there or not, such as `x?` and `x{1,5}`, multiply the ways.
- `*`, `+` and `{n,}` may repeat a single character or class. At the end they are free. Where
  something follows there are as many ways as letters, so the pattern must begin with `^`: else all
  of that would be tried again from every letter.

LIKE is such an expression as well, with `.*` for every `%`, and begins at the first letter.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

WAYS_MAX: Final = 100
CHARS_MAX: Final = 1_000

_FLAGS: Final = re.compile(r"\(\?[is]{1,2}\)")
_GROUP: Final = re.compile(r"\((?:\?:|(?!\?))")
_ANCHOR: Final = re.compile(r"\^|\$|\\[bBAzZ]")
_SINGLE: Final = re.compile(
    r"""
      \\[dDwWsStnrf] | \\[^\w\s]                                       # a class or a character
    | \[\^? (?: [^\]\[\\&] | &(?!&) | \\[dDwWsStnrf] | \\[^\w\s] )+ \]  # neither nested nor joined
    | [^\\\[(){*+?|^$]
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNT: Final = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<least>\d{1,2})(?P<range>,(?P<most>\d{1,2})?)?\})[?+]?"
)


class UnboundedPattern(ValueError):
    """A pattern may take time out of proportion, or cannot be judged."""


class _Part(NamedTuple):
    """A piece of a pattern: in how many ways it matches from one place."""

    ways: int = 1
    open_repeats: int = 0
    """How often the length of the text multiplies the ways."""
    is_start: bool = False
    is_single: bool = False


def check_regex(pattern: str) -> None:
    """Raise `UnboundedPattern` unless Java matches it in time proportional to the text."""
    if len(pattern) > CHARS_MAX:
        raise UnboundedPattern(f"it is longer than {CHARS_MAX} characters")
    flags = _FLAGS.match(pattern)
    reader = _Reader(pattern, flags.end() if flags else 0)
    branches = reader.branches()
    if not reader.is_done:
        raise reader.refusal()
    for parts in branches:
        is_anchored = parts[:1] == [_Part(is_start=True)]
        # What is repeated at the end takes all there is, and has matched.
        inner = parts[:-1] if parts and parts[-1].open_repeats and parts[-1].is_single else parts
        repeats = sum(part.open_repeats for part in inner)
        if repeats > is_anchored:
            raise UnboundedPattern(
                "only one *, + or {n,} may be followed by something"
                if is_anchored
                else "it needs ^ at its beginning, because something follows a *, + or {n,}"
            )
    _require_few(branches)


def check_like(pattern: str, escape: str) -> None:
    """Raise `UnboundedPattern` unless a pattern of LIKE takes time proportional to the text."""
    signs = re.sub(re.escape(escape) + ".", "_", pattern, flags=re.DOTALL).rstrip("%")
    if len(re.findall("%+", signs)) > 1:
        raise UnboundedPattern(
            "only one % may be followed by something: write several conditions with and"
        )


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str, at: int) -> None:
        self._pattern: Final = pattern
        self._at = at

    @property
    def is_done(self) -> bool:
        return self._at == len(self._pattern)

    def refusal(self) -> UnboundedPattern:
        """Say where reading ended."""
        rest = self._pattern[self._at : self._at + 10]
        return UnboundedPattern(f"{rest!r} in it is not among what can be judged")

    def branches(self) -> list[list[_Part]]:
        """Return the alternatives up to the end of the pattern or group."""
        found = [self._sequence()]
        while self._pattern.startswith("|", self._at):
            self._at += 1
            found.append(self._sequence())
        return found

    def _sequence(self) -> list[_Part]:
        parts: list[_Part] = []
        while not self.is_done and self._pattern[self._at] not in "|)":
            parts.append(self._counted(self._part()))
        return parts

    def _part(self) -> _Part:
        if (found := self._take(_ANCHOR)) is not None:
            return _Part(is_start=found[0] in ("^", r"\A"))
        if self._take(_SINGLE):
            return _Part(is_single=True)
        if not self._take(_GROUP):
            raise self.refusal()
        branches = self.branches()
        if not self._pattern.startswith(")", self._at):
            raise self.refusal()
        self._at += 1
        repeats = max(sum(part.open_repeats for part in parts) for parts in branches)
        return _Part(_require_few(branches), repeats)

    def _counted(self, part: _Part) -> _Part:
        found = self._take(_COUNT)
        if found is None:
            return part
        sign, least_text, most_text = found["sign"], found["least"], found["most"]
        least = int(least_text or 0)
        if sign in ("*", "+") or (found["range"] and most_text is None):
            if not part.is_single:
                raise UnboundedPattern("*, + and {n,} may repeat a single character or class only")
            return _Part(open_repeats=1, is_single=True)
        most = 1 if sign == "?" else int(most_text or least)
        ways = [part.ways**count for count in range(least, most + 1)]
        return _Part(min(sum(ways), WAYS_MAX + 1), part.open_repeats * most)

    def _take(self, expected: re.Pattern[str]) -> re.Match[str] | None:
        found = expected.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found


def _require_few(branches: Iterable[list[_Part]]) -> int:
    """Return in how many ways one of the branches matches; raise `UnboundedPattern` if too many."""
    ways = sum(math.prod(part.ways for part in parts) for parts in branches)
    if ways > WAYS_MAX:
        raise UnboundedPattern(f"there are more than {WAYS_MAX} ways to match it")
    return ways
