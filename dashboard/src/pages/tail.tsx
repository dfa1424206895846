// Messages of a queue as they arrive; nothing is consumed by watching.
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import { spellPath } from "../api/client";
import { follow } from "../api/events";
import { Card, Table } from "../parts";
import { Failure } from "../parts/notes";
import { moment } from "../words";
import { messageHref, PayloadLine } from "./messages";

type TailMessage = { id: string; queue: string; partition: string; partitionId: string; createdAt: string; transactionId?: string; data: unknown; error?: string };

const KEPT = 200;
const SHOW_EVERY_MS = 250;

export function LiveTail({ queue, partition, header, payload }: { queue: string; partition: string | null; header: string | null; payload: string | null }) {
  const [messages, setMessages] = useState<TailMessage[]>([]);
  const [isHeld, setHeld] = useState(false);
  const [state, setState] = useState("connecting");
  const [error, setError] = useState<ApiError | null>(null);

  useEffect(() => {
    if (isHeld) return;
    setError(null);
    let arrived: TailMessage[] = [];
    // Thousands a second arrive as a few paints a second.
    const painter = setInterval(() => {
      if (!arrived.length) return;
      const newest = arrived.reverse();
      arrived = [];
      setMessages((before) => [...newest, ...before].slice(0, KEPT));
    }, SHOW_EVERY_MS);
    const stop = follow(spellPath("/api/v1/stream/queue/{queue}/events", { queue }, { from: "now", header, payload }), {
      onState: setState,
      onRefused: setError,
      onEvent: ({ event, data }) => {
        if (event !== "message") return;
        const message = JSON.parse(data) as TailMessage;
        if (partition && message.partition !== partition) return;
        arrived = [...arrived.slice(1 - KEPT), message];
      },
    });
    return () => {
      stop();
      clearInterval(painter);
    };
  }, [queue, partition, header, payload, isHeld]);

  return (
    <Card title={`Live: ${queue}`} note={isHeld ? "paused" : state}>
      <Failure error={error} />
      <div class="row">
        <button onClick={() => setHeld(!isHeld)}>{isHeld ? "Resume" : "Pause"}</button>
        <button onClick={() => setMessages([])}>Clear list</button>
        <span class="muted small" role="status">{messages.length ? `${messages.length} shown, newest first` : "Messages appear here as they are pushed."}</span>
      </div>
      <Table
        caption="Messages as they arrive"
        rows={messages}
        keyOf={(message) => message.id}
        columns={[
          { title: "Pushed", cell: (message) => moment(message.createdAt) },
          { title: "Partition", cell: (message) => <span class="clip">{message.partition}</span> },
          { title: "Transaction id", cell: (message) => <a class="clip mono" href={messageHref(message)}>{message.transactionId ?? message.id}</a> },
          { title: "Payload", cell: (message) => <PayloadLine text={message.error ?? JSON.stringify(message.data)?.slice(0, 300)} />, isWide: true },
        ]}
      />
    </Card>
  );
}
