// Lines over time, by uPlot: a legend with the last values in the head, a tip at the cursor, and zoom
// by dragging, which moves all charts.
import { createContext, type ComponentChildren } from "preact";
import { useContext, useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { get } from "../api/client";
import { useLoad } from "../state/loading";
import { spelledRange, zoomTo, type Range } from "../state/range";
import { paletteVersion } from "../state/theme";
import { moment, tick, type Unit } from "../words";

export type Line = {
  label: string;
  values: (number | null)[];
  colour: 1 | 2 | 3 | 4;
};
/** Something that happened, drawn as a thin line. */
type Mark = { at: number; label: string };
const Marks = createContext<Mark[]>([]);

const HEIGHT_PX = 176;
const DAY_S = 86_400;
const ZOOM_PX = 8;
const MARK_PX = 6;

/** The charts of a page: all show when brokers were deployed, started, stopped or lost. */
export function Charts({ range, children }: { range: Range; children: ComponentChildren }) {
  const { data } = useLoad((signal) => get("/api/v1/analytics/markers", { query: spelledRange(range), signal }), [range.key], { everySeconds: 30 });
  const marks = data?.markers.map(({ at, text, instance }) => ({ at: Date.parse(at) / 1000, label: `${text} · ${instance}` })) ?? [];
  return <Marks.Provider value={marks}><div class="grid">{children}</div></Marks.Provider>;
}

/** `times` is undefined until they are loaded; `nothing` says why there is nothing to draw. */
export function Chart(props: {
  title: string;
  note?: string;
  nothing: string;
  times: number[] | undefined;
  lines: Line[];
  unit: Unit;
  range: Range;
}) {
  const marks = useContext(Marks);
  const isEmpty = !props.lines.some((line) => line.values.some((value) => value !== null && value !== 0));
  const lastOf = (line: Line) => line.values.findLast((value) => value !== null);
  return (
    <section class="card" aria-label={props.title}>
      <div class="card-head">
        <h2>{props.title}{props.note && <span class="muted small"> {props.note}</span>}</h2>
        {!isEmpty && (
          <ul class="legend">
            {props.lines.map((line) => {
              const last = lastOf(line);
              return <li key={line.label}><span class={`swatch swatch-${line.colour}`} aria-hidden="true" />{line.label} <strong>{last === undefined || last === null ? "–" : props.unit.spell(last)}</strong></li>;
            })}
          </ul>
        )}
      </div>
      {props.times === undefined ? <div class="plot-empty">Loading</div>
        : isEmpty ? <div class="plot-empty">{props.nothing}</div>
        : <Plot {...props} times={props.times} marks={marks} />}
    </section>
  );
}

function Plot(props: { title: string; times: number[]; lines: Line[]; unit: Unit; range: Range; marks: Mark[] }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useRef(props);
  now.current = props;
  const shape = props.lines.map((line) => `${line.label}/${line.colour}`).join();
  const palette = paletteVersion.value;
  const data = [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const holder = box.current;
    if (!holder) return;
    const tip = new Tip(holder);
    const axis = { stroke: colourOf("--muted"), font: "11px system-ui, sans-serif", grid: { stroke: colourOf("--edge"), width: 1 }, ticks: { show: false } };
    const markColour = colourOf("--plot-4");
    plot.current = new uPlot(
      {
        width: holder.clientWidth,
        height: HEIGHT_PX,
        padding: [10, 12, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "time" }, y: false, points: { size: 6 } },
        scales: {
          x: { range: () => now.current.range.bounds() },
          y: { range: (_, __, high) => [0, high > 0 ? high * 1.08 : 1] },
        },
        axes: [
          { ...axis, space: 64, size: 26, values: (drawn, ticks) => ticks.map((time) => spellTick(time, spanOf(drawn))) },
          { ...axis, space: 34, incrs: props.unit.steps, size: (_, spelled) => Math.max(28, ...(spelled ?? []).map((each) => each.length * 6.4 + 12)), values: (_, ticks) => ticks.map((each) => tick(props.unit.spell(each))) },
        ],
        series: [
          {},
          ...props.lines.map((line) => ({
            stroke: colourOf(`--plot-${line.colour}`),
            width: 1.5,
            ...(props.lines.length === 1 ? { fill: faded(colourOf(`--plot-${line.colour}`)) } : {}),
            points: { show: false },
          })),
        ],
        hooks: {
          draw: [(drawn) => drawMarks(drawn, now.current.marks, markColour)],
          setCursor: [(drawn) => tip.follow(drawn, now.current)],
          setSelect: [(drawn) => {
            const { left, width } = drawn.select;
            if (width < ZOOM_PX) return;
            drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            zoomTo(drawn.posToVal(left, "x"), drawn.posToVal(left + width, "x"));
          }],
        },
      },
      data,
      holder,
    );
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: holder.clientWidth, height: HEIGHT_PX }));
    watcher.observe(holder);
    return () => {
      watcher.disconnect();
      plot.current?.destroy();
      plot.current = null;
      tip.remove();
    };
  }, [shape, palette]);

  useEffect(() => plot.current?.setData(data), [data]);
  return <div class="plot" ref={box} role="img" aria-label={describe(props)} />;
}

