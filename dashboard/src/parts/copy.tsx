// Text to be taken elsewhere: a command, a payload.
import { tell } from "../state/toasts";

export function copy(text: string): void {
  void navigator.clipboard.writeText(text).then(() => tell("Copied."), () => tell("The browser does not allow copying here.", true));
}

export function Command({ text, label }: { text: string; label: string }) {
  return (
    <div class="form">
      <pre tabIndex={0} aria-label={label}>{text}</pre>
      <div class="row"><button onClick={() => copy(text)}>Copy the command</button></div>
    </div>
  );
}

/** Quote an argument for a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
