// One message: payload, headers, what happened to it, and what can be done with it.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, QueueLink, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Payload } from "../parts/json";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { navigate, hrefTo } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { moment } from "../words";

type Message = Schemas["DescribedMessage"];
type Trace = Schemas["Trace"];
type Letter = Schemas["DeadLetter"];

export function MessagePage({ partitionId, messageId }: { partitionId: string; messageId: string }) {
  const names = { partition_id: partitionId, transaction_id: messageId };
  const { data, error, reload } = useLoad(
    async (signal) => {
      const message = await get("/api/v1/messages/{partition_id}/{transaction_id}", { names, signal });
      const [traces, letters] = await Promise.all([
        get("/api/v1/traces/{partition_id}/{transaction_id}", { names, query: { limit: 200 }, signal }),
        message.status === "dead_letter" ? get("/api/v1/dlq", { query: { queue: message.queue, partition: message.partition, limit: 200 }, signal }) : null,
      ]);
      return { message, traces: traces.traces, letters: letters?.messages.filter((letter) => letter.id === message.id) ?? [] };
    },
    [names],
    { everySeconds: 5 },
  );
  return (
    <>
      <PageHead title={data?.message.transactionId ?? "Message"}>{data && <Actions message={data.message} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <div class="grid">
            <div class="stack">
              <About message={data.message} />
              <Card title="Timeline"><Timeline message={data.message} traces={data.traces} letters={data.letters} /></Card>
            </div>
            <div class="stack">
              <Card title="Payload"><Payload value={data.message.payload} /></Card>
              {hasMembers(data.message.headers) && <Card title="Headers"><Payload value={data.message.headers} /></Card>}
            </div>
          </div>
        )}
      </div>
    </>
  );
}

const hasMembers = (value: unknown) => typeof value === "object" && value !== null && Object.keys(value).length > 0;

function About({ message }: { message: Message }) {
  return (
    <Card title="Message">
      <Facts
        facts={[
          ["Status", <Badge word={message.status} />],
          ["Queue", <QueueLink name={message.queue} />],
          ["Partition", <a href={hrefTo(["messages"], { queue: message.queue, partition: message.partition })}>{message.partition}</a>],
          ["Pushed", <><When at={message.createdAt} /> ({moment(message.createdAt)})</>],
          ["Message id", <span class="mono">{message.id}</span>],
          ["Producer", message.producerSub],
          ["Trace id", message.traceId],
          ["Encrypted", message.isEncrypted ? "yes, at rest" : "no"],
          ["Failures", message.retryCount === null ? "–" : String(message.retryCount)],
          ["Last error", message.errorMessage],
        ]}
      />
    </Card>
  );
}

type Event = { at: string | null; text: string; detail?: string | null };

function eventsOf(message: Message, traces: Trace[], letters: Letter[]): Event[] {
  const groups = message.consumerGroups.map((group): Event => {
    if (group.consumed) return { at: null, text: `Done for group ${group.name}` };
    if (group.leaseExpiresAt) return { at: null, text: `With a consumer of group ${group.name}`, detail: `lease until ${moment(group.leaseExpiresAt)}` };
    return { at: null, text: `Waits for group ${group.name}` };
  });
  return [
    { at: message.createdAt, text: "Pushed", detail: message.producerSub ? `by ${message.producerSub}` : null },
    ...traces.map((trace): Event => ({ at: trace.created_at, text: `Trace: ${trace.event_type}`, detail: [trace.consumer_group, trace.worker_id, JSON.stringify(trace.data)].filter(Boolean).join(" · ") })),
    ...letters.map((letter): Event => ({ at: letter.failedAt, text: `Given up for group ${letter.consumerGroup ?? "–"} after ${letter.attempts} deliveries`, detail: letter.errorMessage })),
    ...(message.retryCount ? [{ at: null, text: `Failed ${message.retryCount} times so far`, detail: message.errorMessage }] : []),
    ...groups,
  ];
}

function Timeline(props: { message: Message; traces: Trace[]; letters: Letter[] }) {
  const events = eventsOf(props.message, props.traces, props.letters);
  const dated = events.filter((event) => event.at).sort((a, b) => (a.at ?? "").localeCompare(b.at ?? ""));
  return (
    <ol class="timeline">
      {[...dated, ...events.filter((event) => !event.at)].map((event, index) => (
        <li key={index}>
          <div>{event.text}</div>
          <div class="muted small wrap">{event.at ? moment(event.at) : "now"}{event.detail && ` · ${event.detail}`}</div>
        </li>
      ))}
    </ol>
  );
}

function Actions({ message, reload }: { message: Message; reload: () => void }) {
  const [asked, setAsked] = useState<"give-up" | "delete" | null>(null);
  const names = { partition_id: message.partitionId, transaction_id: message.id };
  const close = () => setAsked(null);
  const retry = () => attempt(async () => {
    const outcome = await act("retryMessage", { names, body: {} });
    reload();
    return outcome.message;
  });
  return (
    <div class="row">
      {may("retryMessage") && <button onClick={retry}>Retry</button>}
      {may("giveUpMessage") && message.status !== "dead_letter" && <button onClick={() => setAsked("give-up")}>Move to dead letters</button>}
      {may("deleteMessage") && <button class="danger" onClick={() => setAsked("delete")}>Delete</button>}
      {asked === "give-up" && (
        <Confirm title="Move to the dead letters" verb="Move" onClose={close} work={async () => {
          const outcome = await act("giveUpMessage", { names, body: { error: "moved by hand" } });
          reload();
          return outcome.message;
        }}>
          <p>Every group that is not done with it gives it up. It can be redriven later.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title="Delete the message" verb="Delete" onClose={close} work={async () => {
          const outcome = await act("deleteMessage", { names });
          navigate(hrefTo(["messages"], { queue: message.queue }));
          return outcome.message;
        }}>
          <p>It is deleted for all groups, with its dead letters. This cannot be undone.</p>
        </Confirm>
      )}
    </div>
  );
}
