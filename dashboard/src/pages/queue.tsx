// One queue: figures, partitions, groups, configuration, and what can be done to it.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, PageHead, Stat, Table, Tabs, TimeRangeChoice, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { TextFilter } from "../parts/fields";
import { Failure, Missing } from "../parts/notes";
import { Chart, Charts } from "../parts/plot";
import { VirtualList } from "../parts/virtual";
import { useLoad } from "../state/loading";
import { hrefTo, navigate, place } from "../state/place";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { ago, count, counted, groupName, seconds, units } from "../words";
import { Concerns } from "./attention";
import { PushDialog } from "./push";
import { QueueConfiguration } from "./queue-configuration";

type Detail = Schemas["QueueDetail"];
const SAMPLED = 1000;

export function QueuePage({ name }: { name: string }) {
  const tab = place.value.query.get("tab") ?? "activity";
  const { data, error, reload } = useLoad(
    (signal) => get("/api/v1/resources/queues/{queue}", { names: { queue: name }, query: { partitionLimit: tab === "partitions" ? SAMPLED : 0 }, signal }),
    [name, tab === "partitions"],
    { everySeconds: 5 },
  );
  if (error?.status === 404) return <Missing what="Queue">No queue is named <strong class="wrap">{name}</strong>. <a href="/queues">All queues</a></Missing>;
  return (
    <>
      <PageHead from={["Queues", "/queues"]} title={name} state={data?.isPaused && <Badge word="paused" />}>{data && <Actions queue={data} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        <Concerns isAbout={(item) => item.queue === name} reload={reload} />
        {data && <Figures queue={data} />}
        <Tabs name="Parts of the queue" current={tab} tabs={[["activity", "Activity"], ["partitions", "Partitions"], ["groups", "Groups"], ["configuration", "Configuration"]]} />
        {data && tab === "activity" && <Activity name={name} />}
        {data && tab === "partitions" && <Partitions queue={data} />}
        {data && tab === "groups" && <Groups queue={data} />}
        {tab === "configuration" && <QueueConfiguration name={name} />}
      </div>
    </>
  );
}

function Figures({ queue }: { queue: Detail }) {
  const { totals } = queue;
  return (
    <div class="stats">
      <Stat label="Messages" value={count(totals.total)} note={queue.estimated ? "estimated" : "kept"} href={hrefTo(["messages"], { queue: queue.name })} />
      <Stat label="Waiting" value={count(totals.pending)} note="for the slowest group" />
      <Stat label="Processing" value={count(totals.processing)} />
      <Stat label="Dead letters" value={count(totals.deadLetter)} tone={totals.deadLetter ? "bad" : undefined} href={hrefTo(["dead-letters"], { queue: queue.name })} />
      <Stat label="Partitions" value={count(queue.partitionsTotal)} note={`created ${ago(queue.createdAt)}`} />
    </div>
  );
}

type Asked = "push" | "clear" | "delete" | null;

function Actions({ queue, reload }: { queue: Detail; reload: () => void }) {
  const [asked, setAsked] = useState<Asked>(null);
  const names = { queue: queue.name };
  const close = () => setAsked(null);
  const toggle = () => attempt(async () => {
    await act(queue.isPaused ? "resumeQueue" : "pauseQueue", { names });
    reload();
    return queue.isPaused ? "Resumed." : "Paused: nothing is delivered until it is resumed.";
  });
  return (
    <div class="row">
      {may("push") && <button class="primary" onClick={() => setAsked("push")}>Push a message</button>}
      <a class="button" href={hrefTo(["messages"], { queue: queue.name, live: "1" })}>Live tail</a>
      {may("pauseQueue") && <button onClick={toggle}>{queue.isPaused ? "Resume" : "Pause"}</button>}
      {may("clearQueue") && <button class="danger" onClick={() => setAsked("clear")}>Clear</button>}
      {may("deleteQueue") && <button class="danger" onClick={() => setAsked("delete")}>Delete</button>}
      {asked === "push" && <PushDialog queue={queue.name} onClose={close} onPushed={reload} />}
      {asked === "clear" && (
        <Confirm title="Clear the queue" verb="Delete all messages" typed={queue.name} onClose={close} work={async () => {
          const { messages } = await act("clearQueue", { names });
          reload();
          return `Deleted ${counted(messages, "message")}.`;
        }}>
          <p>{counted(queue.totals.total, "message")} will be deleted for all groups. This cannot be undone.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title="Delete the queue" verb="Delete the queue" typed={queue.name} onClose={close} work={async () => {
          await act("deleteQueue", { names });
          navigate("/queues");
          return `Deleted ${queue.name}.`;
        }}>
          <p>The queue is deleted with its messages, groups and dead letters. This cannot be undone.</p>
        </Confirm>
      )}
    </div>
  );
}

function Activity({ name }: { name: string }) {
  const range = chosenRange();
  const { data, error } = useLoad(
    (signal) => get("/api/v1/analytics/queue-ops", { query: { queue: name, ...spelledRange(range) }, signal }),
    [name, range.key],
    { everySeconds: 15 },
  );
  const grid = data && gridOf(range, data.bucketMinutes, data.series, (point) => point.bucket);
  const of = (...given: Parameters<NonNullable<typeof grid>["values"]>) => grid?.values(...given) ?? [];
  const common = { times: grid?.times, range };
  return (
    <div class="stack">
      <TimeRangeChoice />
      <Failure error={error} />
      <Charts range={range}>
        <Chart {...common} title="Messages per second" unit={units.perSecond} nothing="No message was pushed or delivered in this time." lines={[
          { label: "In", colour: 1, values: of((point) => point.pushPerSecond, 0) },
          { label: "Out", colour: 2, values: of((point) => point.popPerSecond, 0) },
          { label: "Acknowledged", colour: 3, values: of((point) => point.ackPerSecond, 0) },
        ]} />
        <Chart {...common} title="Push to delivery" unit={units.millis} nothing="No message was delivered in this time." lines={[
          { label: "p50", colour: 3, values: of((point) => point.p50LagMs) },
          { label: "p95", colour: 1, values: of((point) => point.p95LagMs) },
          { label: "p99", colour: 2, values: of((point) => point.p99LagMs) },
        ]} />
        <Chart {...common} title="Errors" unit={units.whole} nothing="Nothing failed in this time." lines={[
          { label: "Failed", colour: 2, values: of((point) => point.ackFailed, 0) },
          { label: "Redelivered", colour: 1, values: of((point) => point.redelivered, 0) },
          { label: "Dead letters", colour: 4, values: of((point) => point.deadLetters, 0) },
        ]} />
        <Chart {...common} title="Waiting polls" unit={units.whole} nothing="No consumer waited for messages in this time." lines={[{ label: "Parked", colour: 1, values: of((point) => point.parkedCount, 0) }]} />
      </Charts>
    </div>
  );
}

function Partitions({ queue }: { queue: Detail }) {
  const search = place.value.query.get("partition");
  const found = useLoad(
    (signal) => get("/api/v1/resources/partitions", { query: { queue: queue.name, search, limit: 1 }, signal }),
    [queue.name, search],
  );
  const load = async (offset: number, limit: number) =>
    (await get("/api/v1/resources/partitions", { query: { queue: queue.name, search, offset, limit } })).partitions;
  const titles = ["Partition", "Messages", "Waiting", "Dead letters", "Head", "Last push"];
  return (
    <div class="stack">
      {queue.partitions.length > 0 && <Skew partitions={queue.partitions} total={queue.partitionsTotal} />}
      <div class="filters"><TextFilter label="Search" name="partition" placeholder="Part of a name" /></div>
      <VirtualList
        label="Partitions"
        total={found.data?.total ?? 0}
        version={`${queue.name}/${search ?? ""}`}
        load={load}
        head={titles.map((title, index) => <span key={title} role="columnheader" class={index ? "number" : undefined}>{title}</span>)}
        row={(partition) => (
          <>
            <span role="cell"><a class="clip" href={hrefTo(["messages"], { queue: queue.name, partition: partition.name })}>{partition.name}</a></span>
            <span role="cell" class="number">{count(partition.stats.total)}</span>
            <span role="cell" class="number">{count(partition.stats.pending)}</span>
            <span role="cell" class="number">{count(partition.stats.deadLetter)}</span>
            <span role="cell" class="number">{count(partition.head)}</span>
            <span role="cell" class="number">{ago(partition.lastActivity)}</span>
          </>
        )}
      />
    </div>
  );
}

/** How evenly messages are spread: partitions by the power of two of their size. */
function Skew({ partitions, total }: { partitions: Schemas["PartitionSummary"][]; total: number }) {
  const sizes = partitions.map((each) => each.stats.total);
  const bucketOf = (size: number) => (size === 0 ? 0 : Math.floor(Math.log2(size)) + 1);
  const highest = Math.max(0, ...sizes.map(bucketOf));
  const bars = Array.from({ length: highest + 1 }, (_, bucket) => sizes.filter((size) => bucketOf(size) === bucket).length);
  const labels = bars.map((_, bucket) => (bucket === 0 ? "0" : count(2 ** (bucket - 1))));
  const tallest = Math.max(1, ...bars);
  const note = partitions.length < total ? `of the first ${count(partitions.length)} of ${counted(total, "partition")}` : `of ${counted(total, "partition")}`;
  return (
    <Card title="Spread of messages" note={note}>
      <div class="bars" role="img" aria-label={`Partitions by number of messages. ${bars.map((bar, bucket) => `${bar} with ${labels[bucket]} or more`).join("; ")}`}>
        {bars.map((bar, bucket) => <div key={bucket} title={`${counted(bar, "partition")} with ${labels[bucket]} or more`} style={{ height: `${(bar / tallest) * 100}%` }} />)}
      </div>
      <div class="bar-labels" aria-hidden="true">{labels.map((label) => <span key={label}>{label}</span>)}</div>
      <p class="muted small">Partitions by number of messages; each bar covers twice the size of the previous one.</p>
    </Card>
  );
}

function Groups({ queue }: { queue: Detail }) {
  const { data } = useLoad((signal) => get("/api/v1/consumer-groups", { query: { queue: queue.name, sort: "worst", limit: 1000 }, signal }), [queue.name], { everySeconds: 5 });
  return (
    <Card>
      <Table
        caption="Consumer groups of the queue"
        rows={data ?? []}
        keyOf={(group) => group.name}
        columns={[
          { title: "Group", cell: (group) => <a href={hrefTo(["groups", group.name, queue.name])}>{groupName(group.name)}</a>, isWide: true },
          { title: "Condition", cell: (group) => <Badge word={group.condition} /> },
          { title: "Behind", cell: (group) => count(group.totalLag), by: (group) => group.totalLag, isNumber: true },
          { title: "Oldest unread", cell: (group) => group.totalLag ? seconds(group.maxTimeLag) : "–", by: (group) => group.maxTimeLag, isNumber: true },
          { title: "Partitions behind", cell: (group) => `${count(group.partitionsWithLag)} of ${count(group.partitionCount)}`, isNumber: true },
          { title: "Last progress", cell: (group) => <When at={group.lastProgressAt} />, isNumber: true },
          { title: "Began", cell: (group) => <When at={group.subscriptionCreatedAt} />, isNumber: true },
        ]}
      />
    </Card>
  );
}
