"""The command `skep`.

How it ends is said in `skep.cli.shared.exits`: an expected failure is one line that says what to
do, never a traceback. Importing this package costs nothing: worker processes import it too, as the
program they were started from.
"""

import sys
from collections.abc import Sequence

from skep.cli.shared.exits import SERVER_ERROR, USER_ERROR, exit_code_of, line_of
from skep.model.errors import SkepError

_USAGE_ERROR_OF_TYPER = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit code."""
    try:
        _run(arguments if arguments is None else list(arguments))
    except SkepError as error:
        sys.stderr.write(f"{line_of(error)}\n")
        return exit_code_of(error)
    except SystemExit as ending:
        # Commands never end with this code themselves: they raise an error instead.
        return USER_ERROR if ending.code == _USAGE_ERROR_OF_TYPER else int(ending.code or 0)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception:
        import logging

        logging.getLogger(__name__).exception("unexpected failure; please report it")
        return SERVER_ERROR
    return 0


def _run(arguments: list[str] | None) -> None:
    """Run a command; a part of skep that is not installed becomes an error that says so."""
    from skep.cli.commands import app

    try:
        app(arguments)
    except ModuleNotFoundError as error:
        from skep.cli.shared.extras import missing_extra

        told = missing_extra(error)
        if told is None:
            raise
        raise told from error
