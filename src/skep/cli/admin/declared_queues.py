"""Queues as a file declares them, and how they differ from those that exist.

Pure: text in, differences out; `skep apply` reads the file, asks the broker and acts. A file is the
whole truth about the options of the queues it names: one that it leaves out has its default. The
namespace, the task and whether a queue is paused are left alone unless the file speaks of them: a
push that makes a queue chooses the first two, and people pause queues in a hurry.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import yaml as _typed_yaml

from skep.cli.admin.queue_options import check_options
from skep.model.errors import BadRequest
from skep.model.names import check_name
from skep.model.queue_options import QueueOptions

yaml: Final[Any] = _typed_yaml  # its types are mostly unknown

DEFAULTS: Final[dict[str, Any]] = msgspec.to_builtins(QueueOptions())


class DeclaredQueue(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A queue as it should be."""

    namespace: str | None = None
    task: str | None = None
    paused: bool | None = None
    """None, like that of the two above, leaves it as it is."""
    options: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """By the names of the wire; null is the default."""

    def wanted_options(self) -> dict[str, Any]:
        """Return all options with their values."""
        given = {name: value for name, value in self.options.items() if value is not None}
        return {**DEFAULTS, **given}


class ExistingQueue(NamedTuple):
    """A queue as it is."""

    namespace: str
    task: str
    is_paused: bool
    options: Mapping[str, Any]


class MemberChange(NamedTuple):
    """One thing about a queue that is to change; None stands for a queue that is not there."""

    name: str
    before: Any
    after: Any


class QueueChange(NamedTuple):
    """What is to happen to one queue."""

    queue: str
    action: Literal["create", "change", "delete"]
    members: Sequence[MemberChange] = ()

    def options(self) -> dict[str, Any]:
        """Return the options to send."""
        return {each.name: each.after for each in self.members if each.name in DEFAULTS}

    def value_of(self, member: str) -> Any:
        """Return what a member is to become, or None if it stays."""
        return next((each.after for each in self.members if each.name == member), None)


Declaration: TypeAlias = dict[str, DeclaredQueue]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    queues: Declaration


def parse_declaration(text: str, *, source: str) -> Declaration:
    """Read a file of queues, which may consist of several YAML documents.

    Raises:
        BadRequest: It is not one; says what is wrong with what.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_UniqueKeyLoader))
    except yaml.YAMLError as error:
        raise BadRequest(f"{source} is not YAML: {error}") from error
    declared = merge_declarations(
        [_read_document(each, source) for each in documents if each is not None]
    )
    if not declared:
        raise BadRequest(f"{source} declares no queues; it begins with `queues:`")
    return declared


def merge_declarations(declarations: Iterable[Declaration]) -> Declaration:
    """Put several declarations together.

    Raises:
        BadRequest: Two of them declare the same queue.
    """
    merged: Declaration = {}
    for declared in declarations:
        for name, queue in declared.items():
            if name in merged:
                raise BadRequest(f"queue {name} is declared twice")
            merged[name] = queue
    return merged


def differences(
    declared: Declaration, look: Callable[[str], ExistingQueue | None]
) -> Iterator[QueueChange]:
    """Yield what has to happen so that the declared queues are as declared."""
    for name, wanted in declared.items():
        existing = look(name)
        if existing is None:
            yield QueueChange(name, "create", _members_of_new(wanted))
        elif members := _changed_members(existing, wanted):
            yield QueueChange(name, "change", members)


def _members_of_new(wanted: DeclaredQueue) -> list[MemberChange]:
    blank = ExistingQueue("", "", is_paused=False, options=DEFAULTS)
    return [each._replace(before=None) for each in _changed_members(blank, wanted)]


def _changed_members(existing: ExistingQueue, wanted: DeclaredQueue) -> list[MemberChange]:
    spoken_of = (
        MemberChange("namespace", existing.namespace, wanted.namespace),
        MemberChange("task", existing.task, wanted.task),
        MemberChange("paused", existing.is_paused, wanted.paused),
    )
    pairs = [each for each in spoken_of if each.after is not None]
    pairs += (
        # An older broker does not know every option: it acts as by the default then.
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
            _check_queue(name, queue)
        except BadRequest as error:
            raise BadRequest(f"{source}: queue {name}: {error.message}") from error
    return declared


def _check_queue(name: str, queue: DeclaredQueue) -> None:
    check_name("queue", name)
    check_options(queue.options)


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: YAML's own loader would keep the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} is there twice", node.value[number][0].start_mark
                )
        mapping: dict[Any, Any] = yaml.SafeLoader.construct_mapping(self, node, deep)
        return mapping
