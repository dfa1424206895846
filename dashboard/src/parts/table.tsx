// A table of rows that fit on a page.
import type { ComponentChildren } from "preact";

export type Column<Row> = {
  title: string;
  cell: (row: Row) => ComponentChildren;
  isNumber?: boolean;
  isWide?: boolean;
};

export function Table<Row>(props: {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string | number;
}) {
  const look = ({ isNumber, isWide }: Column<Row>) => (isNumber ? "number" : isWide ? "wrap" : undefined);
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={props.caption}>
      <table aria-label={props.caption}>
        <thead><tr>{props.columns.map((column) => <th key={column.title} scope="col" class={look(column)}>{column.title}</th>)}</tr></thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.keyOf(row)}>
              {props.columns.map((column) => <td key={column.title} class={look(column)}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
