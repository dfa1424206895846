// Load what a view shows, and again when the pulse beats.
//
// What was shown stays until the new answer is there: nothing jumps, nothing flickers.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { mayRefresh } from "./pace";
import { beat } from "./pulse";

export type Loaded<T> = {
  data: T | undefined;
  error: ApiError | null;
  reload: () => void;
};

/** Seconds between refreshes; a function of what was loaded follows closely only what still changes. */
export type Pace<T> = number | ((data: T | undefined) => number);

/** Views that follow something closely are few and cheap; all others share a budget. */
const PACED_MS = 5_000;

type Held<T> = { key: string; data: T | undefined; error: ApiError | null };

export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  key: unknown[],
  options: { everySeconds?: Pace<T> } = {},
): Loaded<T> {
  const spelled = JSON.stringify(key);
  const [held, setHeld] = useState<Held<T>>({ key: spelled, data: undefined, error: null });
  const [round, setRound] = useState(0);
  const finishedAt = useRef(0);
  const isBusy = useRef(false);

  useEffect(() => {
    const abort = new AbortController();
    isBusy.current = true;
    load(abort.signal).then(
      (data) => setHeld({ key: spelled, data, error: null }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const told = error instanceof ApiError ? error : new ApiError(0, "bug", String(error));
        setHeld((before) => ({ ...before, key: spelled, data: before.key === spelled ? before.data : undefined, error: told }));
      },
    ).finally(() => {
      finishedAt.current = Date.now();
      isBusy.current = false;
    });
    return () => abort.abort();
  }, [spelled, round]);

  const pace = options.everySeconds ?? 0;
  const every = (typeof pace === "function" ? pace(held.data) : pace) * 1000;
  useEffect(() => {
    if (!every) return;
    return beat.subscribe(() => {
      const isDue = !isBusy.current && finishedAt.current > 0 && Date.now() - finishedAt.current >= every;
      if (isDue && (every < PACED_MS || mayRefresh())) setRound((before) => before + 1);
    });
  }, [every]);

  const reload = useCallback(() => setRound((before) => before + 1), []);
  // Of another key only the error is of no use; old data is better than an empty page.
  return { data: held.data, error: held.key === spelled ? held.error : null, reload };
}
