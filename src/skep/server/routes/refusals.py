"""The refusals that routes document, in the one shape that errors have."""

from typing import Final

from litestar.openapi import ResponseSpec

from skep.server.shapes import ErrorAnswer


def _refusal(text: str) -> ResponseSpec:
    return ResponseSpec(ErrorAnswer, description=text, generate_examples=False)


BAD_REQUEST: Final = {400: _refusal("A parameter is malformed.")}
NOT_FOUND: Final = {
    **BAD_REQUEST,
    404: _refusal("What the path or a parameter names is not there."),
}
"""For routes that name something."""
