// Publishing: a place on the map, a text, whom it would reach, and whom it has reached.

import { useLayoutEffect, useState } from "preact/hooks";
import { parsePlace, placeText } from "../geometry/coordinates";
import * as store from "../store/publishing";
import { roles } from "../store/session";
import { Button, Empty, Field } from "../ui/controls";
import { count, plural } from "../ui/formats";

const LIVES: [number, string][] = [
  [0, "only now"],
  [600, "10 minutes"],
  [3_600, "1 hour"],
  [86_400, "1 day"],
];

export function PublishPanel() {
  if (!roles.value.has("publish")) return <Empty>This key may not publish.</Empty>;
  const submit = (event: Event) => {
    event.preventDefault();
    void store.publish();
  };
  return (
    <>
      <form class="publish" onSubmit={submit} aria-label="Publish a message">
        <p class="hint">Click on the map where the message is, and write it.</p>
        <PlaceField />
        <Field label="Message">
          <textarea
            rows={3}
            value={store.text.value}
            placeholder="Fresh coffee at the old market"
            onInput={(event) => {
              store.text.value = event.currentTarget.value;
            }}
          />
        </Field>
        <Field label="Lives" hint="As long as it lives, it meets subscriptions that come or move by.">
          <select
            value={String(store.ttlS.value)}
            onChange={(event) => {
              store.ttlS.value = Number(event.currentTarget.value);
            }}
          >
            {LIVES.map(([seconds, label]) => (
              <option key={seconds} value={String(seconds)}>
                {label}
              </option>
            ))}
          </select>
        </Field>
        <p class="reach" role="status">
          <ExpectedReach />
        </p>
        <div class="panel-actions">
          <Button
            label="Send"
            icon="send"
            kind="primary"
            submit
            disabled={!store.place.value || !store.text.value.trim() || store.sending.value}
          />
        </div>
      </form>
      {store.sent.value.length > 0 && (
        <section aria-label="Sent messages">
          <h3>Sent</h3>
          <ul class="sent">
            {store.sent.value.map((one) => (
              <SentItem key={one.id} sent={one} />
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function PlaceField() {
  const place = store.place.value;
  const [typed, setTyped] = useState(() => (place ? placeText(...place) : ""));
  const valid = parsePlace(typed);
  useLayoutEffect(() => {
    if (place && document.activeElement?.id !== "publish-place") setTyped(placeText(...place));
  }, [place]);
  return (
    <Field label="Place (lat, lon)">
      <input
        id="publish-place"
        type="text"
        placeholder="Click on the map, or type 52.52, 13.40"
        value={typed}
        aria-invalid={typed !== "" && !valid}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          const found = parsePlace(event.currentTarget.value);
          store.place.value = found ? [found.lon, found.lat] : null;
        }}
      />
    </Field>
  );
}

function ExpectedReach() {
  const problem = store.dryRunProblem.value;
  const reach = store.expected.value;
  if (problem) return <span class="problem">{problem}</span>;
  if (!reach) return <>Whom it would reach shows here before you send it.</>;
  if (reach.subscriptions === 0) return <>It would reach nobody.</>;
  return (
    <>
      It would reach <strong>{plural(reach.subscriptions, "subscription")}</strong>
      {reach.subscribers !== undefined && <> of {plural(reach.subscribers, "subscriber")}</>}.
    </>
  );
}

function SentItem({ sent }: { sent: store.Sent }) {
  return (
    <li>
      <span class="message-text">{sent.text}</span>
      <small>
        {sent.reach
          ? `reached ${plural(sent.reach.subscriptions, "subscription")}`
          : "on disk; being matched"}
        {sent.reach?.subscribers !== undefined && ` of ${plural(sent.reach.subscribers, "subscriber")}`}
        {sent.own && sent.own.length > 0 && (
          <>
            , of yours: <b>{sent.own.slice(0, 5).join(", ")}</b>
            {sent.own.length > 5 && ` and ${count(sent.own.length - 5)} more`}
          </>
        )}
      </small>
    </li>
  );
}
