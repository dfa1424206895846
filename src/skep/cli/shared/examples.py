"""Examples at the end of a command's help. A test parses each of them."""

from typing import Final

_UNWRAPPED: Final = "\b"
"""On a line of its own it keeps click from filling the lines below it up to the margin."""


def examples(*lines: str) -> str:
    """Return the end of a help text that shows these command lines."""
    return "\n".join([_UNWRAPPED, "Examples:", *(f"  {line}" for line in lines)])
