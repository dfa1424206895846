"""The command `skep`.

Any command may raise a `SkepError`: it is printed as one line that says what to do, never as a
traceback, and `skep.cli.shared.exits` has its exit code. Importing this package is cheap: worker
processes import it, too.
"""

import sys
from collections.abc import Sequence

from skep.cli.shared.exits import SERVER_ERROR, USER_ERROR, exit_code_of, line_of
from skep.model.errors import SkepError

_USAGE_ERROR_OF_TYPER = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's, and return its exit code."""
    try:
        _run(arguments if arguments is None else list(arguments))
    except SkepError as error:
        sys.stderr.write(f"{line_of(error)}\n")
        return exit_code_of(error)
    except SystemExit as ending:
        # Only typer uses this code: commands raise an error instead.
        return USER_ERROR if ending.code == _USAGE_ERROR_OF_TYPER else int(ending.code or 0)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception:
        import logging

        logging.getLogger(__name__).exception("unexpected failure; please report it")
        return SERVER_ERROR
    return 0


def _run(arguments: list[str] | None) -> None:
    """Run a command; a missing extra becomes an error that names it."""
    from skep.cli.commands import app

    try:
        app(arguments)
    except ModuleNotFoundError as error:
        from skep.cli.shared.exits import missing_extra

        missing = missing_extra(error)
        if missing is None:
            raise
        raise missing from error
