"""The page of a listing: what was asked for, and what an answer repeats."""

import msgspec


class Page(msgspec.Struct, frozen=True):
    """Which part of a list: so many entries, after passing over so many."""

    limit: int
    offset: int
