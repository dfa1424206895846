// Who is looking, and what they may do.
//
// The token is kept for the tab only and never leaves the header it is sent in.
import { signal } from "@preact/signals";
import { actions, type ActionName, type Role } from "../api/actions";
import { ApiError, authorize, get, type Schemas } from "../api/client";

const KEY = "skep.token";
const RANKS: Record<string, number> = { "read-only": 1, "read-write": 2, admin: 3 };

export type Account = Schemas["Account"];
export type Session =
  | { state: "unknown" }
  | { state: "signed-out"; reason: string | null }
  | { state: "away"; reason: string }
  | { state: "open"; account: Account };

export const session = signal<Session>({ state: "unknown" });

function forget(reason: string | null): void {
  sessionStorage.removeItem(KEY);
  authorize(null, () => undefined);
  session.value = { state: "signed-out", reason };
}

export async function openSession(token = sessionStorage.getItem(KEY)): Promise<void> {
  authorize(token, () => forget(token ? "The token is no longer accepted." : null));
  try {
    const account = await get("/api/me");
    if (token) sessionStorage.setItem(KEY, token);
    session.value = { state: "open", account };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) forget(token ? error.message : null);
    else if (error.status === 403) forget(error.message);
    else session.value = { state: "away", reason: error.message };
  }
}

export function signOut(): void {
  forget(null);
}

export function hasRole(needed: Role): boolean {
  if (session.value.state !== "open") return false;
  return (RANKS[session.value.account.user.role] ?? 0) >= (RANKS[needed] ?? 9);
}

export function may(action: ActionName): boolean {
  return hasRole(actions[action].needs);
}
