// Consumer groups: who is behind, where, and by how much.
import { get } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Table } from "../parts";
import { currentPage, TextFilter } from "../parts/fields";
import { Empty, Failure, Missing } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place, spellQuery } from "../state/place";
import { count, groupName, seconds } from "../words";
import { GroupPage } from "./group";

const LIMIT = 100;
const STUCK_S = 60;

export function Groups() {
  const [, group, queue] = place.value.segments;
  if (group !== undefined && queue !== undefined) return <GroupPage key={`${group}/${queue}`} group={group} queue={queue} />;
  return group === undefined ? <GroupList /> : <Missing what="Page"><a href="/groups">All consumer groups</a></Missing>;
}

function GroupList() {
  const queue = place.value.query.get("queue");
  const page = currentPage();
  const { data, error } = useLoad((signal) => get("/api/v1/consumer-groups", { query: { queue, limit: LIMIT, offset: page * LIMIT }, signal }), [queue, page], { everySeconds: 5 });
  return (
    <>
      <PageHead title="Consumer groups" />
      <div class="stack">
        <div class="filters"><TextFilter label="Queue" name="queue" placeholder="Full name" /></div>
        <Failure error={error} />
        {data && (data.length ? (
          <Card>
            <Table
              caption="Consumer groups"
              rows={data}
              keyOf={(entry) => `${entry.name}/${entry.queueName}`}
              columns={[
                { title: "Group", cell: (entry) => <a class="wrap" href={hrefTo(["groups", entry.name, entry.queueName])}>{groupName(entry.name)}</a>, isWide: true },
                { title: "Queue", cell: (entry) => <QueueLink name={entry.queueName} />, isWide: true },
                { title: "State", cell: (entry) => <Badge word={entry.state} /> },
                { title: "Behind", cell: (entry) => `${entry.estimated ? "≈ " : ""}${count(entry.totalLag)}`, isNumber: true },
                { title: "Oldest unread", cell: (entry) => seconds(entry.maxTimeLag), isNumber: true },
                { title: "Partitions behind", cell: (entry) => `${count(entry.partitionsWithLag)} of ${count(entry.partitionCount)}`, isNumber: true },
              ]}
            />
            <div class="row">
              {page > 0 && <a class="button" href={location.pathname + spellQuery({ page: String(page - 1) })}>Previous</a>}
              {data.length === LIMIT && <a class="button" href={location.pathname + spellQuery({ page: String(page + 1) })}>Next</a>}
            </div>
          </Card>
        ) : <Empty title="No consumer group yet"><p>A group is created when a consumer first polls with its name.</p></Empty>)}
        <Stuck queue={queue} />
      </div>
    </>
  );
}

function Stuck({ queue }: { queue: string | null }) {
  const { data, error } = useLoad((signal) => get("/api/v1/consumer-groups/lagging", { query: { minLagSeconds: STUCK_S, limit: 50, queue }, signal }), [queue], { everySeconds: 15 });
  return (
    <Card title="Stuck partitions" note="oldest unread message over a minute old, slowest first">
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
          ]}
        />
      ) : <p class="muted">None.</p>}
    </Card>
  );
}
