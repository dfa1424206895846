// Move a group, after a look at what that skips and replays.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get } from "../api/client";
import { Dialog } from "../parts/dialog";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { attempt } from "../state/toasts";
import { count, counted, groupName } from "../words";
import { Field } from "../parts/field";

type Target = "end" | "start" | "time";

export function SeekDialog(props: { names: { group: string; queue: string }; onClose: () => void; onDone: () => void }) {
  const [target, setTarget] = useState<Target>("end");
  const [time, setTime] = useState("");
  const timestamp = target === "time" && time ? new Date(time).toISOString() : null;
  const isComplete = target !== "time" || timestamp !== null;
  const preview = useLoad(
    async (signal) => isComplete
      ? get("/api/v1/consumer-groups/{group}/queues/{queue}/seek/preview", { names: props.names, query: target === "time" ? { timestamp } : { to: target }, signal })
      : null,
    [target, timestamp],
  );
  const seek = async (event: Event) => {
    event.preventDefault();
    const body = target === "end" ? { toEnd: true } : target === "start" ? { toStart: true } : { timestamp };
    const isDone = await attempt(async () => {
      const { partitionsUpdated } = await act("seek", { names: props.names, body });
      return `Moved in ${counted(partitionsUpdated, "partition")}.`;
    });
    if (isDone) {
      props.onDone();
      props.onClose();
    }
  };
  return (
    <Dialog title={`Move ${groupName(props.names.group)}`} onClose={props.onClose}>
      <form class="form" onSubmit={seek}>
        <Field label="To"><select value={target} onChange={(event) => setTarget(event.currentTarget.value as Target)}>
            <option value="end">The end: skip unread messages</option>
            <option value="start">The start: replay everything</option>
            <option value="time">A time</option>
          </select></Field>
        {target === "time" && <Field label="Messages pushed from"><input type="datetime-local" step="1" value={time} required onInput={(event) => setTime(event.currentTarget.value)} /></Field>}
        <Failure error={preview.error} />
        <div class="note" role="status">
          {preview.data && isComplete
            ? <>This skips <strong>{counted(preview.data.skipped, "unread message")}</strong> and replays <strong>{count(preview.data.replayed)}</strong> in {counted(preview.data.partitions, "partition")}{preview.data.estimated && " (estimated)"}.</>
            : "Choose a position to see what the move skips and replays."}
        </div>
        <div class="row end"><button type="button" onClick={props.onClose}>Cancel</button><button class="primary" disabled={!isComplete || !preview.data}>Move</button></div>
      </form>
    </Dialog>
  );
}
