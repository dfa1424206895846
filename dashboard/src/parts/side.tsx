import { useState } from "preact/hooks";
import icon from "../icon.svg";
import { pages, sections } from "../pages";
import { connection, latest } from "../state/pulse";
import { session, signOut } from "../state/session";
import { chooseTheme, theme, type Theme } from "../state/theme";
import { count } from "../words";
import { Field } from "./field";

const WORDS = {
  connecting: "Connecting",
  live: "Live",
  away: "Reconnecting",
  unserved: "Every few seconds",
} as const;

export function Side({ current }: { current: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <header class={isOpen ? "side open" : "side"}>
      <div class="side-top">
        <a class="brand" href="/"><img src={icon} alt="" width="24" height="24" />Skep</a>
        <button class="menu-button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>Menu</button>
      </div>
      <nav class="nav" aria-label="Pages" onClick={() => setOpen(false)}>
        {sections.map((section) => [
          section && <h2 key={section}>{section}</h2>,
          ...pages.filter((page) => page.section === section).map(({ segment, title }) => (
            <a key={segment} href={`/${segment}`} aria-current={segment === current ? "page" : undefined}>
              {title}{segment === "dead-letters" && <DeadLetters />}
            </a>
          )),
        ])}
      </nav>
      <div class="side-foot">
        <Pulse />
        <Account />
        <ThemeChoice />
        <div class="row"><a href="/docs">HTTP API</a><span class="muted hint"><kbd>?</kbd> keys</span></div>
      </div>
    </header>
  );
}

function DeadLetters() {
  const letters = latest.value?.messages.deadLetter;
  return letters ? <span class="pill">{count(letters)}</span> : null;
}

function Pulse() {
  const state = connection.value;
  const dot = state === "live" ? "dot dot-live" : state === "away" ? "dot dot-away" : "dot";
  return <div class="row" role="status"><span class={dot} aria-hidden="true" />{WORDS[state]}</div>;
}

function Account() {
  if (session.value.state !== "open" || !session.value.account.authenticated) return null;
  const { user, isRestricted } = session.value.account;
  return (
    <div>
      <div class="wrap">{user.username ?? "Signed in"}</div>
      <div>{user.role}{isRestricted && ", some queues"}</div>
      <button class="plain" onClick={signOut}>Sign out</button>
    </div>
  );
}

function ThemeChoice() {
  return (
    <Field label="Theme"><select value={theme.value} onChange={(event) => chooseTheme(event.currentTarget.value as Theme)}>
        <option value="auto">System</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select></Field>
  );
}
