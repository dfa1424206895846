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
from skep.broker.spark.pipelines import Pipelines
from skep.broker.stats.charts import Charts
from skep.broker.stats.database import DatabaseStats
from skep.broker.stats.scrape import ScrapeFacts
from skep.broker.stats.status import StatusReport, WorkerCharts
from skep.db.access.functions import Functions
from skep.jobs.service.replays import Replays
from skep.server.hot.pushed_items import ItemDecoder
from skep.server.routes import queues
from skep.server.routes.attention import attention_routes
from skep.server.routes.cluster import cluster_routes
from skep.server.routes.dead_letters import dead_letter_routes
from skep.server.routes.event_streams import event_routes
from skep.server.routes.groups import group_routes
from skep.server.routes.jobs.bulk import job_bulk_routes
from skep.server.routes.jobs.chains import chain_routes
from skep.server.routes.jobs.jobs import job_routes
from skep.server.routes.jobs.schedules import schedule_routes
from skep.server.routes.kv.browse import kv_browse_routes
from skep.server.routes.kv.paths import key_routes
from skep.server.routes.live import LiveParts, live_route
from skep.server.routes.maintenance import maintenance_routes, migration_routes
from skep.server.routes.messages import fetch_routes, message_routes
from skep.server.routes.operations import operation_routes
from skep.server.routes.retention import retention_routes
from skep.server.routes.scheduled.timers import timer_routes
from skep.server.routes.scheduled.waiting import scheduled_routes
from skep.server.routes.spark import hourly_routes, pipeline_routes, replay_routes
from skep.server.routes.stats import chart_routes, metrics_routes
from skep.server.routes.streams import streams_routes
from skep.server.routes.traces import trace_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route of the API but health and the hot ones."""
    core, pop, stored, failover = broker.core, broker.pop, broker.stored, broker.failover
    slots, observation = core.query, broker.observation
    live = LiveParts(
        pop.live,
        pop.ack,
        pop.renew,
        core.settings.default_subscription_mode,
        core.settings.polls_create_queues,
    )
    catalog, charts, groups = QueueCatalog(slots), Charts(slots), Groups(slots)
    lifecycle = QueueLifecycle(Functions(slots), core.announcer, now=core.now, changes=core.changes)
    return [
        *metrics_routes(
            observation.publisher,
            ScrapeFacts(
                slots,
                queues_max=observation.queues_max,
                now=core.now,
                is_away=lambda: core.reach.is_away(core.hot, slots),
            ),
        ),
        *chart_routes(
            StatusReport(slots, charts, catalog),
            charts,
            WorkerCharts(charts, catalog),
            DatabaseStats(slots),
        ),
        *attention_routes(observation.attention),
        *hourly_routes(Hourly(slots), charts),
        *group_routes(groups, Subscriptions(slots, core.announcer), Seek(slots, core.announcer)),
        *dead_letter_routes(stored.dead_letters, stored.redrives),
        *message_routes(stored.message_list, stored.messages),
        *queues.configure_route(broker.configure),
        *queues.resource_routes(catalog, broker.configure, Depths(groups, catalog)),
        *queues.queue_status_routes(catalog),
        *queues.queue_routes(lifecycle),
        *scheduled_routes(broker.push.scheduled),
        *timer_routes(broker.push.timers, broker.push.timer_browser),
        *chain_routes(broker.job_service),
        *job_routes(broker.job_service),
        *job_bulk_routes(broker.job_service),
        *schedule_routes(broker.job_service),
        *replay_routes(Replays(broker.job_service, slots)),
        *operation_routes(broker.overload.operations),
        *streams_routes(
            broker.transaction.streams, ItemDecoder(core.meters, is_strict=core.settings.strict)
        ),
        *retention_routes(broker.background.retention, Removals(slots), Holds(slots)),
        *trace_routes(stored.traces),
        *fetch_routes(broker.fetch.positions),
        *key_routes(broker.kv.kv),
        *kv_browse_routes(broker.kv.browser),
        *maintenance_routes(failover.maintenance, failover.diversion, worker=broker.worker_index),
        *migration_routes(),
        *pipeline_routes(Pipelines(slots)),
        live_route(live),
        *event_routes(pop.tails, observation.pulse, pop.live),
        *cluster_routes(core.neighbours.cluster, broker.settings_in_force),
    ]
