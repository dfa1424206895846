// A group on a queue: lag per partition as a heat map, and seek with a preview.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, PageHead, QueueLink, Stat, TimeRangeChoice } from "../parts";
import { Confirm } from "../parts/dialog";
import { Failure, Missing } from "../parts/notes";
import { Chart, Charts } from "../parts/plot";
import { useLoad } from "../state/loading";
import { hrefTo, navigate } from "../state/place";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, counted, groupName, seconds, units } from "../words";
import { Concerns } from "./attention";
import { SeekDialog } from "./seek";

type Lag = Schemas["GroupLag"];
type Partition = Schemas["PartitionLag"];
const PARTITIONS = 1000;

export function GroupPage({ group, queue }: { group: string; queue: string }) {
  const { data, error, reload } = useLoad(
    (signal) => get("/api/v1/consumer-groups/{group}/queues/{queue}/lag", { names: { group, queue }, query: { limit: PARTITIONS }, signal }),
    [group, queue],
    { everySeconds: 5 },
  );
  if (error?.status === 404) return <Missing what="Consumer group">{error.message}: <strong class="wrap">{groupName(group)}</strong> on <strong class="wrap">{queue}</strong>. <a href="/groups">All groups</a></Missing>;
  return (
    <>
      <PageHead from={["Consumer groups", "/groups"]} title={groupName(group)} state={data && <Badge word={data.condition} />}>{data && <Actions lag={data} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            <div>on queue <QueueLink name={queue} /></div>
            <Concerns isAbout={(item) => item.queue === queue && item.group === group} reload={reload} />
            <div class="stats">
              <Stat label="Behind" value={count(data.offsetLag)} note={data.estimated ? "messages, estimated" : "messages"} />
              <Stat label="Oldest unread" value={seconds(data.timeLagSeconds)} tone={data.timeLagSeconds > 300 ? "warn" : undefined} />
              <Stat label="Partitions behind" value={count(data.partitionsWithLag)} note={`of ${count(data.partitionCount)}`} />
              <Stat label="Failing" value={count(data.partitions.filter((each) => each.failing > 0).length)} note="partitions, of those shown" />
            </div>
            <HeatMap lag={data} />
          </>
        )}
        <History group={group} queue={queue} />
      </div>
    </>
  );
}

/** From nothing unread to more than ten minutes behind. */
const HEATS = ["nothing unread", "up to 10 s", "up to 1 min", "up to 10 min", "longer"];
const STEPS_S = [0, 10, 60, 600];

function heatOf(each: Partition): number {
  if (each.offsetLag === 0) return 0;
  return STEPS_S.filter((step) => each.timeLagSeconds >= step).length;
}

function HeatMap({ lag }: { lag: Lag }) {
  const [chosen, setChosen] = useState<Partition | null>(null);
  const shown = lag.partitions.find((each) => each.partitionId === chosen?.partitionId) ?? null;
  const heats = lag.partitions.map(heatOf);
  const tell = (each: Partition) => `${each.partition}: ${counted(each.offsetLag, "message")} and ${seconds(each.timeLagSeconds)} behind`;
  return (
    <section class="card" aria-label="Lag by partition">
      <div class="card-head">
        <h2>Lag by partition{lag.partitionCount > lag.partitions.length && <span class="muted small"> the first {count(lag.partitions.length)} of {count(lag.partitionCount)}</span>}</h2>
        <ul class="legend" aria-label="Partitions by the age of the oldest unread message">
          {HEATS.map((title, heat) => <li key={title}><span class={`swatch heat-${heat}`} aria-hidden="true" />{title} <strong>{count(heats.filter((each) => each === heat).length)}</strong></li>)}
        </ul>
      </div>
      <div class="heat" role="group" aria-label="Partitions">
        {lag.partitions.map((each, index) => (
          <button key={each.partitionId} class={`heat-${heats[index]}`} title={tell(each)} aria-label={tell(each)} aria-pressed={each.partitionId === chosen?.partitionId} onClick={() => setChosen(each)} />
        ))}
      </div>
      {shown && (
        <div class="note" role="status">
          <strong class="wrap">{shown.partition}</strong>: {counted(shown.offsetLag, "message")} and {seconds(shown.timeLagSeconds)} behind
          {shown.leased && ", leased"}{shown.failing > 0 && `, ${counted(shown.failing, "message")} to be retried`}; at {count(shown.acked)} of {count(shown.head)}.{" "}
          <a href={hrefTo(["messages"], { queue: lag.queueName, partition: shown.partition })}>Messages of this partition</a>
        </div>
      )}
    </section>
  );
}

function History({ group, queue }: { group: string; queue: string }) {
  const range = chosenRange();
  const { data, error } = useLoad(
    (signal) => get("/api/v1/analytics/group-lag", { query: { queue, consumerGroup: group, ...spelledRange(range) }, signal }),
    [group, queue, range.key],
    { everySeconds: 30 },
  );
  const grid = data && gridOf(range, data.bucketMinutes, data.series, (point) => point.bucket);
  const common = { times: grid?.times, range, nothing: "The group was never behind in this time." };
  return (
    <>
      <TimeRangeChoice />
      <Failure error={error} />
      <Charts range={range}>
        <Chart {...common} title="Messages behind" unit={units.whole} lines={[{ label: "Messages", colour: 1, values: grid?.values((point) => point.offsetLag) ?? [] }]} />
        <Chart {...common} title="Oldest unread" unit={units.seconds} lines={[{ label: "Age", colour: 2, values: grid?.values((point) => point.timeLagSeconds) ?? [] }]} />
      </Charts>
    </>
  );
}

function Actions({ lag, reload }: { lag: Lag; reload: () => void }) {
  const [asked, setAsked] = useState<"seek" | "delete" | null>(null);
  const names = { group: lag.consumerGroup, queue: lag.queueName };
  const isPaused = lag.state === "Paused";
  const close = () => setAsked(null);
  const toggle = () => attempt(async () => {
    await act(isPaused ? "resumeGroup" : "pauseGroup", { names });
    reload();
    return isPaused ? "Resumed." : "Paused.";
  });
  return (
    <div class="row">
      {may("seek") && <button class="primary" onClick={() => setAsked("seek")}>Seek</button>}
      {may("pauseGroup") && <button onClick={toggle}>{isPaused ? "Resume" : "Pause"}</button>}
      {may("deleteGroup") && <button class="danger" onClick={() => setAsked("delete")}>Delete</button>}
      {asked === "seek" && <SeekDialog names={names} onClose={close} onDone={reload} />}
      {asked === "delete" && (
        <Confirm title="Delete the group" verb="Delete the group" typed={groupName(lag.consumerGroup)} onClose={close} work={async () => {
          await act("deleteGroup", { names });
          navigate("/groups");
          return "Deleted the group.";
        }}>
          <p>The progress of this group on {lag.queueName} is deleted. If a consumer polls with its name again, it starts over.</p>
        </Confirm>
      )}
    </div>
  );
}
