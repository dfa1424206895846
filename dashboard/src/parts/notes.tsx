// What is said when there is nothing to show, or something went wrong.
import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/client";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

/** Instead of a page whose subject is not there. */
export function Missing({ what, children }: { what: string; children?: ComponentChildren }) {
  return <div class="empty"><h1>{what} not found</h1><p>{children ?? <><a href="/">The overview</a> links to everything.</>}</p></div>;
}

export function Failure({ error }: { error: ApiError | null }) {
  if (!error) return null;
  const isAbout = error.status === 403 ? "note note-warn" : "note note-bad";
  return <div class={isAbout} role="alert">{error.message}</div>;
}
