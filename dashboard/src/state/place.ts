// Where the reader is: the address is the state, so that every view can be linked and reloaded.
import { signal } from "@preact/signals";

export type Place = { segments: string[]; query: URLSearchParams };

function readAddress(): Place {
  const segments = location.pathname.split("/").filter(Boolean).map(decodeSegment);
  return { segments, query: new URLSearchParams(location.search) };
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const place = signal<Place>(readAddress());

/** What all pages share: it goes along to where the new address says nothing else. */
const SHARED = ["range", "zoom"];

function withShared(href: string): string {
  const url = new URL(href, location.origin);
  if (url.pathname === location.pathname) return href;
  for (const name of SHARED) {
    const value = place.value.query.get(name);
    if (value && !url.searchParams.has(name)) url.searchParams.set(name, value);
  }
  return url.pathname + url.search + url.hash;
}

export function navigate(href: string, options: { replace?: boolean } = {}): void {
  const target = withShared(href);
  if (options.replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  const isOtherPage = place.value.segments.join("/") !== readAddress().segments.join("/");
  place.value = readAddress();
  if (isOtherPage && !options.replace) {
    scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }
}

/** Change some members of the query; null and "" take one out. */
export function setQuery(changes: Record<string, string | null>, options: { replace?: boolean } = {}): void {
  navigate(location.pathname + spellQuery(changes), options);
}

export function spellQuery(changes: Record<string, string | null>): string {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const spelled = query.toString();
  return spelled && `?${spelled}`;
}

/** Spell the address of a view. */
export function hrefTo(segments: string[], query: Record<string, string | null | undefined> = {}): string {
  const path = `/${segments.map(encodeURIComponent).join("/")}`;
  const given = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

const ELSEWHERE = /^\/(api|docs|openapi\.json|metrics|health)(\/|$)/;

/** Let links change the view in place, unless they lead elsewhere or should open beside it. */
export function interceptLinks(): void {
  addEventListener("popstate", () => (place.value = readAddress()));
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a");
    const href = link?.getAttribute("href");
    const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (!href?.startsWith("/") || !isPlain || link?.target || ELSEWHERE.test(href)) return;
    event.preventDefault();
    navigate(href);
  });
}
