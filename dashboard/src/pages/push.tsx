// Push a test message.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { Dialog } from "../parts/dialog";
import { attempt } from "../state/toasts";
import { Field } from "../parts/field";

export function PushDialog(props: { queue: string; onClose: () => void; onPushed: () => void }) {
  const [partition, setPartition] = useState("Default");
  const [text, setText] = useState('{\n  "hello": "world"\n}');
  const [id, setId] = useState("");
  const problem = problemOf(text);
  const push = async (event: Event) => {
    event.preventDefault();
    const item = { queue: props.queue, partition, payload: JSON.parse(text) as never, ...(id ? { transactionId: id } : {}) };
    const isDone = await attempt(async () => {
      const results = await act("push", { body: { items: [item as never] } });
      const result = Array.isArray(results) ? results[0] : undefined;
      if (result?.status === "failed") throw new Error(result.error ?? "The push was refused.");
      return result?.status === "duplicate" ? "Duplicate: a message with this transaction id exists." : "Pushed.";
    });
    if (isDone) {
      props.onPushed();
      props.onClose();
    }
  };
  return (
    <Dialog title={`Push a message to ${props.queue}`} onClose={props.onClose}>
      <form class="form" onSubmit={push}>
        <Field label="Partition"><input value={partition} required onInput={(event) => setPartition(event.currentTarget.value)} /></Field>
        <Field label="Transaction id (optional)"><input value={id} onInput={(event) => setId(event.currentTarget.value)} /></Field>
        <Field label="Payload (JSON)" hint={problem ?? "Valid JSON."}><textarea value={text} spellcheck={false} aria-invalid={problem !== null} onInput={(event) => setText(event.currentTarget.value)} /></Field>
        <div class="row end"><button type="button" onClick={props.onClose}>Cancel</button><button class="primary" disabled={problem !== null || !partition}>Push</button></div>
      </form>
    </Dialog>
  );
}

function problemOf(text: string): string | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : "Not valid JSON.";
  }
}
