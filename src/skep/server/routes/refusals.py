"""Errors of a route beyond those that the API document gives to every route of its kind."""

from typing import Final

from litestar.openapi import ResponseSpec

from skep.server.api_document.shapes import ErrorAnswer


def refusal(text: str) -> ResponseSpec:
    """Describe when a route answers with an error."""
    return ResponseSpec(ErrorAnswer, description=text, generate_examples=False)


UNREADABLE: Final = {409: refusal("A payload is encrypted, and this broker lacks the key.")}
