"""How commands explain themselves: help in groups, types in words, mistakes with suggestions."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

import typer
from typer.core import TyperCommand, TyperGroup

_WORDS: Final = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
_NOT_A_CHOICE: Final = re.compile(r"'(?P<value>.*)' is not one of .*")


class HelpfulCommand(TyperCommand):
    """A command whose options stand in groups, its own first."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            parameter.metavar = parameter.metavar or _word_of(parameter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line: optional arguments in brackets."""
        arguments = filter(_is_argument, self.get_params(ctx))
        return ["[OPTIONS]", *map(_usage_of, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options, and options that many commands share."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if not getattr(parameter, "hidden", False):
                panel = "Arguments" if _is_argument(parameter) else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or panel
                panels.setdefault(panel, []).append(_row_of(parameter))
        _write(formatter, panels)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; a value that is no choice is answered with the choices."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _explained(error)
            raise


class HelpfulGroup(TyperGroup):
    """A group of commands, listed by their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by panel, and then the options: people look for a command."""
        panels: dict[str, list[tuple[str, str]]] = {}
        width = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, command.get_short_help_str(width)))
        panels["Options"] = [_row_of(each) for each in self.get_params(ctx)]
        _write(formatter, panels)


class Commands(typer.Typer):
    """Commands that explain themselves; without one, the group shows its help."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(
            name=name,
            help=summary,
            cls=HelpfulGroup,
            no_args_is_help=True,
            # Help in boxes costs 0.2 s of CPU each time.
            rich_markup_mode=None,
            # A traceback is for a bug report: whole, plain, and without the values of variables.
            pretty_exceptions_enable=False,
        )

    def command(self, *args: Any, **settings: Any) -> Any:
        """Add a command."""
        return super().command(*args, **{"cls": HelpfulCommand, **settings})


def closest(word: str, known: Sequence[str]) -> str:
    """Return the end of an error on a mistyped word: the one that was meant, if any is close."""
    similar = get_close_matches(word, known, n=1)
    return f". Did you mean {similar[0]}?" if similar else ""


def _explained(error: Any) -> str:
    message = str(error.message).removeprefix("Value error, ")
    choices = _choices_of(error.param) if error.param is not None else []
    wrong = _NOT_A_CHOICE.fullmatch(message)
    if wrong is None or not choices:
        return message
    return (
        f"{wrong['value']!r} is not one of {', '.join(choices)}{closest(wrong['value'], choices)}"
    )


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _choices_of(parameter: Any) -> list[str]:
    return [str(each) for each in parameter.type_descriptor.choices or ()]


def _word_of(parameter: Any) -> str:
    if _is_argument(parameter):
        return parameter.name.upper()
    if choices := _choices_of(parameter):
        return "|".join(choices)
    annotation = parameter.type_descriptor.annotation
    kinds = [annotation, *get_args(annotation)]
    return next((word for kind, word in _WORDS.items() if kind in kinds), "TEXT")


def _usage_of(parameter: Any) -> str:
    name = parameter.metavar if parameter.required else f"[{parameter.metavar}]"
    return name if parameter.nargs == 1 else f"{name}..."


def _row_of(parameter: Any) -> tuple[str, str]:
    """Return the name of a parameter with what it takes, and its help."""
    is_flag = getattr(parameter, "is_flag", False)
    if _is_argument(parameter):
        name = _usage_of(parameter)
    else:
        names = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts], key=len))
        name = names if is_flag else f"{names} {parameter.metavar}"
    default = None if is_flag else parameter.default
    note = "required" if parameter.required and not _is_argument(parameter) else ""
    if default not in (None, "", [], ()) and getattr(parameter, "show_default", True):
        note = f"default: {default}"
    return name, f"{parameter.help}  [{note}]" if note else parameter.help or ""


def _write(formatter: Any, panels: dict[str, list[tuple[str, str]]]) -> None:
    for panel, rows in panels.items():
        if rows:
            with formatter.section(panel):
                formatter.write_dl(rows)
