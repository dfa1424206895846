// Traces: events that consumers filed under names, across messages and queues.
import { get } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Table, When } from "../parts";
import { currentPage, Pager } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place } from "../state/place";
import { count, groupName, moment } from "../words";

const LIMIT = 100;

export function Traces() {
  const name = place.value.segments[1];
  return name === undefined ? <TraceNames /> : <TracesOf key={name} name={name} />;
}

function TraceNames() {
  const page = currentPage();
  const { data, error } = useLoad((signal) => get("/api/v1/traces/names", { query: { limit: LIMIT, offset: page * LIMIT }, signal }), [page], { everySeconds: 10 });
  return (
    <>
      <PageHead title="Traces" />
      <Failure error={error} />
      {data && (data.trace_names.length ? (
        <Card>
          <Table
            caption="Trace names"
            rows={data.trace_names}
            keyOf={(entry) => entry.trace_name}
            columns={[
              { title: "Name", cell: (entry) => <a class="wrap" href={hrefTo(["traces", entry.trace_name])}>{entry.trace_name}</a>, isWide: true },
              { title: "Events", cell: (entry) => count(entry.trace_count), isNumber: true },
              { title: "Messages", cell: (entry) => count(entry.message_count), isNumber: true },
              { title: "Last seen", cell: (entry) => <When at={entry.last_seen} /> },
            ]}
          />
          <Pager total={data.total} limit={LIMIT} />
        </Card>
      ) : <Empty title="No traces yet"><p>Consumers record events of messages with <code>POST /api/v1/traces</code>, under names that connect messages of different queues.</p></Empty>)}
    </>
  );
}

function TracesOf({ name }: { name: string }) {
  const page = currentPage();
  const { data, error } = useLoad((signal) => get("/api/v1/traces/by-name/{trace_name}", { names: { trace_name: name }, query: { limit: LIMIT, offset: page * LIMIT }, signal }), [name, page], { everySeconds: 10 });
  return (
    <>
      <PageHead title={name}><a class="button" href="/traces">All names</a></PageHead>
      <Failure error={error} />
      {data && (
        <Card>
          <ol class="timeline">
            {data.traces.map((trace) => (
              <li key={trace.id}>
                <div class="row"><Badge word={trace.event_type} tone="plain" /> {trace.queue_name && <QueueLink name={trace.queue_name} />} <a class="clip mono" href={hrefTo(["messages", trace.partition_id, trace.transaction_id])}>{trace.transaction_id}</a></div>
                <div class="muted small wrap">{moment(trace.created_at)}{trace.consumer_group && ` · ${groupName(trace.consumer_group)}`}{trace.worker_id && ` · ${trace.worker_id}`} · {JSON.stringify(trace.data)}</div>
              </li>
            ))}
          </ol>
          <Pager total={data.total} limit={LIMIT} />
        </Card>
      )}
    </>
  );
}
