// A table of rows that fit on a page. On a phone each row becomes a block (parts.css).
import type { ComponentChildren } from "preact";
import { place, spellQuery } from "../state/place";

export type Column<Row> = {
  title: string;
  cell: (row: Row) => ComponentChildren;
  isNumber?: boolean;
  isWide?: boolean;
  /** Left out where the table is narrow. */
  isMinor?: boolean;
  /** What rows are sorted by if this column is chosen; the largest come first where it is a number. */
  by?: (row: Row) => number | string | null | undefined;
};

export function Table<Row>(props: {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string | number;
}) {
  const look = ({ isNumber, isWide, isMinor }: Column<Row>) => [isNumber ? "number" : isWide && "wrap", isMinor && "minor"].filter(Boolean).join(" ") || undefined;
  const { title: chosen, isAscending } = chosenOrder();
  const by = props.columns.find((column) => column.title === chosen)?.by;
  const rows = by ? sorted(props.rows, by, isAscending) : props.rows;
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={props.caption}>
      <table aria-label={props.caption}>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th key={column.title} scope="col" class={look(column)} aria-sort={column.by && column.title === chosen ? (isAscending ? "ascending" : "descending") : undefined}>
                {column.by ? <SortLink column={column} /> : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.length === 0 && <tr><td class="muted" colSpan={props.columns.length}>None.</td></tr>}
          {rows.map((row) => (
            <tr key={props.keyOf(row)}>
              {props.columns.map((column) => <td key={column.title} data-title={column.title} class={look(column)}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The order that the address asks for: a column, with a minus before it the largest first. */
function chosenOrder(): { title: string; isAscending: boolean } {
  const spelled = place.value.query.get("order") ?? "";
  return { title: spelled.replace(/^-/, ""), isAscending: !spelled.startsWith("-") };
}

/** The first click puts the largest numbers on top, the second turns around, the third is as before. */
function SortLink<Row>({ column }: { column: Column<Row> }) {
  const { title, isAscending } = chosenOrder();
  const isFirst = title !== column.title;
  const isLast = !isFirst && isAscending === Boolean(column.isNumber);
  const wantsAscending = isFirst ? !column.isNumber : !isAscending;
  const order = isLast ? null : `${wantsAscending ? "" : "-"}${column.title}`;
  return <a href={location.pathname + spellQuery({ order })}>{column.title}</a>;
}

function sorted<Row>(rows: Row[], by: NonNullable<Column<Row>["by"]>, isAscending: boolean): Row[] {
  const compare = (a: number | string, b: number | string) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return [...rows].sort((a, b) => {
    const [left, right] = [by(a), by(b)];
    if (left === null || left === undefined) return right === null || right === undefined ? 0 : 1;
    if (right === null || right === undefined) return -1;
    return isAscending ? compare(left, right) : compare(right, left);
  });
}