/** What is under the cursor, beside it. Made by hand: it follows the mouse. */
class Tip {
  private readonly element = document.createElement("div");

  constructor(private readonly holder: HTMLElement) {
    this.element.className = "tip";
    this.element.hidden = true;
    holder.append(this.element);
  }

  follow(drawn: uPlot, shown: { lines: Line[]; unit: Unit; marks: Mark[] }): void {
    const { idx, left } = drawn.cursor;
    // The cursors of all charts move together; only the one under the mouse speaks.
    const isHere = drawn.over.matches(":hover");
    const time = idx === null || idx === undefined ? undefined : drawn.data[0][idx];
    this.element.hidden = !isHere || time === undefined || left === undefined || left < 0;
    if (this.element.hidden || time === undefined || left === undefined) return;
    const near = shown.marks.filter((mark) => Math.abs(drawn.valToPos(mark.at, "x") - left) <= MARK_PX);
    this.element.replaceChildren(
      row(moment(new Date(time * 1000).toISOString()).slice(5)),
      ...shown.lines.map((line) => {
        const value = line.values[idx ?? 0];
        return row(line.label, value === null || value === undefined ? "–" : shown.unit.spell(value), line.colour);
      }),
      ...near.map((mark) => row(mark.label)),
    );
    const room = this.holder.clientWidth;
    const at = drawn.over.offsetLeft + left;
    const width = this.element.offsetWidth;
    const x = at + 12 + width > room ? Math.max(0, at - 12 - width) : at + 12;
    this.element.style.transform = `translate(${x}px, 8px)`;
  }

  remove(): void {
    this.element.remove();
  }
}

function row(label: string, value?: string, colour?: number): HTMLElement {
  const line = document.createElement("div");
  if (colour !== undefined) {
    const swatch = document.createElement("span");
    swatch.className = `swatch swatch-${colour}`;
    line.append(swatch);
  }
  for (const text of value === undefined ? [label] : [label, value]) {
    const part = document.createElement("span");
    part.textContent = text;
    line.append(part);
  }
  return line;
}

function drawMarks(drawn: uPlot, marks: Mark[], colour: string): void {
  const { ctx, bbox } = drawn;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = Math.round(drawn.valToPos(mark.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** A line of the size of a word. */
export function Spark({ label, series }: { label: string; series: number[][] }) {
  const highest = Math.max(1e-9, ...series.flat());
  const path = (values: number[]) => values.map((value, index) => `${index ? "L" : "M"}${((index / Math.max(1, values.length - 1)) * 100).toFixed(1)} ${(20 - (value / highest) * 19).toFixed(1)}`).join("");
  return (
    <svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label={label}>
      {series.map((values, index) => <path key={index} d={path(values)} />)}
    </svg>
  );
}

function spanOf(drawn: uPlot): number {
  return (drawn.scales["x"]?.max ?? 0) - (drawn.scales["x"]?.min ?? 0);
}

function spellTick(time: number, spanS: number): string {
  const date = new Date(time * 1000);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0;
  if (spanS > 2 * DAY_S || (isMidnight && spanS > DAY_S / 4)) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("sv-SE").slice(0, 5);
}

function colourOf(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

function faded(colour: string): string {
  return colour.replace(/^rgb\((.+)\)$/, "rgba($1, 0.1)");
}

/** Describe the lines in words for screen readers. */
function describe({ title, lines, unit, marks }: { title: string; lines: Line[]; unit: Unit; marks: Mark[] }): string {
  const told = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    const last = known.at(-1);
    return last === undefined ? `${line.label}: nothing` : `${line.label}: last ${unit.spell(last)}, highest ${unit.spell(Math.max(...known))}`;
  });
  return [title, told.join("; "), ...marks.map((mark) => mark.label)].join(". ");
}
