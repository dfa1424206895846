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
        <p class="muted">This broker requires an access token. Its role determines what you may do.</p>
        {reason && <div class="note note-bad" role="alert">{reason}</div>}
        <Field label="Access token (JWT)" hint="Kept in this tab until you close it."><input type="password" value={token} autocomplete="off" spellcheck={false} required onInput={(event) => setToken(event.currentTarget.value)} /></Field>
        <div><button class="primary" disabled={isBusy || !token.trim()}>Sign in</button></div>
      </form>
    </main>
  );
}
