// One message: payload, headers, what happened to it, and what can be done with it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Badge, Card, Facts, PageHead, QueueLink, When } from "../parts";
import { Confirm } from "../parts/dialog";
import { Payload } from "../parts/json";
import { Failure } from "../parts/notes";
import { ErrorText } from "../parts/trouble";
import { useLoad } from "../state/loading";
import { navigate, hrefTo } from "../state/place";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { counted, moment, theGroup } from "../words";

type Message = Schemas["DescribedMessage"];
type Trace = Schemas["Trace"];
type History = Schemas["MessageHistory"];

export function MessagePage({ partitionId, messageId }: { partitionId: string; messageId: string }) {
  const names = { partition_id: partitionId, transaction_id: messageId };
  const { data, error, reload } = useLoad(
    async (signal) => {
      const message = await get("/api/v1/messages/{partition_id}/{transaction_id}", { names, signal });
      const [traces, history] = await Promise.all([
        get("/api/v1/traces/{partition_id}/{transaction_id}", { names, query: { limit: 200 }, signal }),
        get("/api/v1/messages/{partition_id}/{transaction_id}/history", { names, signal }),
      ]);
      return { message, traces: traces.traces, history };
    },
    [names],
    { everySeconds: 5 },
  );
  return (
    <>
      <PageHead from={["Messages", data ? hrefTo(["messages"], { queue: data.message.queue }) : "/messages"]} title={data?.message.transactionId ?? "Message"} state={data && <Badge word={data.message.status} />}>{data && <Actions message={data.message} reload={reload} />}</PageHead>
      <div class="stack">
        <Failure error={error} />
        {data && (
          <div class="grid">
            <div class="stack">
              <About message={data.message} />
              <Card title="Timeline"><Timeline message={data.message} traces={data.traces} history={data.history} /></Card>
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
          ["Queue", <QueueLink name={message.queue} />],
          ["Partition", <a href={hrefTo(["messages"], { queue: message.queue, partition: message.partition })}>{message.partition}</a>],
          ["Pushed", <><When at={message.createdAt} /> ({moment(message.createdAt)})</>],
          ["Message id", <span class="mono">{message.id}</span>],
          ["Producer", message.producerSub],
          ["Trace id", message.traceId],
          ["Encrypted", message.isEncrypted ? "yes, at rest" : "no"],
          ["Failures", message.retryCount === null ? null : String(message.retryCount)],
        ]}
      />
      {message.errorMessage && <ErrorText error={message.errorMessage} isOpen />}
    </Card>
  );
}

type Event = { at: string | null; text: ComponentChildren; detail?: string | null; error?: string | null };

/** What happened, with its time; then how each group stands now. */
function eventsOf(message: Message, traces: Trace[], history: History): Event[] {
  const dated: Event[] = [
    { at: message.createdAt, text: "Pushed", detail: message.producerSub ? `by ${message.producerSub}` : null },
    ...traces.map((trace): Event => ({ at: trace.created_at, text: `Trace: ${trace.event_type}`, detail: [trace.consumer_group, trace.worker_id, JSON.stringify(trace.data)].filter(Boolean).join(" · ") })),
    ...history.letters.flatMap(letterEvents),
  ];
  dated.sort((a, b) => (a.at ?? "").localeCompare(b.at ?? ""));
  return [...dated, ...history.deliveries.map(standing)];
}

function letterEvents(letter: History["letters"][number]): Event[] {
  const other = letter.otherPartitionId && letter.otherId ? hrefTo(["messages", letter.otherPartitionId, letter.otherId]) : undefined;
  if (letter.isOrigin) return [{ at: letter.redrivenAt, text: <>Pushed again from a <a href={other}>dead letter</a> of {theGroup(letter.group)}</>, error: letter.error }];
  const died: Event = { at: letter.failedAt, text: `Dead-lettered for ${theGroup(letter.group)} after ${counted(letter.failures, "failure")}`, error: letter.error };
  return letter.redrivenAt ? [died, { at: letter.redrivenAt, text: <>Redriven: <a href={other}>pushed again</a></> }] : [died];
}

function standing(delivery: History["deliveries"][number]): Event {
  const group = theGroup(delivery.group);
  const past = [
    delivery.deliveries ? `delivered ${counted(delivery.deliveries, "time")}` : null,
    delivery.failures ? `failed ${counted(delivery.failures, "time")}` : null,
  ];
  const now = {
    done: { text: `Done for ${group}`, detail: null },
    leased: { text: `Leased by ${group}`, detail: `lease until ${moment(delivery.until)}` },
    retrying: { text: `Failed for ${group}, waits for a retry`, detail: `at ${moment(delivery.until)}` },
    waiting: { text: `Waiting for ${group}`, detail: delivery.ahead ? `behind ${counted(delivery.ahead, "message")}` : "next in its partition" },
  }[delivery.state];
  return { at: null, text: now.text, detail: [now.detail, ...past].filter(Boolean).join(", ") };
}

function Timeline(props: { message: Message; traces: Trace[]; history: History }) {
  return (
    <>
      <ol class="timeline">
        {eventsOf(props.message, props.traces, props.history).map((event, index) => (
          <li key={index}>
            <div>{event.text}</div>
            <div class="muted small wrap">{[event.at && moment(event.at), event.detail].filter(Boolean).join(" · ")}</div>
            {event.error && <ErrorText error={event.error} />}
          </li>
        ))}
      </ol>
      <p class="muted small">The log keeps a position per group, not an event per delivery: when a message was delivered or acknowledged, and by which consumer, is known only if consumers record traces.</p>
    </>
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
          <p>It becomes a dead letter of every group that has not completed it. It can be redriven later.</p>
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
