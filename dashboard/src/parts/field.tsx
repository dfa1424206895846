// A field with its name and a hint, associated for screen readers.
import { cloneElement, type ComponentChildren, type VNode } from "preact";
import { useId } from "preact/hooks";

export function Field(props: { label: ComponentChildren; hint?: string; children: VNode<any> }) {
  const id = useId();
  const hintId = `${id}-hint`;
  const described = props.hint === undefined ? {} : { "aria-describedby": hintId };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {cloneElement(props.children, { id, ...described })}
      {props.hint !== undefined && <span class="field-hint" id={hintId}>{props.hint}</span>}
    </div>
  );
}
