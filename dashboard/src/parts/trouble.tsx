// Errors as programs tell them: the last line first, the rest on request, with what is not the user's own code dimmed.

/** Frames of Skep, of packages and of Python itself: the cause is seldom there. */
const FOREIGN_FRAME = /^\s*File ".*(\/skep\/|\/site-packages\/|\/lib\/python3)/;
const FRAME = /^\s*File "/;
/** Marks below a line of code, which point nowhere once lines wrap. */
const MARKS = /^\s*[~^]+\s*$/;

/** The line that says what was wrong: the last one of a Python traceback, else the first. */
export function errorLine(error: string): string {
  const lines = error.trim().split("\n");
  return ((error.includes("Traceback (most recent call last):") ? lines.at(-1) : lines[0]) ?? "").trim();
}

export function ErrorLine({ error }: { error: string | null | undefined }) {
  return error ? <span class="clip mono" title={error.slice(0, 2000)}>{errorLine(error) || "(no message)"}</span> : null;
}

export function ErrorText({ error, isOpen }: { error: string; isOpen?: boolean }) {
  const lines = error.trimEnd().split("\n");
  const summary = <strong>{errorLine(error) || "(no message)"}</strong>;
  if (lines.length === 1) return <div class="trouble">{summary}</div>;
  let isForeign = false;
  return (
    <details class="trouble" open={isOpen}>
      <summary>{summary}</summary>
      <pre tabIndex={0}>
        {lines.filter((line) => !MARKS.test(line)).map((line, index) => {
          // A frame goes on over the indented lines below it.
          if (FRAME.test(line)) isForeign = FOREIGN_FRAME.test(line);
          else if (!/^\s{4}/.test(line)) isForeign = false;
          return <span key={index} class={isForeign ? "foreign" : undefined}>{line}{"\n"}</span>;
        })}
      </pre>
    </details>
  );
}
