"""Where scenarios are played: one of a file, on a client to import as `queen`.

A file of scenarios is run as `python <file> <scenario> <broker url> <queue>`; the last line of its
output is what the scenario saw, as JSON. Nothing here or in the scenarios knows of Skep.
"""

import asyncio
import json
import sys

from queen import Queen


def broker_url():
    return sys.argv[2]


def payloads(messages):
    return [message["data"] for message in messages]


async def error_of(call):
    """Return the text of the error that a call of the client ends with, or None."""
    try:
        await call
    except Exception as error:  # noqa: BLE001 -- the client raises nothing more specific
        return str(error)
    return None


def play(scenarios):
    """Play the scenario of the command line; `scenarios` are the names of a file."""
    _, scenario, url, queue = sys.argv
    asyncio.run(_play(scenarios[scenario], url, queue))


async def _play(scenario, url, queue):
    async with Queen(url) as queen:
        seen = await scenario(queen, queue)
    sys.stdout.write(json.dumps(seen) + "\n")
