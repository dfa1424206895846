"""Flags that many commands share: a decorator takes them, and typer shows them with each command.

A command that is decorated so has, as its first argument, what the flags stand for: a client, the
database that was named. That argument disappears from the command line and the flags stand there.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def show_flags(
    run: Callable[..., Any], command: Callable[..., Any], flags: Mapping[str, Any]
) -> None:
    """Make typer see flags behind the command's own parameters, and not its first argument.

    Args:
        run: What typer calls, made by `functools.wraps` of the command.
        command: What is decorated.
        flags: Their types by name; all of them may be left out.
    """
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in flags.items()
    ]
    parameters = [*own, *shared]
    shown: Any = run
    del shown.__wrapped__
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {each.name: each.annotation for each in parameters}
