// Find messages by filters, look at one, or watch them arrive.
import { get, type Schemas } from "../api/client";
import { Badge, Card, PageHead, QueueLink, Table, When } from "../parts";
import { ChoiceFilter, TextFilter } from "../parts/fields";
import { Empty, Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { hrefTo, place, setQuery, spellQuery } from "../state/place";
import { moment } from "../words";
import { MessagePage } from "./message";
import { LiveTail } from "./tail";

type Listed = Schemas["ListedMessage"];
type Status = Listed["status"];
const LIMIT = 100;
const PREVIEW_CHARS = 200;
const SPANS: [string, string][] = [["", "Last hour"], ["1d", "Last day"], ["7d", "Last week"], ["all", "Any time"]];
const SPAN_S: Record<string, number> = { "1d": 86_400, "7d": 604_800 };

export function Messages() {
  const [, partitionId, messageId] = place.value.segments;
  if (partitionId && messageId) return <MessagePage key={messageId} partitionId={partitionId} messageId={messageId} />;
  const { query } = place.value;
  const queue = query.get("queue");
  const isLive = query.get("live") === "1" && Boolean(queue);
  return (
    <>
      <PageHead title="Messages">
        <label class="row small" title={queue ? undefined : "Choose a queue first"}>
          <input type="checkbox" checked={isLive} disabled={!queue} onChange={(event) => setQuery({ live: event.currentTarget.checked ? "1" : null })} />
          Live tail
        </label>
      </PageHead>
      <div class="stack">
        <Filters isLive={isLive} />
        {isLive && queue ? <LiveTail key={queue} queue={queue} partition={query.get("partition")} header={query.get("header")} payload={query.get("payload")} /> : <Found />}
      </div>
    </>
  );
}

function Filters({ isLive }: { isLive: boolean }) {
  return (
    <div class="filters">
      <TextFilter label="Queue" name="queue" />
      <TextFilter label="Partition" name="partition" />
      <TextFilter label="Header" name="header" placeholder="tenant=acme" />
      <TextFilter label="Payload" name="payload" placeholder="$.id = 7" />
      {!isLive && (
        <>
          <ChoiceFilter label="Status" name="status" choices={[["", "Any"], ["pending", "Pending"], ["processing", "Processing"], ["completed", "Completed"], ["dead_letter", "Dead letter"]]} />
          <ChoiceFilter label="Pushed" name="span" choices={SPANS} />
          <TextFilter label="Transaction id" name="transactionId" />
        </>
      )}
    </div>
  );
}

function sinceOf(span: string | null): string | null {
  if (span === "all") return new Date(0).toISOString();
  const seconds = SPAN_S[span ?? ""];
  return seconds ? new Date(Date.now() - seconds * 1000).toISOString() : null;
}

function Found() {
  const { query } = place.value;
  const queue = query.get("queue");
  const wanted = {
    queue,
    partition: queue ? query.get("partition") : null,
    status: query.get("status") as Status | null,
    transactionId: query.get("transactionId"),
    header: query.get("header"),
    payload: query.get("payload"),
    cursor: query.get("cursor"),
  };
  const span = query.get("span");
  const { data, error } = useLoad(
    (signal) => get("/api/v1/messages", { query: { ...wanted, from: sinceOf(span), preview: PREVIEW_CHARS, limit: LIMIT }, signal }),
    [wanted, span],
    wanted.cursor ? {} : { everySeconds: 5 },
  );
  return (
    <>
      <Failure error={error} />
      {data && (data.messages.length ? (
        <Card>
          <MessageTable messages={data.messages} queue={queue} />
          <div class="row">
            {wanted.cursor && <a class="button" href={location.pathname + spellQuery({ cursor: null })}>Newest</a>}
            {data.nextCursor && <a class="button" href={location.pathname + spellQuery({ cursor: data.nextCursor })}>Older</a>}
          </div>
        </Card>
      ) : (
        <Empty title="No message matches">
          {data.nextCursor ? <p>Nothing matches since {moment(data.searchedTo)}. <a href={location.pathname + spellQuery({ cursor: data.nextCursor })}>Search further back</a></p> : <p>{span ? "No message matches the filters." : "Nothing was pushed in the last hour; extend the period with the filter above."}</p>}
        </Empty>
      ))}
    </>
  );
}

export function messageHref(message: { partitionId: string; id: string }): string {
  return hrefTo(["messages", message.partitionId, message.id]);
}

/** The beginning of a payload; what is encrypted has none. */
export function PayloadLine({ text }: { text: string | null | undefined }) {
  return text === null || text === undefined ? <span class="muted">–</span> : <span class="clip mono" title={text}>{text}</span>;
}

function MessageTable({ messages, queue }: { messages: Listed[]; queue: string | null }) {
  const queues = queue ? [] : [{ title: "Queue", cell: (message: Listed) => <QueueLink name={message.queue} />, isWide: true }];
  return (
    <Table
      caption="Messages"
      rows={messages}
      keyOf={(message) => message.id}
      columns={[
        { title: "Transaction id", cell: (message) => <a class="clip mono" href={messageHref(message)}>{message.transactionId}</a> },
        ...queues,
        { title: "Partition", cell: (message) => <span class="clip">{message.partition}</span> },
        { title: "Payload", cell: (message) => <PayloadLine text={message.preview} />, isWide: true },
        { title: "Status", cell: (message) => <Badge word={message.status} /> },
        { title: "Groups done", cell: (message) => message.busStatus.totalGroups ? `${message.busStatus.consumedBy} of ${message.busStatus.totalGroups}` : "–", isNumber: true },
        { title: "Pushed", cell: (message) => <When at={message.createdAt} /> },
      ]}
    />
  );
}

