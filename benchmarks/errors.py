"""What can go wrong in a run. A scenario that fails is reported; the others still run."""


class BenchmarkError(Exception):
    """The benchmark could not measure."""


class ScenarioFailed(BenchmarkError):
    """A scenario could not be set up or measured."""


class GeneratorFailed(BenchmarkError):
    """A generator process ended or fell silent."""


class ServerNotReady(BenchmarkError):
    """The broker under test did not come up."""


class UnexpectedFraming(BenchmarkError):
    """The server answered in a form this reader does not take: chunked, or more than asked."""
