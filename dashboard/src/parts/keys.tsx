// What the keyboard does everywhere: search, go to a page, and say so.
import { useEffect, useState } from "preact/hooks";
import { pages } from "../pages";
import { navigate } from "../state/place";
import { Dialog } from "./dialog";

const CHORD_MS = 1_500;
/** The pages by the second key after `g`. */
const GOALS: Record<string, string> = {
  o: "", q: "queues", m: "messages", c: "groups", d: "dead-letters", j: "chains", p: "pipelines", t: "traces", a: "operations", s: "system",
};
const titleOf = (segment: string) => pages.find((page) => page.segment === segment)?.title ?? segment;

/** Keys that are typed into a field mean what they say there. */
function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && (target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]") !== null);
}

function search(): void {
  const field = document.querySelector<HTMLInputElement>('main input[type="search"]');
  if (field) field.focus();
  else navigate("/queues");
}

export function Keys() {
  const [isHelp, setHelp] = useState(false);
  useEffect(() => {
    let chordUntil = 0;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const goal = event.timeStamp < chordUntil ? GOALS[event.key] : undefined;
      chordUntil = event.key === "g" && goal === undefined ? event.timeStamp + CHORD_MS : 0;
      if (goal !== undefined) navigate(`/${goal}`);
      else if (event.key === "/") search();
      else if (event.key === "?") setHelp(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!isHelp) return null;
  return (
    <Dialog title="Keyboard" onClose={() => setHelp(false)}>
      <dl class="facts">
        <dt><kbd>/</kbd></dt><dd>Search on this page</dd>
        <dt><kbd>?</kbd></dt><dd>This help</dd>
        <dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd>
        {Object.entries(GOALS).map(([key, segment]) => [<dt key={key}><kbd>g</kbd> <kbd>{key}</kbd></dt>, <dd key={segment}>{titleOf(segment)}</dd>])}
      </dl>
    </Dialog>
  );
}
