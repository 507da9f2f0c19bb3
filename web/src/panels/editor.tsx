// The editor of a subscription: where, which words, how strict, and what it would have matched.

import type { Region } from "../api/types";
import * as editor from "../store/editor";
import type { DrawKind } from "../map/drawing";
import { isPoint, meaningOf, rankingOf } from "../subscriptions/sliders";
import { Button, Field, Slider } from "../ui/controls";
import { CoordinateFields } from "./coordinate_fields";
import { ExpressionField } from "./expression_field";
import { PreviewList } from "./preview";

const KINDS: [DrawKind, string][] = [
  ["rectangle", "Rectangle"],
  ["circle", "Circle"],
  ["polygon", "Polygon"],
  ["point", "Place and reach"],
];

const DRAW_HINTS: Record<DrawKind, string> = {
  rectangle: "Drag from corner to corner on the map, or click one corner and then the opposite one.",
  circle: "Drag from the center to the edge on the map, or click the center and then the edge.",
  polygon: "Click each corner; click the first one again to finish.",
  point: "Click the place on the map.",
};

export function Editor() {
  const draft = editor.draft.value!;
  const drawing = editor.drawing.value;
  const submit = (event: Event) => {
    event.preventDefault();
    void editor.save();
  };
  return (
    <form class="editor" onSubmit={submit} aria-label="Subscription editor">
      <header>
        <h2>{draft.original ? `Change ${draft.original.id}` : "New subscription"}</h2>
        <Button label="Close" icon="close" kind="quiet" compact onClick={editor.close} />
      </header>
      <fieldset>
        <legend>Where</legend>
        <div class="kinds" role="group" aria-label="Draw">
          {KINDS.map(([kind, label]) => (
            <Button
              key={kind}
              label={label}
              icon={kind}
              pressed={drawing === kind}
              onClick={() => choose(kind)}
            />
          ))}
        </div>
        {drawing ? (
          <p class="hint" role="status">
            {DRAW_HINTS[drawing]} Escape stops.
          </p>
        ) : (
          draft.region && <p class="hint">{dragHint(draft.region)}</p>
        )}
        <CoordinateFields draft={draft} />
      </fieldset>
      <fieldset>
        <legend>What</legend>
        <div class="segmented" role="group" aria-label="Kind of matching">
          <Button
            label="All or nothing"
            pressed={!draft.ranked}
            onClick={() => editor.change({ ranked: false })}
          />
          <Button label="Ranked" pressed={draft.ranked} onClick={() => editor.change({ ranked: true })} />
        </div>
        {draft.ranked ? <RankedFields /> : <ExpressionField label="Words" />}
      </fieldset>
      <PreviewList />
      <Field label="Name" hint={draft.original ? undefined : "Left empty, it gets one."}>
        <input
          type="text"
          value={draft.id}
          maxLength={256}
          disabled={draft.original !== null}
          onInput={(event) => editor.change({ id: event.currentTarget.value })}
        />
      </Field>
      <label class="check">
        <input
          type="checkbox"
          checked={draft.initialEvent}
          onChange={(event) => editor.change({ initialEvent: event.currentTarget.checked })}
        />
        <span>Also deliver messages that are alive now</span>
      </label>
      {editor.otherProblem.value && (
        <p class="problem" role="alert">
          {editor.otherProblem.value}
        </p>
      )}
      <div class="panel-actions sticky">
        <Button
          label={draft.original ? "Save changes" : "Save"}
          kind="primary"
          submit
          disabled={!editor.request.value || editor.problem.value !== null || editor.saving.value}
        />
        <Button label="Cancel" onClick={editor.close} />
      </div>
    </form>
  );
}

function dragHint(region: Region): string {
  if (isPoint(region)) return "Drag it on the map to move it.";
  const handle = "areaType" in region && region.areaType === "CIRCLE" ? "the point on its edge" : "a corner";
  return `Drag it on the map to move it, or ${handle} to change its shape.`;
}

function choose(kind: DrawKind): void {
  if (editor.drawing.value === kind) editor.stopDrawing();
  else void editor.drawRegion(kind);
}

function RankedFields() {
  const draft = editor.draft.value!;
  const { sliders } = draft;
  const region = draft.region ?? { type: "Point", coordinates: [0, 0] };
  const meaning = meaningOf(rankingOf(sliders, region, draft.reachM));
  return (
    <>
      <Field label="Words that count">
        <input
          type="text"
          value={draft.keywords}
          placeholder="coffee, espresso"
          onInput={(event) => editor.change({ keywords: event.currentTarget.value })}
        />
      </Field>
      <Slider
        name={isPoint(region) ? "Near against relevant" : "Place against words"}
        from="near"
        to="relevant"
        value={sliders.relevant}
        onInput={(relevant) => editor.change({ sliders: { ...sliders, relevant } })}
      />
      <Slider
        name="Few against many"
        from="few"
        to="many"
        value={sliders.many}
        onInput={(many) => editor.change({ sliders: { ...sliders, many } })}
      />
      <p class="hint">{meaning}</p>
      <ExpressionField label="Condition (if you need one)" />
    </>
  );
}
