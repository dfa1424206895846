// The pulse of the broker: one stream per tab, sampled once for all who look.
//
// It carries the figures of the overview. Its beat, which goes on between samples that are rare
// because they cost much, is what makes views read again: the broker sets the pace of all of them.
// A tab in the background does not follow it.
import { signal } from "@preact/signals";
import { follow } from "../api/events";
import type { Schemas } from "../api/client";

export type Sample = Schemas["PulseSample"];
export type Connection = "connecting" | "live" | "away" | "unserved";

export const latest = signal<Sample | null>(null);
export const connection = signal<Connection>("connecting");
export const beat = signal(0);

const OWN_BEAT_MS = 5_000;

function take(sample: Sample): void {
  latest.value = sample;
  beat.value++;
}

/** Follow while the tab is visible; returns how to end it. */
export function followPulse(): () => void {
  let stopStream: (() => void) | null = null;
  let timer: ReturnType<typeof setInterval> | undefined;
  const stop = (): void => {
    stopStream?.();
    stopStream = null;
    clearInterval(timer);
  };
  const start = (): void => {
    stop();
    stopStream = follow("/api/v1/dashboard/live", {
      onEvent: ({ event, data }) => {
        if (event === "sample") take(JSON.parse(data) as Sample);
        else if (event === "beat") beat.value++;
      },
      onState: (state) => (connection.value = state),
      // Tokens that are restricted to some queues may not see sums over all: beat by the clock.
      onRefused: () => {
        connection.value = "unserved";
        timer = setInterval(() => beat.value++, OWN_BEAT_MS);
      },
    });
  };
  const onVisibility = (): void => (document.hidden ? stop() : start());
  document.addEventListener("visibilitychange", onVisibility);
  onVisibility();
  return () => {
    document.removeEventListener("visibilitychange", onVisibility);
    stop();
  };
}
