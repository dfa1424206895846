"""Declare jobs once, typed from one end of a chain to the other.

`Job[I, O]` is a step that takes an `I` and belongs to a chain that yields an `O` in the end: its
handler returns that `O`, or `Continue(next_job, input)` with a job whose chain yields an `O` as
well. So a type checker follows a chain through any number of steps, loops and branches included.

A job is declared with its handler (`@types.job(...)`), or without one (`types.declare(...)`) where
a program only starts it.
"""

import inspect
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
)
from uuid import UUID

import msgspec

from skep.jobs.declare.codec import Codec, Ref, refs_in
from skep.jobs.errors import DuplicateBlocker, InvalidInput, InvalidOutput, UnknownJobType
from skep.jobs.identifiers import new_id
from skep.model.errors import BadRequest, Defect

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from skep.jobs.declare.context import Ctx

I = TypeVar("I")  # noqa: E741 -- input and output, as in Job[I, O]
O = TypeVar("O")  # noqa: E741
I2 = TypeVar("I2")

Mode: TypeAlias = Literal["staged", "atomic"]
Executor: TypeAlias = Literal["loop", "thread", "process"]
OnBlockerFailure: TypeAlias = Literal["wait", "fail", "ignore"]
"""When a chain that a job waits for fails or is cancelled, the job waits until that is retried,
fails too, or runs as if it had completed."""
Middleware: TypeAlias = "Callable[[Ctx[Any, Any]], AbstractAsyncContextManager[None]]"
"""Wraps an attempt: code before `yield` runs before the handler, code behind it after."""

NAME_LENGTH_MAX: Final = 255
TOGETHER_MAX: Final = 50
"""Each is a subtransaction; PostgreSQL slows down where one has more than 64 of them."""
PRIORITY_MIN: Final = -32768
PRIORITY_MAX: Final = 32767


MAX_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a job that failed is tried again.

        delay(n) = min(initial * multiplier ** (n - 1), cap), varied by up to `jitter` of itself

    after the n-th failure, until there were `max_attempts` of them. Attempts that were lost with
    their worker count as failures; those that asked to run later do not.
    """

    max_attempts: int = MAX_ATTEMPTS
    initial_s: float = 1.0
    multiplier: float = 2.0
    cap_s: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise BadRequest(f"invalid max_attempts {self.max_attempts}: use at least 1")
        if self.initial_s < 0 or self.cap_s < 0 or self.multiplier < 1:
            raise BadRequest(
                "invalid retry delays: use initial_s and cap_s of at least 0, multiplier of at "
                "least 1"
            )
        if not 0 <= self.jitter <= 1:
            raise BadRequest(f"invalid jitter {self.jitter}: use 0 to 1")

    def delay_s(self, failures: int, chance: random.Random) -> float:
        """Return how long to wait after so many failures."""
        try:
            exact_s = min(self.initial_s * self.multiplier ** (failures - 1), self.cap_s)
        except OverflowError:  # above any cap, unless it starts at 0
            exact_s = self.cap_s if self.initial_s else 0.0
        return exact_s * chance.uniform(1 - self.jitter, 1 + self.jitter)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs of a type may run; None = as many as there are workers for.

    Attributes:
        concurrency: running at once, in all workers together.
        per_key: running at once with the same `limit_key`.
        rate: started per `per`.
        per: the period of `rate`.
    """

    concurrency: int | None = None
    per_key: int | None = None
    rate: int | None = None
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        for limit in (self.concurrency, self.per_key, self.rate):
            if limit is not None and limit < 1:
                raise BadRequest(f"invalid limit {limit}: use at least 1")
        if self.per <= timedelta(0):
            raise BadRequest(f"invalid period {self.per}: use a positive one")


@dataclass(frozen=True, slots=True)
class Dedup:
    """How a key keeps a second chain of the same type from starting.

    Attributes:
        key: whose chains are one.
        scope: "open": only a chain that has not ended holds its key; "any": a chain that has ended
            holds it as well, even when it was pruned, until it is deleted.
        window: only a chain started so recently holds its key; None = for ever.
        instead_of: a chain whose hold does not count. A job that starts its own successor with the
            key it holds itself names its own chain here.
    """

    key: str
    scope: Literal["open", "any"] = "open"
    window: timedelta | None = None
    instead_of: UUID | None = None


