// Questions in the middle of the screen: the browser's own dialog keeps the focus inside.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { attempt } from "../state/toasts";
import { Field } from "./field";

export function Dialog(props: { title: string; isWide?: boolean | undefined; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class={props.isWide ? "broad" : undefined} aria-label={props.title} onClose={props.onClose} onClick={(event) => event.target === dialog.current && props.onClose()}>
      <div class="dialog-head"><h2>{props.title}</h2><button type="button" class="close" aria-label="Close" onClick={props.onClose}>✕</button></div>
      <div class="dialog-body">{props.children}</div>
    </dialog>
  );
}

/** Ask before something that cannot be undone; with `typed` the name has to be typed first. */
export function Confirm(props: {
  title: string;
  verb: string;
  typed?: string;
  isWide?: boolean;
  isReady?: boolean;
  isSafe?: boolean;
  onClose: () => void;
  work: () => Promise<string | void>;
  children: ComponentChildren;
}) {
  const [text, setText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const isReady = !isBusy && props.isReady !== false && (props.typed === undefined || text === props.typed);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!isReady) return;
    setBusy(true);
    if (await attempt(props.work)) props.onClose();
    else setBusy(false);
  };
  return (
    <Dialog title={props.title} isWide={props.isWide} onClose={props.onClose}>
      <form class="form" onSubmit={run}>
        <div>{props.children}</div>
        {props.typed !== undefined && (
          <Field label={<>Type <strong class="mono wrap">{props.typed}</strong> to confirm</>}><input value={text} onInput={(event) => setText(event.currentTarget.value)} autocomplete="off" /></Field>
        )}
        <div class="row end">
          <button type="button" onClick={props.onClose}>Cancel</button>
          <button class={props.isSafe ? "primary" : "danger"} disabled={!isReady}>{props.verb}</button>
        </div>
      </form>
    </Dialog>
  );
}
