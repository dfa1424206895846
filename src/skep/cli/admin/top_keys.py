"""What the keys of `skep top` do: which rows come first, which is chosen, what is open. Pure."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skep.cli.admin.top_figures import Frame, GroupRow, QueueRow

QUEUE_ORDERS: Final = ("busiest", "waiting", "in/s", "out/s", "dead letters", "queue")
GROUP_ORDERS: Final = ("lag", "growth", "oldest", "group")
HELP: Final = (
    ("↑ ↓", "choose a row"),
    ("Enter", "open it; Esc goes back"),
    ("Tab", "go to the other table"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("?", "show or hide this help"),
    ("q", "quit"),
)
_UP: Final = frozenset({"\x1b[A", "\x1bOA", "k"})
_DOWN: Final = frozenset({"\x1b[B", "\x1bOB", "j"})
_BACK: Final = frozenset({"\x1b", "\x7f", "\x1b[D"})

Table: TypeAlias = Literal["queues", "groups"]


@dataclass(frozen=True, slots=True)
class View:
    """What a person looks at."""

    table: Table = "queues"
    orders: tuple[int, int] = (0, 0)
    """Places in `QUEUE_ORDERS` and `GROUP_ORDERS`."""
    is_reversed: bool = False
    row: int = 0
    """The chosen row of the table."""
    is_open: bool = False
    """Its details are shown instead of the tables."""
    has_help: bool = False

    @property
    def order(self) -> str:
        """The column that sorts the table."""
        return self.order_of(self.table)

    def order_of(self, table: Table) -> str:
        """Return the column that sorts a table."""
        queues, groups = self.orders
        return QUEUE_ORDERS[queues] if table == "queues" else GROUP_ORDERS[groups]

    def press(self, key: str, row_count: int) -> "View | None":
        """Return the view after a key, of a table with so many rows; None to quit."""
        last = max(row_count - 1, 0)
        if key in ("q", "Q") or (key == "\x1b" and not (self.is_open or self.has_help)):
            return None
        if key == "?":
            return replace(self, has_help=not self.has_help)
        if key in _BACK:
            return replace(self, is_open=False, has_help=False)
        if key in _UP or key in _DOWN:
            step = 1 if key in _DOWN else -1
            return replace(self, row=min(max(min(self.row, last) + step, 0), last))
        if key in ("\r", "\n"):
            return replace(self, is_open=bool(row_count))
        if key == "\t":
            other: Table = "groups" if self.table == "queues" else "queues"
            return replace(self, table=other, row=0, is_open=False)
        if key == "s":
            queues, groups = self.orders
            is_queues = self.table == "queues"
            moved = (queues + is_queues) % len(QUEUE_ORDERS), (groups + (not is_queues)) % 4
            return replace(self, orders=moved, row=0)
        return replace(self, is_reversed=not self.is_reversed) if key == "r" else self


def sorted_queues(frame: "Frame", view: View) -> "Sequence[QueueRow]":
    """Return the queues in the order of the view."""
    order = view.order_of("queues")

    def rank(row: "QueueRow") -> tuple[float, int, str]:
        figures = {
            "busiest": sum(row.rates),
            "waiting": row.pending,
            "in/s": row.rates.pushed,
            "out/s": row.rates.delivered,
            "dead letters": row.dead_letters,
        }
        return -figures.get(order, 0), -row.pending if order == "busiest" else 0, row.name

    is_reversed = view.is_reversed and view.table == "queues"
    return sorted(frame.queues, key=rank, reverse=is_reversed)


def sorted_groups(frame: "Frame", view: View) -> "Sequence[GroupRow]":
    """Return the groups in the order of the view."""
    order = view.order_of("groups")

    def rank(row: "GroupRow") -> tuple[float, str, str]:
        figures = {"lag": row.lag, "growth": row.growth, "oldest": row.oldest_s}
        return -figures.get(order, 0), row.name, row.queue

    is_reversed = view.is_reversed and view.table == "groups"
    return sorted(frame.groups, key=rank, reverse=is_reversed)
