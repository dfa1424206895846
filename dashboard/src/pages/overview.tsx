// Is it healthy, what is stuck, what to do: what needs attention, how much there is of what, and how it went.
import { get } from "../api/client";
import { Card, PageHead, TimeRangeChoice, toneOf, type Tone } from "../parts";
import { Empty, Failure } from "../parts/notes";
import { Chart, Charts } from "../parts/plot";
import { useLoad } from "../state/loading";
import { hrefTo } from "../state/place";
import { latest } from "../state/pulse";
import { chosenRange, gridOf, spelledRange } from "../state/range";
import { count, groupName, units } from "../words";
import { NeedsAttention, useAttention, type Attention } from "./attention";

export function Overview() {
  const { data, error, reload } = useAttention();
  if (latest.value?.queues === 0) return <FirstSteps />;
  return (
    <>
      <PageHead title="Overview"><TimeRangeChoice /></PageHead>
      <div class="stack">
        <Failure error={error} />
        {data ? <NeedsAttention attention={data} reload={reload} /> : !error && <Card title="Needs attention"><p class="muted">Loading</p></Card>}
        {data && <States counts={data.counts} />}
        <Figures />
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

const WORST_FIRST: Tone[] = ["bad", "warn", "info", "good", "plain"];

type Tally = { label: string; value: number; href: string; tone?: Tone };

/** How much there is of what, by state; each leads to its list. */
function States({ counts }: { counts: Attention["counts"] }) {
  const { messages, jobs } = counts;
  const byState = (states: Record<string, number>, href: (state: string) => string): Tally[] =>
    Object.entries(states)
      .filter(([, value]) => value > 0)
      .map(([label, value]) => ({ label: label.replaceAll("-", " "), value, href: href(label), tone: toneOf(label) }))
      .sort((a, b) => WORST_FIRST.indexOf(a.tone) - WORST_FIRST.indexOf(b.tone));
  const rows: [string, Tally[]][] = [
    ["Messages", [
      { label: "waiting", value: messages["pending"] ?? 0, href: "/groups" },
      { label: "processing", value: messages["processing"] ?? 0, href: "/groups" },
      { label: "dead letters", value: messages["deadLetter"] ?? 0, href: "/dead-letters", tone: messages["deadLetter"] ? "bad" : "plain" },
    ]],
    ["Consumer groups", byState(counts.groups, (condition) => hrefTo(["groups"], { condition }))],
    ["Queues", byState(counts.queues, (condition) => hrefTo(["queues"], { condition }))],
    ["Jobs", [
      ...byState({ failed: jobs["failedChains"] ?? 0 }, (state) => hrefTo(["chains"], { state })),
      ...byState({ running: jobs["running"] ?? 0, ready: jobs["ready"] ?? 0, scheduled: jobs["scheduled"] ?? 0, blocked: jobs["blocked"] ?? 0 }, () => "/chains?tab=types"),
    ]],
    ["Pipelines", byState(counts.pipelines, () => "/pipelines")],
    ["Instances", byState(counts.instances, () => "/system")],
  ];
  const known = rows.filter(([, tallies]) => tallies.length);
  return known.length === 0 ? null : (
    <section class="card tallies" aria-label="States">
      {known.map(([title, tallies]) => (
        <div key={title} class="tally">
          <h2>{title}</h2>
          <div class="row">{tallies.map(({ label, value, href, tone }) => <a key={label} href={href}><strong class={`tone-${tone ?? "plain"}`}>{count(value)}</strong> {label}</a>)}</div>
        </div>
      ))}
    </section>
  );
}

function Figures() {
  const range = chosenRange();
  const { data, error } = useLoad((signal) => get("/api/v1/status", { query: spelledRange(range), signal }), [range.key], { everySeconds: 10 });
  const grid = data && gridOf(range, data.bucketMinutes, data.throughput, (point) => point.timestamp);
  const of = (...given: Parameters<NonNullable<typeof grid>["values"]>) => grid?.values(...given) ?? [];
  const common = { times: grid?.times, range };
  return (
    <>
      <Failure error={error} />
      <Charts range={range}>
        <Chart {...common} title="Messages per second" unit={units.perSecond} nothing="No message was pushed or delivered in this time." lines={[
          { label: "In", colour: 1, values: of((point) => point.ingestedPerSecond, 0) },
          { label: "Out", colour: 2, values: of((point) => point.popPerSecond, 0) },
        ]} />
        <Chart {...common} title="Push to delivery" unit={units.millis} nothing="No message was delivered in this time." lines={[
          { label: "p50", colour: 3, values: of((point) => point.p50LagMs) },
          { label: "p95", colour: 1, values: of((point) => point.p95LagMs) },
          { label: "p99", colour: 2, values: of((point) => point.p99LagMs) },
        ]} />
        <div class="whole"><Lag /></div>
      </Charts>
    </>
  );
}

/** The groups that are furthest behind now. */
function Lag() {
  const range = chosenRange();
  const { data } = useLoad((signal) => get("/api/v1/analytics/group-lag", { query: spelledRange(range), signal }), [range.key], { everySeconds: 30 });
  const byGroup = Map.groupBy(data?.series ?? [], (point) => `${groupName(point.consumerGroup)} on ${point.queueName}`);
  const worst = [...byGroup].sort(([, a], [, b]) => (b[0]?.offsetLag ?? 0) - (a[0]?.offsetLag ?? 0)).slice(0, 4);
  const grids = worst.map(([label, points]) => ({ label, grid: gridOf(range, data?.bucketMinutes ?? 1, points, (point) => point.bucket) }));
  const lines = grids.map(({ label, grid }, index) => ({ label, colour: ((index % 4) + 1) as 1 | 2 | 3 | 4, values: grid.values((point) => point.offsetLag) }));
  return <Chart title="Messages behind" note="groups furthest behind" unit={units.whole} nothing="No consumer group was behind in this time." times={data && (grids[0]?.grid.times ?? [])} range={range} lines={lines} />;
}
