// Short words about what was just done.
import { signal } from "@preact/signals";
import { ApiError } from "../api/client";

export type Toast = { id: number; text: string; isBad: boolean };
export const toasts = signal<Toast[]>([]);
const SHOWN_MS = 6_000;
let lastId = 0;

export function tell(text: string, isBad = false): void {
  const id = ++lastId;
  toasts.value = [...toasts.value, { id, text, isBad }];
  setTimeout(() => (toasts.value = toasts.value.filter((toast) => toast.id !== id)), SHOWN_MS);
}

/** Do something, say how it went, and return whether it went well. */
export async function attempt(work: () => Promise<string | void>): Promise<boolean> {
  try {
    const told = await work();
    if (told) tell(told);
    return true;
  } catch (error) {
    tell(error instanceof ApiError || error instanceof Error ? error.message : String(error), true);
    return false;
  }
}
