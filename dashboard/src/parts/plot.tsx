// Lines over time, by uPlot.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { paletteVersion } from "../state/theme";
import { count, moment } from "../words";

export type Line = {
  label: string;
  values: (number | null)[];
  colour: 1 | 2 | 3 | 4;
  /** Of the previous period: drawn with dashes. */
  isBefore?: boolean;
};

const HEIGHT_PX = 200;

function colourOf(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

const DAY_S = 86_400;
const FEW_POINTS = 30;

function spellTick(time: number, spanS: number): string {
  const date = new Date(time * 1000);
  return spanS > 2 * DAY_S ? date.toLocaleDateString("sv-SE").slice(5) : date.toLocaleTimeString("sv-SE").slice(0, 5);
}

/** `spanS` is how far the plot reaches back from now, even where data is missing. */
export function Plot(props: { label: string; times: number[]; lines: Line[]; spell: (value: number) => string; spanS: number }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const spell = useRef(props.spell);
  spell.current = props.spell;
  const span = useRef(props.spanS);
  span.current = props.spanS;
  const shape = props.lines.map((line) => `${line.label}/${line.colour}/${line.isBefore ?? false}`).join();
  const palette = paletteVersion.value;
  const data = [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const holder = box.current;
    if (!holder) return;
    const axis = { stroke: colourOf("--muted"), grid: { stroke: colourOf("--edge"), width: 1 }, ticks: { show: false } };
    plot.current = new uPlot(
      {
        width: holder.clientWidth,
        height: HEIGHT_PX,
        cursor: { drag: { x: false, y: false } },
        scales: { x: { range: () => [Date.now() / 1000 - span.current, Date.now() / 1000] }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => spellTick(tick, span.current)) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (props.spell === count && tick % 1 ? "" : spell.current(tick))) }],
        series: [
          { label: "Time", value: (_: uPlot, time: number | null) => (time === null ? "–" : moment(new Date(time * 1000).toISOString())) },
          ...props.lines.map((line) => ({
            label: line.label,
            stroke: colourOf(`--plot-${line.colour}`),
            width: line.isBefore ? 1 : 2,
            ...(line.isBefore ? { dash: [4, 4] } : {}),
            points: { show: (drawn: uPlot) => drawn.data[0].length <= FEW_POINTS, size: 5 },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : spell.current(value)),
          })),
        ],
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
    };
  }, [shape, palette]);

  useEffect(() => plot.current?.setData(data), [data]);
  return <div class="plot" ref={box} role="img" aria-label={describe(props.label, props.lines, props.spell)} />;
}

/** Describe the lines in words for screen readers. */
function describe(label: string, lines: Line[], spell: (value: number) => string): string {
  const told = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    const last = known.at(-1);
    return last === undefined ? `${line.label}: nothing` : `${line.label}: last ${spell(last)}, highest ${spell(Math.max(...known))}`;
  });
  return `${label}. ${told.join("; ")}`;
}
