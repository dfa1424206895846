// The frame around all pages: sign-in if there must be one, navigation, messages of what was done.
import { useEffect } from "preact/hooks";
import { pages } from "./pages";
import { SignIn } from "./pages/sign-in";
import { Keys } from "./parts/keys";
import { Empty, Missing } from "./parts/notes";
import { Side } from "./parts/side";
import { place } from "./state/place";
import { followPulse } from "./state/pulse";
import { openSession, session } from "./state/session";
import { toasts } from "./state/toasts";

const RETRY_MS = 3_000;

export function App() {
  useEffect(() => void openSession(), []);
  const { state } = session.value;
  useEffect(() => {
    if (state !== "away") return;
    const timer = setInterval(() => void openSession(), RETRY_MS);
    return () => clearInterval(timer);
  }, [state]);
  if (session.value.state === "signed-out") return <SignIn reason={session.value.reason} />;
  if (session.value.state === "away") {
    return (
      <main>
        <Empty title="The broker does not answer">
          <p>{session.value.reason} Retrying every few seconds.</p>
        </Empty>
      </main>
    );
  }
  // Before it is known who is looking, the frame is shown already: it will not move.
  return <Frame isOpen={state === "open"} />;
}

function Frame({ isOpen }: { isOpen: boolean }) {
  useEffect(() => (isOpen ? followPulse() : undefined), [isOpen]);
  const [first = "", ...rest] = place.value.segments;
  const page = pages.find((each) => each.segment === first && rest.length <= each.depth);
  useEffect(() => {
    document.title = page ? `${page.title} · Skep` : "Skep";
  }, [page]);
  const View = page?.view;
  return (
    <div class="shell">
      <a class="skip" href="#content">Skip to the content</a>
      <Side current={first} />
      <main id="content" tabIndex={-1}>
        {isOpen && (View ? <View key={first} /> : <Missing what="Page" />)}
      </main>
      <Toasts />
      <Keys />
    </div>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.isBad ? "toast toast-bad" : "toast"}>{toast.text}</div>
      ))}
    </div>
  );
}
