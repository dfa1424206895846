// A group on a queue: lag per partition as a heat map, and seek with a preview.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, chosenRange, PageHead, QueueLink, Stat, TimeRangeChoice } from "../parts";
import { Confirm } from "../parts/dialog";
import { Failure } from "../parts/notes";
import { Plot } from "../parts/plot";
import { useLoad } from "../state/loading";
import { hrefTo, navigate } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { count, groupName, seconds } from "../words";
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
  return (
    <>
      <PageHead title={groupName(group)}>{data && <Actions lag={data} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <>
            <div class="row">on <QueueLink name={queue} /> <Badge word={data.state} /></div>
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

const STEPS_S = [0, 10, 60, 600];

/** 0 for nothing to read, to 4 for more than ten minutes behind. */
function heatOf(each: Partition): number {
  if (each.offsetLag === 0) return 0;
  return STEPS_S.filter((step) => each.timeLagSeconds >= step).length;
}

function HeatMap({ lag }: { lag: Lag }) {
  const [chosen, setChosen] = useState<Partition | null>(null);
  const shown = lag.partitions.find((each) => each.partitionId === chosen?.partitionId) ?? null;
  return (
    <Card title="Lag by partition" note={lag.partitionCount > lag.partitions.length ? `the first ${count(lag.partitions.length)} of ${count(lag.partitionCount)}` : "colour: age of the oldest unread message"}>
      <div class="heat" role="group" aria-label="Partitions">
        {lag.partitions.map((each) => (
          <button key={each.partitionId} class={`heat-${heatOf(each)}`} title={`${each.partition}: ${count(each.offsetLag)} behind, ${seconds(each.timeLagSeconds)}`} aria-label={`${each.partition}: ${each.offsetLag} messages, ${each.timeLagSeconds} seconds behind`} onClick={() => setChosen(each)} />
        ))}
      </div>
      <p class="muted small">Palest: nothing unread; then up to 10 s, 1 min, 10 min, and more.</p>
      {shown && (
        <div class="note" role="status">
          <strong class="wrap">{shown.partition}</strong>: {count(shown.offsetLag)} messages and {seconds(shown.timeLagSeconds)} behind
          {shown.leased && ", leased"}{shown.failing > 0 && `, failed ${shown.failing} times`}; at {count(shown.acked)} of {count(shown.head)}.{" "}
          <a href={hrefTo(["messages"], { queue: lag.queueName, partition: shown.partition })}>Messages</a>
        </div>
      )}
    </Card>
  );
}

function History({ group, queue }: { group: string; queue: string }) {
  const range = chosenRange();
  const { data, error } = useLoad(
    (signal) => get("/api/v1/analytics/group-lag", { query: { queue, consumerGroup: group, from: new Date(Date.now() - range * 1000).toISOString() }, signal }),
    [group, queue, range],
    { everySeconds: 30 },
  );
  const points = [...(data?.series ?? [])].sort((a, b) => a.bucket.localeCompare(b.bucket));
  const times = points.map((point) => Date.parse(point.bucket) / 1000);
  return (
    <>
      <TimeRangeChoice />
      <Failure error={error} />
      <div class="grid">
        <Card title="Messages behind"><Plot label="Messages behind" times={times} spanS={range} spell={count} lines={[{ label: "Messages", colour: 1, values: points.map((point) => point.offsetLag) }]} /></Card>
        <Card title="Time behind"><Plot label="Time behind" times={times} spanS={range} spell={seconds} lines={[{ label: "Oldest unread", colour: 2, values: points.map((point) => point.timeLagSeconds) }]} /></Card>
      </div>
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
