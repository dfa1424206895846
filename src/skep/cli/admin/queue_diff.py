"""How `skep apply` shows people what would change: `+` is made, `~` is changed, `-` is deleted."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from skep.cli.admin.declared_queues import MemberChange, QueueChange

_SIGNS: Final = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}


def render_diff(changes: "Sequence[QueueChange]") -> "Text":
    """Return the changes as lines."""
    from rich.text import Text

    shown = Text()
    for change in changes:
        sign, colour = _SIGNS[change.action]
        shown.append(f"{sign} {change.queue}\n", style=f"bold {colour}")
        for member in change.members:
            shown.append_text(_member_line(member, change.action))
    return shown


def summary_of(changes: "Sequence[QueueChange]") -> str:
    """Return how much would happen, in words."""
    counts = {action: sum(each.action == action for each in changes) for action in _SIGNS}
    return (
        f"{counts['create']} to create, {counts['change']} to change, {counts['delete']} to delete"
    )


def _member_line(member: "MemberChange", action: str) -> "Text":
    from rich.text import Text

    line = Text(f"    {member.name}: ")
    if action != "create":
        line.append(_spell(member.before), style="red")
    if action == "change":
        line.append(" → ")
    if action != "delete":
        line.append(_spell(member.after), style="green")
    return line.append("\n")


def _spell(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
