"""Queues as a file declares them, and how they differ from those that exist.

Pure: text in, differences out. A file determines all options of the queues it names: one that it
leaves out has its default. The namespace, the task and whether a queue is paused change only if the
file names them: a push that creates a queue chooses the first two, and people pause queues in a
hurry.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import yaml as _typed_yaml

from skep.cli.admin.queues import check_options
from skep.model.errors import BadRequest
from skep.model.names import check_name
from skep.model.queue_options import QueueOptions

yaml: Final[Any] = _typed_yaml  # its types are mostly unknown

DEFAULTS: Final[dict[str, Any]] = msgspec.to_builtins(QueueOptions())


class DeclaredQueue(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A queue as the file declares it."""

    namespace: str | None = None
    task: str | None = None
    paused: bool | None = None
    """None leaves it unchanged, as do namespace and task."""
    options: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """By their names on the wire; null means the default."""

    def wanted_options(self) -> dict[str, Any]:
        """Return all options with their values."""
        given = {name: value for name, value in self.options.items() if value is not None}
        return {**DEFAULTS, **given}


class ExistingQueue(NamedTuple):
    """A queue as it exists."""

    namespace: str
    task: str
    is_paused: bool
    options: Mapping[str, Any]


class MemberChange(NamedTuple):
    """One changed property of a queue; `before` is None for a new queue."""

    name: str
    before: Any
    after: Any


class QueueChange(NamedTuple):
    """The change of one queue."""

    queue: str
    action: Literal["create", "change", "delete"]
    members: Sequence[MemberChange] = ()

    def options(self) -> dict[str, Any]:
        """Return the options to send."""
        return {each.name: each.after for each in self.members if each.name in DEFAULTS}

    def value_of(self, member: str) -> Any:
        """Return the new value of a member, or None if it stays."""
        return next((each.after for each in self.members if each.name == member), None)


Declaration: TypeAlias = dict[str, DeclaredQueue]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    queues: Declaration


def parse_declaration(text: str, *, source: str) -> Declaration:
    """Parse a declaration, which may be several YAML documents."""
    try:
        documents = list(yaml.load_all(text, Loader=_UniqueKeyLoader))
    except yaml.YAMLError as error:
        raise BadRequest(f"{source} is not YAML: {error}") from error
    declared = merge_declarations(
        [_read_document(each, source) for each in documents if each is not None]
    )
    if not declared:
        raise BadRequest(f"{source} declares no queues; it must have a `queues:` mapping")
    return declared


def merge_declarations(declarations: Iterable[Declaration]) -> Declaration:
    """Merge declarations."""
    merged: Declaration = {}
    for declared in declarations:
        for name, queue in declared.items():
            if name in merged:
                raise BadRequest(f"queue {name} is declared twice")
            merged[name] = queue
    return merged


def differences(
    declared: Declaration, find: Callable[[str], ExistingQueue | None]
) -> Iterator[QueueChange]:
    """Yield the changes that make queues as declared."""
    for name, wanted in declared.items():
        existing = find(name)
        if existing is None:
            yield QueueChange(name, "create", _members_of_new(wanted))
        elif members := _changed_members(existing, wanted):
            yield QueueChange(name, "change", members)


def _members_of_new(wanted: DeclaredQueue) -> list[MemberChange]:
    blank = ExistingQueue("", "", is_paused=False, options=DEFAULTS)
    return [each._replace(before=None) for each in _changed_members(blank, wanted)]


def _changed_members(existing: ExistingQueue, wanted: DeclaredQueue) -> list[MemberChange]:
    named = (
        MemberChange("namespace", existing.namespace, wanted.namespace),
        MemberChange("task", existing.task, wanted.task),
        MemberChange("paused", existing.is_paused, wanted.paused),
    )
    pairs = [each for each in named if each.after is not None]
    pairs += (
        # An older broker lacks newer options, and acts as their defaults say.
        MemberChange(name, existing.options.get(name, DEFAULTS[name]), value)
        for name, value in wanted.wanted_options().items()
    )
    return [each for each in pairs if each.before != each.after]


def _read_document(document: Any, source: str) -> Declaration:
    try:
        declared = msgspec.convert(document, _File).queues
    except msgspec.ValidationError as error:
        raise BadRequest(f"{source}: {error}") from error
    for name, queue in declared.items():
        try:
            check_name("queue", name)
            check_options(queue.options)
        except BadRequest as error:
            raise BadRequest(f"{source}: queue {name}: {error.message}") from error
    return declared


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses duplicate keys, of which YAML's own loader keeps the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key}", node.value[number][0].start_mark
                )
        mapping: dict[Any, Any] = yaml.SafeLoader.construct_mapping(self, node, deep)
        return mapping
