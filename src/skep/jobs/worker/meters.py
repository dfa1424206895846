"""The metrics of a worker, in the text format of Prometheus.

A bare install has no client library of Prometheus, and the format is simple: this writes it. Job
types are the only labels that users choose, and there are as many as a program declares.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Histogram:
    """Durations of one kind, by type."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, job: str, seconds: float) -> None:
        buckets = self._buckets.setdefault(job, [0] * (len(BOUNDS_S) + 1))
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self._sums[job] = self._sums.get(job, 0.0) + seconds

    def samples(self, name: str) -> Iterator[str]:
        for job, buckets in self._buckets.items():
            below = 0
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
                below += count
                yield _sample(f"{name}_bucket", (("type", job), ("le", bound)), below)
            yield _sample(f"{name}_sum", (("type", job),), self._sums[job])
            yield _sample(f"{name}_count", (("type", job),), below)


class JobMeters:
    """Counts what one worker does."""

    def __init__(self, concurrency: int) -> None:
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._durations: Final = _Histogram()
        self._waits: Final = _Histogram()
        self._claims = 0
        self._lease_losses = 0
        self._concurrency: Final = concurrency
        self.running = 0
        self.abandoned = 0

    def claimed(self, job: str, waited_s: float) -> None:
        """Count a claim of a job that had been ready for so long."""
        self._claims += 1
        self._waits.observe(job, max(waited_s, 0.0))

    def ended(self, job: str, outcome: str, seconds: float) -> None:
        """Count an attempt that ended."""
        self._attempts[job, outcome] += 1
        self._durations.observe(job, seconds)

    def lost_lease(self) -> None:
        """Count a lost lease of the worker."""
        self._lease_losses += 1

    def text(self) -> str:
        """Return everything as Prometheus reads it."""
        ended = [
            _sample("skep_job_attempts_total", (("type", job), ("outcome", outcome)), count)
            for (job, outcome), count in self._attempts.items()
        ]
        durations, waits = "skep_job_attempt_duration_seconds", "skep_job_wait_seconds"
        families = [
            _family("skep_job_attempts_total", "counter", "Attempts that ended.", ended),
            _family(
                durations,
                "histogram",
                "From the claim of a job to the end of its attempt.",
                self._durations.samples(durations),
            ),
            _family(
                waits,
                "histogram",
                "From the time a job was due to its claim.",
                self._waits.samples(waits),
            ),
            _single("skep_job_claims_total", "counter", "Jobs claimed.", self._claims),
            _single("skep_jobs_running", "gauge", "Jobs under way.", self.running),
            _single(
                "skep_worker_threads_abandoned",
                "gauge",
                "Threads that run on after their attempt ended.",
                self.abandoned,
            ),
            _single("skep_worker_concurrency", "gauge", "Jobs at a time.", self._concurrency),
            _single(
                "skep_worker_lease_losses_total",
                "counter",
                "Leases of this worker that ran out.",
                self._lease_losses,
            ),
        ]
        return "".join(families)


def _single(name: str, kind: str, text: str, value: float) -> str:
    return _family(name, kind, text, [_sample(name, (), value)])


def _family(name: str, kind: str, text: str, samples: Iterable[str]) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(samples)}"


def _sample(name: str, labels: Labels, value: float) -> str:
    escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    inside = ",".join(f'{label}="{text.translate(escaped)}"' for label, text in labels)
    return f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n"
