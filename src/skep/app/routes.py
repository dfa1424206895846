"""The routes that are not hot, each wired to the part of the broker behind it."""

import asyncio
from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.broker import Broker
from skep.broker.archived_queues import ArchiveCoverage
from skep.broker.depth import Depths
from skep.broker.holds import Holds
from skep.broker.hourly import Hourly
from skep.broker.message_history import MessageHistories
from skep.broker.pipelines import Pipelines
from skep.broker.queue_catalog import QueueCatalog
from skep.broker.queue_lifecycle import QueueLifecycle
from skep.broker.removals import Removals
from skep.broker.stats_charts import Charts
from skep.broker.stats_database import DatabaseStats
from skep.broker.stats_scrape import ScrapeFacts
from skep.broker.stats_status import StatusReport
from skep.broker.stats_workers import WorkerCharts
from skep.broker.traces import Traces
from skep.dashboard.site import read_site
from skep.jobs.replays import Replays
from skep.jobs.throughput import ThroughputMeter
from skep.server.routes.analytics import analytics_routes
from skep.server.routes.archive import archive_route
from skep.server.routes.chains import chain_routes
from skep.server.routes.dashboard import dashboard_routes
from skep.server.routes.dead_letters import dead_letter_routes
from skep.server.routes.depth import depth_route
from skep.server.routes.groups import group_routes
from skep.server.routes.hourly import hourly_routes
from skep.server.routes.internal import internal_routes
from skep.server.routes.job_bulk import job_bulk_routes
from skep.server.routes.job_throughput import throughput_route
from skep.server.routes.jobs import job_routes
from skep.server.routes.live import LiveParts, live_route
from skep.server.routes.maintenance import maintenance_routes
from skep.server.routes.message_history import message_history_route
from skep.server.routes.messages import message_routes
from skep.server.routes.metrics import metrics_routes
from skep.server.routes.migration import migration_routes
from skep.server.routes.operations import operation_routes
from skep.server.routes.pipelines import pipeline_routes
from skep.server.routes.queue_status import queue_status_routes
from skep.server.routes.queues import queue_routes
from skep.server.routes.replays import replay_routes
from skep.server.routes.resources import resource_routes
from skep.server.routes.retention import retention_routes
from skep.server.routes.scheduled import scheduled_routes
from skep.server.routes.schedules import schedule_routes
from skep.server.routes.seek import seek_routes
from skep.server.routes.settings import settings_route
from skep.server.routes.status import status_routes
from skep.server.routes.streams import streams_routes
from skep.server.routes.tail import tail_route
from skep.server.routes.traces import trace_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    traces = Traces(
        broker.query_slots,
        hash_seed=broker.hash_seed,
        open_envelope=broker.key_ring.open_envelope,
    )
    live = LiveParts(broker.live, broker.ack, broker.renew, broker.default_subscription_mode)
    catalog = QueueCatalog(broker.query_slots)
    lifecycle = QueueLifecycle(
        broker.query_slots,
        broker.announcer,
        now=asyncio.get_running_loop().time,
        changes=broker.changes,
    )
    charts = Charts(broker.query_slots)
    return [
        *metrics_routes(
            broker.observation.publisher,
            ScrapeFacts(broker.query_slots, queues_max=broker.observation.queues_max),
        ),
        *status_routes(StatusReport(broker.query_slots, charts, catalog), charts),
        *analytics_routes(charts, WorkerCharts(charts, catalog), DatabaseStats(broker.query_slots)),
        *hourly_routes(Hourly(broker.query_slots), charts),
        *group_routes(broker.groups, broker.subscriptions),
        *seek_routes(broker.seek),
        *dead_letter_routes(broker.dead_letters, broker.redrives),
        *message_routes(broker.message_list, broker.messages),
        message_history_route(MessageHistories(broker.query_slots, broker.messages)),
        *resource_routes(catalog, broker.configure),
        depth_route(Depths(broker.groups, catalog)),
        *queue_status_routes(catalog),
        *queue_routes(lifecycle),
        *scheduled_routes(broker.scheduled),
        *chain_routes(broker.job_desk),
        *job_routes(broker.job_desk),
        *job_bulk_routes(broker.job_desk),
        throughput_route(ThroughputMeter(broker.query_slots, now=asyncio.get_running_loop().time)),
        *schedule_routes(broker.job_desk),
        *replay_routes(Replays(broker.job_desk, broker.query_slots)),
        *operation_routes(broker.operations),
        *streams_routes(broker.streams),
        *retention_routes(
            broker.retention, Removals(broker.query_slots), Holds(broker.query_slots)
        ),
        *trace_routes(traces),
        *maintenance_routes(broker.maintenance, broker.diversion, worker=broker.worker_index),
        *migration_routes(),
        *pipeline_routes(Pipelines(broker.query_slots)),
        archive_route(ArchiveCoverage(broker.query_slots)),
        live_route(live),
        tail_route(broker.tails, broker.live),
        *internal_routes(broker.cluster),
        *dashboard_routes(read_site(), broker.observation.pulse, broker.live),
        settings_route(broker.settings_in_force),
    ]
