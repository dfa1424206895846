"""Requests beyond the engine's capacity: they wait, are deferred, or are refused."""

from collections.abc import Sequence
from typing import Final

from skep.app.parts.core import MIB, Core
from skep.app.parts.pop import PopParts
from skep.app.parts.push import PushParts
from skep.app.parts.transaction import TransactionParts
from skep.broker.overload.deferral import DeferralExecutor, DepthLimits, OperationPart
from skep.broker.overload.fallback import Fallback
from skep.broker.overload.operations import OperationControl
from skep.broker.overload.processor import OperationProcessor, ProcessorLimits
from skep.broker.overload.waiting_line import Line, PartitionKey, PartitionWatch

LINE_SHARE: Final = 0.25
"""Maximum weight of waiting requests, as a share of the engine's capacity."""


class OverloadParts:
    """Admits requests, and carries out those that were deferred."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        self._core: Final = core
        self._line: Final = Line(
            core.engine,
            wait_s=settings.overload_wait_s,
            weight_max=int(settings.engine_weight_mib * MIB * LINE_SHARE),
            is_congestion=settings.overload_status == 503,
        )
        self._watch: Final = PartitionWatch(core.vital, self._line.free)
        self.fallback: Final = Fallback(
            core.engine, self._line, self._watch, core.directory, deferral=settings.deferral
        )
        self._limits: Final = DepthLimits(
            operations=settings.operation_depth_max,
            per_partition=settings.operation_depth_max_per_partition,
            bytes=settings.operation_mib_max * MIB,
        )
        self.operations: Final = OperationControl(
            core.query,
            when_waiting=self._process,
            limits=self._limits,
            timeout_s=settings.operation_timeout_s,
        )

    def wire(self, push: PushParts, pop: PopParts, transaction: TransactionParts) -> None:
        """Make the parts that need the seed."""
        core, settings = self._core, self._core.settings
        deferral = DeferralExecutor(
            core.hot,
            directory=core.directory,
            provisioner=push.partitions,
            rule_book=push.rule_book,
            gate=push.gate,
            limits=self._limits,
            when_accepted=self._note_deferred,
        )
        core.engine.serve("defer", deferral.execute)
        self.processor = OperationProcessor(
            core.hot,
            transaction.settler,
            leases=pop.leases,
            announcer=core.announcer,
            open_envelope=core.key_ring.open_envelope,
            limits=ProcessorLimits(settings.operation_timeout_s, settings.operation_retries_max),
        )
        self._show(deferral, self.processor)

    async def stop(self) -> None:
        """Finish the operations under way, and refuse the requests that wait."""
        await self.processor.stop()
        self._line.stop()
        await self._watch.stop()

    def _process(self) -> None:
        self.processor.hear_of_operations()

    def _note_deferred(self, parts: Sequence[OperationPart]) -> None:
        for part in parts:
            self._watch.note(PartitionKey(part.type, part.partition_id))
        self._process()

    def _show(self, deferral: DeferralExecutor, processor: OperationProcessor) -> None:
        meters, line = self._core.meters, self._line
        meters.watch("skep_line_requests", lambda: len(line))
        meters.counts["skep_line_held"] = lambda: {(): line.held_count}
        meters.counts["skep_line_refused"] = lambda: {(): line.refused_count}
        meters.counts["skep_operations_accepted"] = lambda: {(): deferral.accepted_count}
        meters.counts["skep_operations_ended"] = lambda: {
            ("completed",): processor.completed_count,
            ("failed",): processor.failed_count,
        }
