// Consumer groups: who is behind, where, and by how much.
import { get } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Table, When } from "../parts";
import { ChoiceFilter, currentPage, TextFilter } from "../parts/fields";
import { Empty, Failure, Missing } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place, spellQuery } from "../state/place";
import { count, groupName, seconds } from "../words";
import { GroupPage } from "./group";

const LIMIT = 100;
const STUCK_S = 60;
const SLOWEST = 10;

export function Groups() {
  const [, group, queue] = place.value.segments;
  if (group !== undefined && queue !== undefined) return <GroupPage key={`${group}/${queue}`} group={group} queue={queue} />;
  return group === undefined ? <GroupList /> : <Missing what="Page"><a href="/groups">All consumer groups</a></Missing>;
}

const CONDITIONS = ["stalled", "no-consumers", "lagging", "paused", "consuming", "empty"] as const;

function GroupList() {
  const { query } = place.value;
  const queue = query.get("queue");
  const condition = CONDITIONS.find((each) => each === query.get("condition")) ?? null;
  const page = currentPage();
  const { data, error } = useLoad(
    (signal) => get("/api/v1/consumer-groups", { query: { queue, condition, sort: "worst", limit: LIMIT, offset: page * LIMIT }, signal }),
    [queue, condition, page],
    { everySeconds: 5 },
  );
  return (
    <>
      <PageHead title="Consumer groups" />
      <div class="stack">
        <div class="filters">
          <TextFilter label="Queue" name="queue" placeholder="Full name" />
          <ChoiceFilter label="Condition" name="condition" choices={[["", "Any, worst first"], ...CONDITIONS.map((each): [string, string] => [each, each.replaceAll("-", " ")])]} />
        </div>
        <Failure error={error} />
        {data && (data.length ? (
          <Card>
            <Table
              caption="Consumer groups"
              rows={data}
              keyOf={(entry) => `${entry.name}/${entry.queueName}`}
              columns={[
                { title: "Group", cell: (entry) => <a class="wrap" href={hrefTo(["groups", entry.name, entry.queueName])}>{groupName(entry.name)}</a>, by: (entry) => groupName(entry.name), isWide: true },
                { title: "Queue", cell: (entry) => <QueueLink name={entry.queueName} />, by: (entry) => entry.queueName, isWide: true },
                { title: "Condition", cell: (entry) => <Badge word={entry.condition} />, by: (entry) => CONDITIONS.indexOf(entry.condition) },
                { title: "Behind", cell: (entry) => `${entry.estimated ? "≈ " : ""}${count(entry.totalLag)}`, by: (entry) => entry.totalLag, isNumber: true },
                { title: "Oldest unread", cell: (entry) => entry.totalLag ? seconds(entry.maxTimeLag) : "–", by: (entry) => entry.maxTimeLag, isNumber: true },
                { title: "Partitions behind", cell: (entry) => `${count(entry.partitionsWithLag)} of ${count(entry.partitionCount)}`, by: (entry) => entry.partitionsWithLag, isNumber: true },
                { title: "Last poll", cell: (entry) => <When at={entry.lastPolledAt} />, by: (entry) => entry.lastPolledAt, isNumber: true },
                { title: "Last progress", cell: (entry) => <When at={entry.lastProgressAt} />, by: (entry) => entry.lastProgressAt, isNumber: true },
              ]}
            />
            <div class="row">
              {page > 0 && <a class="button" href={location.pathname + spellQuery({ page: String(page - 1) })}>Previous</a>}
              {data.length === LIMIT && <a class="button" href={location.pathname + spellQuery({ page: String(page + 1) })}>Next</a>}
            </div>
          </Card>
        ) : <Empty title={queue || condition ? "No consumer group matches" : "No consumer group yet"}><p>A group is created when a consumer first polls with its name.</p></Empty>)}
        <Stuck queue={queue} />
      </div>
    </>
  );
}

function Stuck({ queue }: { queue: string | null }) {
  const { data, error } = useLoad((signal) => get("/api/v1/consumer-groups/lagging", { query: { minLagSeconds: STUCK_S, limit: SLOWEST, queue }, signal }), [queue], { everySeconds: 15 });
  return (
    <Card title="Stuck partitions" note="the slowest, where a message waits for over a minute">
      <Failure error={error} />
      {data?.length ? (
        <Table
          caption="Stuck partitions"
          rows={data}
          keyOf={(each) => `${each.consumer_group}/${each.partition_id}`}
          columns={[
            { title: "Group", cell: (each) => <a href={hrefTo(["groups", each.consumer_group, each.queue_name])}>{groupName(each.consumer_group)}</a>, isWide: true },
            { title: "Queue", cell: (each) => <QueueLink name={each.queue_name} />, isWide: true },
            { title: "Partition", cell: (each) => <span class="clip">{each.partition_name}</span> },
            { title: "Behind", cell: (each) => count(each.offset_lag), isNumber: true },
            { title: "Oldest unread", cell: (each) => seconds(each.time_lag_seconds), isNumber: true },
            { title: "Lease", cell: (each) => each.worker_id ? "held" : "–" },
          ]}
        />
      ) : <p class="muted">None.</p>}
    </Card>
  );
}
