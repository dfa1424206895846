// Is it healthy, what is stuck, what to do: what needs attention, how much there is of what, and how it went.
import { get } from "../api/client";
import { PageHead, Stat, TimeRangeChoice } from "../parts";
import { Empty, Failure } from "../parts/notes";
import { Chart } from "../parts/plot";
import { useLoad } from "../state/loading";
import { latest } from "../state/pulse";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { count, rate, seconds, units } from "../words";

export function Overview() {
  if (latest.value?.queues === 0) return <FirstSteps />;
  return (
    <>
      <PageHead title="Overview"><TimeRangeChoice /></PageHead>
      <div class="stack">
        <Figures />
        <Charts />
      </div>
    </>
  );
}

function FirstSteps() {
  const example = `curl -X POST ${location.origin}/api/v1/push \\
  -H 'content-type: application/json' \\
  -d '{"items": [{"queue": "orders", "payload": {"hello": "world"}}]}'`;
  return (
    <>
      <PageHead title="Overview" />
      <Empty title="This broker has no queues yet">
        <p>Push a message to create its queue:</p>
        <pre tabIndex={0}>{example}</pre>
        <p>or <a href="/queues?create=1">create a queue</a> here. <a href="/docs">The HTTP API</a> describes everything else.</p>
      </Empty>
    </>
  );
}

function Figures() {
  const sample = latest.value;
  const lag = sample?.lag.time.max;
  const letters = sample?.messages.deadLetter;
  return (
    <div class="stats">
      <Stat label="In per second" value={rate(sample?.pushedPerSecond)} />
      <Stat label="Out per second" value={rate(sample?.poppedPerSecond)} />
      <Stat label="Waiting" value={count(sample?.messages.pending)} note={sample?.estimated ? "estimated" : "messages, slowest group"} href="/groups" />
      <Stat label="Oldest unread" value={seconds(lag)} note="in the slowest partition" href="/groups" tone={lag !== undefined && lag > 300 ? "warn" : undefined} />
      <Stat label="Dead letters" value={count(letters)} href="/dead-letters" tone={letters ? "bad" : undefined} />
    </div>
  );
}

function Charts() {
  const range = chosenRange();
  const { data, error } = useLoad((signal) => get("/api/v1/status", { query: spelledRange(range), signal }), [range.key], { everySeconds: 10 });
  const grid = data && gridOf(range, data.bucketMinutes, data.throughput, (point) => point.timestamp);
  const of = (...given: Parameters<NonNullable<typeof grid>["values"]>) => grid?.values(...given) ?? [];
  const common = { times: grid?.times, range };
  return (
    <>
      <Failure error={error} />
      <div class="grid">
        <Chart {...common} title="Messages per second" unit={units.perSecond} nothing="No message was pushed or delivered in this time." lines={[
          { label: "In", colour: 1, values: of((point) => point.ingestedPerSecond, 0) },
          { label: "Out", colour: 2, values: of((point) => point.popPerSecond, 0) },
        ]} />
        <Chart {...common} title="Push to delivery" unit={units.millis} nothing="No message was delivered in this time." lines={[
          { label: "Average", colour: 3, values: of((point) => point.avgLagMs || null) },
          { label: "Worst", colour: 2, values: of((point) => point.maxLagMs || null) },
        ]} />
      </div>
    </>
  );
}
