// Asks for a token where the broker wants one.
import { useState } from "preact/hooks";
import { openSession } from "../state/session";
import { Field } from "../parts/field";

export function SignIn({ reason }: { reason: string | null }) {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    await openSession(token.trim());
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form class="card form" onSubmit={submit}>
        <h1>Sign in to Skep</h1>
        <p class="muted">This broker asks for a token. What you may do depends on its role.</p>
        {reason && <div class="note note-bad" role="alert">{reason}</div>}
        <Field label="Token (JWT)" hint="Kept in this tab until it is closed."><input type="password" value={token} autocomplete="off" spellcheck={false} required onInput={(event) => setToken(event.currentTarget.value)} /></Field>
        <div><button class="primary" disabled={isBusy || !token.trim()}>Sign in</button></div>
      </form>
    </main>
  );
}
