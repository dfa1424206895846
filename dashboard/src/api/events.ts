// Server-sent events over fetch: unlike EventSource it can send the token in a header.
//
// Reconnects with the last id it saw, with growing pauses; a refusal (4xx) ends it.
import { ApiError, request } from "./client";

export type ServerEvent = { event: string; data: string; id: string | null };
export type Follower = {
  onEvent: (event: ServerEvent) => void;
  onState?: (state: "live" | "away") => void;
  onRefused?: (error: ApiError) => void;
};

const PAUSE_MS_MAX = 15_000;

/** Follow a stream until the returned function is called. */
export function follow(url: string, follower: Follower): () => void {
  const abort = new AbortController();
  void keepFollowing(url, follower, abort.signal);
  return () => abort.abort();
}

async function keepFollowing(url: string, follower: Follower, signal: AbortSignal): Promise<void> {
  let lastId: string | null = null;
  let pauseMs = 500;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (lastId) headers["last-event-id"] = lastId;
      const response = await request("GET", url, { signal, headers });
      follower.onState?.("live");
      pauseMs = 500;
      for await (const event of eventsOf(response)) {
        lastId = event.id ?? lastId;
        if (event.data) follower.onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        follower.onRefused?.(error);
        return;
      }
    }
    follower.onState?.("away");
    await pause(pauseMs * (0.75 + Math.random() / 2), signal);
    pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX);
  }
}

async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffered += value;
    const blocks = buffered.split("\n\n");
    buffered = blocks.pop() ?? "";
    for (const block of blocks) yield parseBlock(block);
  }
}

export function parseBlock(block: string): ServerEvent {
  const parsed: ServerEvent = { event: "message", data: "", id: null };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "data") data.push(value ?? "");
    else if (field === "event") parsed.event = value ?? "";
    else if (field === "id") parsed.id = value ?? null;
  }
  parsed.data = data.join("\n");
  return parsed;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
