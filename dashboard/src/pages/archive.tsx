// The archive: which time of which queue it covers, and what to replay of it.
import { get, type Schemas } from "../api/client";
import { Badge, Card, QueueLink, Table, When } from "../parts";
import { currentPage, Pager } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo } from "../state/place";
import { count, moment } from "../words";
import { Replay } from "./replay";

type Archived = Schemas["ArchivedQueue"];
const LIMIT = 100;

export function Archive() {
  const page = currentPage();
  const { data, error } = useLoad((signal) => get("/api/v1/archive", { query: { limit: LIMIT, offset: page * LIMIT }, signal }), [page], { everySeconds: 10 });
  return (
    <>
      <Failure error={error} />
      {data && (data.total ? (
        <Coverage queues={data.queues} total={data.total} />
      ) : (
        <Empty title="No queue has an archive">
          <p>Set “Archive after” in the configuration of a queue, and run <code>skep archive run</code> regularly.</p>
        </Empty>
      ))}
      <Replay />
    </>
  );
}

/** Per queue, on one time axis: what is deleted, archived, and in the live log. */
function Coverage({ queues, total }: { queues: Archived[]; total: number }) {
  const now = Date.now();
  const times = queues.flatMap((each) => [each.goneTo, each.coveredFrom, each.liveFrom]).filter((at) => at !== null).map((at) => Date.parse(at));
  const start = Math.min(now - 60_000, ...times);
  const place = (at: string | number) => (((typeof at === "number" ? at : Date.parse(at)) - start) / (now - start)) * 100;
  return (
    <Card title="Archive" note={`from ${moment(new Date(start).toISOString())} to now`}>
      <div class="row small" aria-hidden="true">
        <span class="key key-archive" />archive <span class="key key-live" />live log <span class="key key-gone" />deleted
      </div>
      <Table
        caption="Archive by queue"
        rows={queues}
        keyOf={(each) => each.queue}
        columns={[
          { title: "Queue", cell: (each) => <QueueLink name={each.queue} />, isWide: true },
          { title: "Covered", cell: (each) => <Bar queue={each} place={place} end={now} />, isWide: true },
          { title: "Messages", cell: (each) => count(each.messages), isNumber: true },
          { title: "Last run", cell: (each) => each.isRunning ? <Badge word="running" /> : <When at={each.archivedAt} /> },
          { title: "", cell: (each) => each.isForeign ? <Badge word="of another server" tone="bad" /> : <ReplayLink queue={each} /> },
        ]}
      />
      <Pager total={total} limit={LIMIT} />
    </Card>
  );
}

function Bar({ queue, place, end }: { queue: Archived; place: (at: string | number) => number; end: number }) {
  const between = (from: string | number, to: string | number) => ({ left: `${place(from)}%`, width: `max(2px, ${Math.max(0, place(to) - place(from))}%)` });
  const told = [
    queue.goneTo && `deleted until ${moment(queue.goneTo)}`,
    queue.coveredFrom && `in the archive from ${moment(queue.coveredFrom)} to ${moment(queue.coveredTo)}`,
    queue.liveFrom && `in the live log from ${moment(queue.liveFrom)}`,
  ].filter(Boolean).join(", ");
  return (
    <div class="coverage" role="img" aria-label={told || "nothing stored yet"} title={told}>
      {queue.goneTo && <div class="key-gone" style={{ left: 0, width: `${place(queue.goneTo)}%` }} />}
      {queue.coveredFrom && queue.coveredTo && <div class="key-archive" style={between(queue.coveredFrom, queue.coveredTo)} />}
      {queue.liveFrom && <div class="key-live lower" style={between(queue.liveFrom, end)} />}
    </div>
  );
}

function ReplayLink({ queue }: { queue: Archived }) {
  const from = queue.coveredFrom ?? queue.liveFrom;
  return from ? <a href={hrefTo(["pipelines"], { tab: "archive", queue: queue.queue, from, to: queue.coveredTo })}>Replay</a> : null;
}
