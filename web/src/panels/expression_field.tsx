// The field of an expression, with the offending word underlined.

import { useRef } from "preact/hooks";
import * as editor from "../store/editor";

export function ExpressionField({ label }: { label: string }) {
  const back = useRef<HTMLDivElement>(null);
  const draft = editor.draft.value!;
  const error = editor.markedError.value;
  const warnings = editor.preview.value?.warnings ?? [];
  return (
    <div class="field expression">
      <label class="field-label" for="expression">
        {label}
      </label>
      <div class="marked">
        {/* The same text behind the field: only its underline is seen. */}
        <div class="marks" aria-hidden="true" ref={back}>
          {error && (
            <>
              {error.before}
              <mark>{error.word}</mark>
              {error.after}
            </>
          )}
        </div>
        <textarea
          id="expression"
          rows={2}
          spellcheck={false}
          autocapitalize="off"
          value={draft.expression}
          placeholder='coffee (latte OR "flat white") NOT decaf'
          aria-invalid={error !== null}
          aria-describedby="expression-problem"
          onInput={(event) => editor.change({ expression: event.currentTarget.value })}
          onScroll={(event) => {
            if (back.current) back.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      <span id="expression-problem" class={error ? "problem" : "hint"} role={error ? "alert" : undefined}>
        {error
          ? `${error.word.trim() ? `“${error.word}”: ` : ""}${error.reason}`
          : "AND, OR, NOT, (…), “a phrase”, beginning*"}
      </span>
      {!error &&
        warnings.map((warning) => (
          <span key={warning} class="hint warning" role="status">
            {warning}
          </span>
        ))}
    </div>
  );
}