class Job(Generic[I, O]):
    """A step that takes an `I`, in a chain that yields an `O`."""

    def __init__(
        self,
        name: str,
        input_type: Any,
        output_type: Any,
        *,
        mode: Mode = "staged",
        together: int = 1,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        limits: Limits | None = None,
        priority: int = 0,
        executor: Executor = "loop",
    ) -> None:
        if not 1 <= len(name) <= NAME_LENGTH_MAX or "\n" in name:
            raise BadRequest(
                f"invalid job name {name[:50]!r}: use 1 to {NAME_LENGTH_MAX} characters in one line"
            )
        self.name: Final = name
        if not 1 <= together <= TOGETHER_MAX:
            raise BadRequest(f"invalid together {together}: use 1 to {TOGETHER_MAX}")
        if together > 1 and mode != "atomic":
            raise BadRequest(f'together={together} needs mode="atomic"')
        self.mode: Final[Mode] = mode
        self.together: Final = together
        self.retry: Final = retry or Retry()
        self.timeout: Final = timeout
        self.limits: Final = limits or Limits()
        self.priority: Final = priority
        self.executor: Final[Executor] = executor
        self.handler: Callable[[Ctx[I, O]], Any] | None = None
        self.input: Final = Codec[I](input_type, InvalidInput)
        self.output: Final = Codec[O](output_type, InvalidOutput)

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def __reduce__(self) -> "tuple[Callable[..., Job[Any, Any]], tuple[object, ...]]":
        # A handler in a process of its own continues with it: what is written with a job is enough.
        return partial(Job[Any, Any], retry=self.retry), (self.name, msgspec.Raw, msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Step:
    """A job to be written: what to do, when, and after what."""

    job: Job[Any, Any]
    input: str
    id: UUID
    after: timedelta | None = None
    at: datetime | None = None
    priority: int = 0
    limit_key: str | None = None
    blockers: tuple[Ref[Any], ...] = ()
    on_blocker_failure: OnBlockerFailure = "wait"


class StepOptions(TypedDict, total=False):
    """When a job runs, and after what: what may be left out."""

    after: timedelta | None
    at: datetime | None
    priority: int | None
    limit_key: str | None
    blockers: Sequence[Ref[Any] | UUID]
    on_blocker_failure: OnBlockerFailure


class StartOptions(StepOptions, total=False):
    """The same for a chain."""

    chain_id: UUID | None
    key: str | Dedup | None
    deadline: timedelta | None
    parent: UUID | None


def _ref(blocker: object) -> Ref[Any]:
    """Return what stands for a chain to wait for, given as that or by its id."""
    if isinstance(blocker, UUID):
        return Ref(blocker)
    if not isinstance(blocker, Ref):
        raise BadRequest(f"invalid blocker {blocker!r}: use chain.ref or the id of a chain")
    return cast("Ref[Any]", blocker)


def _step(
    job: Job[I, Any],
    value: I,
    step_id: UUID | None = None,
    *,
    after: timedelta | None = None,
    at: datetime | None = None,
    priority: int | None = None,
    limit_key: str | None = None,
    blockers: Sequence[Ref[Any] | UUID] = (),
    on_blocker_failure: OnBlockerFailure = "wait",
) -> Step:
    if after is not None and at is not None:
        raise BadRequest("both after and at are given: use one of them")
    if at is not None and at.tzinfo is None:
        raise BadRequest(f"the time at={at} has no time zone: add one")
    chosen = job.priority if priority is None else priority
    if not PRIORITY_MIN <= chosen <= PRIORITY_MAX:
        raise BadRequest(f"invalid priority {chosen}: use {PRIORITY_MIN} to {PRIORITY_MAX}")
    if on_blocker_failure not in get_args(OnBlockerFailure):
        raise BadRequest(
            f"invalid on_blocker_failure {on_blocker_failure!r}: use wait, fail or ignore"
        )
    refs = [_ref(blocker) for blocker in blockers]
    if len({ref.id for ref in refs}) < len(refs):
        raise DuplicateBlocker
    # An input may name the same chain in several places.
    awaited = {ref.id: ref for ref in (*refs, *refs_in(value))}
    return Step(
        job=job,
        input=job.input.encode(value),
        id=step_id or new_id(),
        after=after,
        at=at,
        priority=chosen,
        limit_key=limit_key,
        blockers=tuple(awaited.values()),
        on_blocker_failure=on_blocker_failure,
    )


class Start(Generic[O]):
    """A chain to be started; it will yield an `O`."""

    __slots__ = ("deadline", "dedup", "parent", "step")

    def __init__(
        self,
        job: Job[I, O],
        value: I,
        *,
        chain_id: UUID | None = None,
        key: str | Dedup | None = None,
        deadline: timedelta | None = None,
        parent: UUID | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        self.step: Final = _step(job, value, chain_id, **options)
        self.dedup: Final = Dedup(key) if isinstance(key, str) else key
        self.deadline: Final = deadline
        self.parent: Final = parent


class Continue(Generic[O]):
    """Returned by a handler: the chain goes on with this job, and will yield an `O`."""

    __slots__ = ("step",)

    def __init__(self, job: Job[I2, O], value: I2, **options: Unpack[StepOptions]) -> None:
        self.step: Final = _step(job, value, **options)


class JobOptions(TypedDict, total=False):
    """What may be left out of every declaration."""

    retry: Retry | None
    timeout: timedelta | None
    limits: Limits | None
    priority: int


@dataclass(slots=True)
class JobTypes:
    """Jobs that are declared together, and what wraps their attempts.

    Attributes:
        name: for people.
        middleware: wraps every attempt of these jobs; the first is the outermost.
    """

    name: str
    middleware: Sequence[Middleware] = ()
    _jobs: dict[str, Job[Any, Any]] = field(default_factory=dict[str, Job[Any, Any]])

    def __iter__(self) -> Iterator[Job[Any, Any]]:
        return iter(self._jobs.values())

    def __getitem__(self, name: str) -> Job[Any, Any]:
        try:
            return self._jobs[name]
        except KeyError:
            raise UnknownJobType(f"no job {name!r} is declared in {self.name}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._jobs

    def declare(
        self,
        name: str,
        input_type: type[I],
        output_type: type[O],
        *,
        retry: Retry | None = None,
        priority: int = 0,
    ) -> Job[I, O]:
        """Declare a job whose handler is elsewhere."""
        return self._add(Job[I, O](name, input_type, output_type, retry=retry, priority=priority))

    def job(
        self,
        name: str,
        *,
        mode: Mode = "staged",
        together: int = 1,
        **options: Unpack[JobOptions],
    ) -> "Callable[[Callable[[Ctx[I, O]], Awaitable[O | Continue[O]]]], Job[I, O]]":
        """Declare the decorated coroutine function as a job's handler.

        `together`: so many jobs in atomic mode may share a transaction, one after the other, each
        behind a savepoint. It is several times cheaper, but rows that one locks stay locked until
        the last has ended, so it suits handlers that are quick and touch rows of their own.
        """
        return self._decorator(name, mode=mode, together=together, **options)

    def sync_job(
        self,
        name: str,
        *,
        executor: Literal["thread", "process"] = "thread",
        **options: Unpack[JobOptions],
    ) -> "Callable[[Callable[[Ctx[I, O]], O | Continue[O]]], Job[I, O]]":
        """Declare the decorated plain function as a job's handler.

        It runs in a thread, or for work that keeps a processor busy in a process of its own: then
        it must be a function of a module that the process can import, and sees of its context only
        the data.
        """
        return self._decorator(name, executor=executor, **options)

    def _decorator(self, name: str, **options: Any) -> Callable[[Any], Job[Any, Any]]:
        def decorate(handler: Callable[..., Any]) -> Job[Any, Any]:
            job = Job[Any, Any](name, *_types_of(handler), **options)
            job.handler = handler
            return self._add(job)

        return decorate

    def _add(self, job: Job[I, O]) -> Job[I, O]:
        if job.name in self._jobs:
            raise BadRequest(f"{self.name} declares the job {job.name!r} twice")
        self._jobs[job.name] = job
        return job


def _types_of(handler: Callable[..., object]) -> tuple[Any, Any]:
    """Return the I and O of `Ctx[I, O]` in a handler's signature."""
    parameters = list(inspect.signature(handler, eval_str=True).parameters.values())
    types = get_args(parameters[0].annotation) if parameters else ()
    if len(types) != 2:
        raise Defect(f"the parameter of {handler.__qualname__} must be annotated as Ctx[I, O]")
    return types[0], types[1]
