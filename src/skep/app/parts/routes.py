"""The routes that are not hot, each wired to the part of the broker behind it."""

from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.parts.broker import Broker
from skep.broker.groups.progress import Groups
from skep.broker.groups.seek import Seek
from skep.broker.groups.subscriptions import Subscriptions
from skep.broker.queues.catalog import Depths, QueueCatalog
from skep.broker.queues.lifecycle import QueueLifecycle
from skep.broker.retention.history import Removals
from skep.broker.retention.holds import Holds
from skep.broker.spark.analytics import Hourly
from skep.broker.spark.pipelines import ArchiveCoverage, Pipelines
from skep.broker.stats.charts import Charts
from skep.broker.stats.database import DatabaseStats
from skep.broker.stats.scrape import ScrapeFacts
from skep.broker.stats.status import StatusReport, WorkerCharts
from skep.dashboard.site import read_site
from skep.jobs.service.replays import Replays
from skep.server.routes.jobs.bulk import job_bulk_routes
from skep.server.routes.jobs.chains import chain_routes
from skep.server.routes.jobs.jobs import job_routes
from skep.server.routes.jobs.schedules import schedule_routes
from skep.server.routes.messages.dead_letters import dead_letter_routes
from skep.server.routes.messages.live import LiveParts, live_route
from skep.server.routes.messages.messages import message_routes
from skep.server.routes.messages.scheduled import scheduled_routes
from skep.server.routes.messages.tail import tail_route
from skep.server.routes.queues.groups import group_routes
from skep.server.routes.queues.queues import queue_routes, resource_routes
from skep.server.routes.queues.seek import seek_routes
from skep.server.routes.spark.analytics import hourly_routes
from skep.server.routes.spark.pipelines import pipeline_routes
from skep.server.routes.spark.replays import replay_routes
from skep.server.routes.stats.charts import chart_routes
from skep.server.routes.stats.dashboard import dashboard_routes
from skep.server.routes.stats.metrics import metrics_routes
from skep.server.routes.stats.queue_status import queue_status_routes
from skep.server.routes.streams import streams_routes
from skep.server.routes.system.cluster import cluster_routes
from skep.server.routes.system.maintenance import maintenance_routes, migration_routes
from skep.server.routes.system.operations import operation_routes
from skep.server.routes.system.retention import retention_routes
from skep.server.routes.traces import trace_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    core, pop, stored, failover = broker.core, broker.pop, broker.stored, broker.failover
    slots, observation = core.query, broker.observation
    live = LiveParts(pop.live, pop.ack, pop.renew, core.settings.default_subscription_mode)
    catalog, charts, groups = QueueCatalog(slots), Charts(slots), Groups(slots)
    lifecycle = QueueLifecycle(slots, core.announcer, now=core.now, changes=core.changes)
    return [
        *metrics_routes(
            observation.publisher,
            ScrapeFacts(slots, queues_max=observation.queues_max),
        ),
        *chart_routes(
            StatusReport(slots, charts, catalog),
            charts,
            WorkerCharts(charts, catalog),
            DatabaseStats(slots),
        ),
        *hourly_routes(Hourly(slots), charts),
        *group_routes(groups, Subscriptions(slots, core.announcer)),
        *seek_routes(Seek(slots, core.announcer)),
        *dead_letter_routes(stored.dead_letters, stored.redrives),
        *message_routes(stored.message_list, stored.messages),
        *resource_routes(catalog, broker.configure, Depths(groups, catalog)),
        *queue_status_routes(catalog),
        *queue_routes(lifecycle),
        *scheduled_routes(broker.push.scheduled),
        *chain_routes(broker.job_service),
        *job_routes(broker.job_service),
        *job_bulk_routes(broker.job_service),
        *schedule_routes(broker.job_service),
        *replay_routes(Replays(broker.job_service, slots)),
        *operation_routes(broker.overload.operations),
        *streams_routes(broker.transaction.streams),
        *retention_routes(broker.background.retention, Removals(slots), Holds(slots)),
        *trace_routes(stored.traces),
        *maintenance_routes(failover.maintenance, failover.diversion, worker=broker.worker_index),
        *migration_routes(),
        *pipeline_routes(Pipelines(slots), ArchiveCoverage(slots)),
        live_route(live),
        *tail_route(pop.tails, pop.live),
        *cluster_routes(core.neighbours.cluster, broker.settings_in_force),
        *dashboard_routes(read_site(), observation.pulse, pop.live),
    ]
