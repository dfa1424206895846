// A list of any length: only what is in sight exists, and only that is asked for.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const ROW_PX = 34;
const PAGE_ROWS = 100;
const SETTLE_MS = 120;

export function VirtualList<Row>(props: {
  label: string;
  total: number;
  head: ComponentChildren;
  load: (offset: number, limit: number) => Promise<Row[]>;
  row: (row: Row) => ComponentChildren;
  version: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const pages = useRef(new Map<number, Row[]>());
  const [top, setTop] = useState(0);
  const [, setFilled] = useState(0);
  const first = Math.max(0, Math.floor(top / ROW_PX) - 5);
  const last = Math.min(props.total, first + 45);
  const wanted = [...new Set([Math.floor(first / PAGE_ROWS), Math.floor(Math.max(last - 1, 0) / PAGE_ROWS)])];

  useEffect(() => {
    pages.current.clear();
    setFilled((before) => before + 1);
  }, [props.version]);

  useEffect(() => {
    let isCurrent = true;
    // Wait until scrolling settles: pages that only rush by are not asked for.
    const timer = setTimeout(() => {
      for (const page of wanted.filter((each) => !pages.current.has(each))) {
        void props.load(page * PAGE_ROWS, PAGE_ROWS).then((rows) => {
          if (!isCurrent) return;
          pages.current.set(page, rows);
          setFilled((before) => before + 1);
        }, () => undefined);
      }
    }, SETTLE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [wanted.join(), props.version]);

  const rows: ComponentChildren[] = [];
  for (let index = first; index < last; index++) {
    const row = pages.current.get(Math.floor(index / PAGE_ROWS))?.[index % PAGE_ROWS];
    rows.push(
      <div key={index} class="virtual-row" role="row" aria-rowindex={index + 2} style={{ top: `${index * ROW_PX}px` }}>
        {row === undefined ? <span class="muted" role="cell">…</span> : props.row(row)}
      </div>,
    );
  }
  return (
    <div class="virtual" ref={box} tabIndex={0} role="table" aria-label={props.label} aria-rowcount={props.total + 1} onScroll={() => setTop(box.current?.scrollTop ?? 0)}>
      <div class="virtual-head" role="row">{props.head}</div>
      <div class="virtual-space" role="rowgroup" style={{ height: `${props.total * ROW_PX}px` }}>{rows}</div>
    </div>
  );
}
