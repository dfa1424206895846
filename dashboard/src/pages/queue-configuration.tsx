// The options of a queue: change some, look at the difference, store it.
import { useState } from "preact/hooks";
import { act } from "../api/actions";
import { get, type Schemas } from "../api/client";
import { Card } from "../parts";
import { Failure } from "../parts/notes";
import { useLoad } from "../state/loading";
import { may } from "../state/session";
import { attempt } from "../state/toasts";
import { optionGroups, type OptionField } from "./queue-options";
import { Field } from "../parts/field";

type Options = Schemas["QueueOptions"];
type Value = Options[keyof Options];
type Draft = Partial<Record<keyof Options, Value>>;

const spell = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

export function QueueConfiguration({ name }: { name: string }) {
  const { data, error, reload } = useLoad((signal) => get("/api/v1/queues/{queue}/config", { names: { queue: name }, signal }), [name]);
  const [draft, setDraft] = useState<Draft>({});
  if (!data) return <Failure error={error} />;
  const changed = (Object.keys(draft) as (keyof Options)[]).filter((key) => !isSame(draft[key], data.options[key]));
  const store = () => attempt(async () => {
    const options = Object.fromEntries(changed.map((key) => [key, draft[key]]));
    await act("configureQueue", { body: { queue: name, options: options as never } });
    setDraft({});
    reload();
    return "Saved the configuration.";
  });
  const canEdit = may("configureQueue");
  return (
    <form class="stack" onSubmit={(event) => (event.preventDefault(), void store())}>
      <Failure error={error} />
      {optionGroups.map((group) => (
        <Card key={group.title} title={group.title}>
          <div class="form-grid">
            {group.fields.map((field) => (
              <Option key={field.name} field={field} value={field.name in draft ? draft[field.name] : data.options[field.name]} isFixed={!canEdit} onChange={(value) => setDraft({ ...draft, [field.name]: value })} />
            ))}
          </div>
        </Card>
      ))}
      {canEdit && (
        <Card title="Changes">
          {changed.length === 0 ? <p class="muted">No changes yet.</p> : (
            <div class="diff" role="status">
              {changed.map((key) => (
                <div key={key}>{key}: <del>{spell(data.options[key])}</del> → <ins>{spell(draft[key])}</ins></div>
              ))}
            </div>
          )}
          <div class="row end">
            <button type="button" disabled={!changed.length} onClick={() => setDraft({})}>Discard</button>
            <button class="primary" disabled={!changed.length}>Save changes</button>
          </div>
        </Card>
      )}
    </form>
  );
}

function Option(props: { field: OptionField; value: Value | undefined; isFixed: boolean; onChange: (value: Value) => void }) {
  const { field, value, isFixed } = props;
  return (
    <Field label={field.title} hint={field.hint}>{inputFor(field, value, isFixed, props.onChange)}</Field>
  );
}

function inputFor(field: OptionField, value: Value | undefined, isFixed: boolean, onChange: (value: Value) => void) {
  if (field.kind === "switch") {
    return <input type="checkbox" checked={value === true} disabled={isFixed} onChange={(event) => onChange(event.currentTarget.checked)} />;
  }
  if (field.kind === "choice") {
    return (
      <select value={String(value)} disabled={isFixed} onChange={(event) => onChange(event.currentTarget.value as Value)}>
        {field.choices?.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
      </select>
    );
  }
  if (field.kind === "json") return <JsonInput value={value} isFixed={isFixed} onChange={onChange} />;
  return <input type="number" value={String(value ?? 0)} disabled={isFixed} required onInput={(event) => Number.isFinite(event.currentTarget.valueAsNumber) && onChange(event.currentTarget.valueAsNumber)} />;
}

type JsonInputProps = { value: Value | undefined; isFixed: boolean; onChange: (value: Value) => void; id?: string; "aria-describedby"?: string };

function JsonInput({ value, isFixed, onChange, ...naming }: JsonInputProps) {
  const [text, setText] = useState(value ? JSON.stringify(value, null, 2) : "");
  const [isBad, setBad] = useState(false);
  const take = (typed: string) => {
    setText(typed);
    try {
      onChange((typed.trim() ? JSON.parse(typed) : null) as Value);
      setBad(false);
    } catch {
      setBad(true);
    }
  };
  return <textarea {...naming} value={text} disabled={isFixed} spellcheck={false} aria-invalid={isBad} onInput={(event) => take(event.currentTarget.value)} />;
}
