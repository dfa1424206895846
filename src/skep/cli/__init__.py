"""The command `skep`.

Exit codes: 0 it worked, 1 the caller has to change something, 2 the server's side failed. An
expected failure is one line that says what to do, never a traceback. Importing this package costs
nothing: worker processes import it too, as the program they were started from.
"""

import logging
import sys

from skep.model.errors import BadRequest, Refused, SkepError

USER_ERROR = 1
SERVER_ERROR = 2

_USAGE_ERROR_OF_TYPER = 2
_HINTS = {
    "unavailable": "; is the server running, and is the URL right? `skep config` shows it",
}
"""What to do about errors that, where they are raised, cannot know that a person reads them."""


def main() -> int:
    """Run the command line of this process and return its exit code."""
    from skep.cli.commands import app

    try:
        app()
    except SkepError as error:
        sys.stderr.write(f"skep: {error.message}{_HINTS.get(error.code, '')}\n")
        return USER_ERROR if isinstance(error, BadRequest | Refused) else SERVER_ERROR
    except SystemExit as ending:
        # Commands never end with this code themselves: they raise an error instead.
        return USER_ERROR if ending.code == _USAGE_ERROR_OF_TYPER else int(ending.code or 0)
    except Exception:
        logging.getLogger(__name__).exception("unexpected failure; please report it")
        return SERVER_ERROR
    return 0
