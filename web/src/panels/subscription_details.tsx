// One subscription: pause, change, move, delete.

import { useState } from "preact/hooks";
import type { Subscription } from "../api/types";
import { parsePlace, placeText } from "../geometry/coordinates";
import { boundsOf, centerOf, reachOf, shapeOf, translated } from "../geometry/regions";
import * as editor from "../store/editor";
import * as feed from "../store/feed";
import { fail } from "../store/notices";
import * as store from "../store/subscriptions";
import { map } from "../store/view";
import { kindOf, wordsOf } from "../subscriptions/draft";
import { Button } from "../ui/controls";
import { count, distance, fullTime } from "../ui/formats";
import { Swatch } from "../ui/swatch";

export function SubscriptionDetails({ subscription }: { subscription: Subscription }) {
  const [confirming, setConfirming] = useState(false);
  const { id, status } = subscription;
  const detail = subscription.config.subscriptionDetail;
  const paused = status === "INACTIVE";
  const counts = feed.counts.value.get(id);
  const muted = feed.muted.value.has(id);
  const changing = store.changing.value === id;
  const run = (task: Promise<void>) => void task.catch(fail);
  return (
    <section class="details" aria-label={`Subscription ${id}`}>
      <header>
        <Swatch id={id} />
        <h2>{id}</h2>
        <Button label="Close" icon="close" kind="quiet" compact onClick={() => store.select(null)} />
      </header>
      <p class="words">{wordsOf(detail)}</p>
      <dl>
        <dt>For</dt>
        <dd>{detail.subscriber ?? "default"}</dd>
        <dt>Where</dt>
        <dd>{whereText(subscription)}</dd>
        <dt>Since</dt>
        <dd>{fullTime(Date.parse(subscription.startsAt))}</dd>
        <dt>Matches</dt>
        <dd>
          +{count(counts?.plus ?? 0)} −{count(counts?.minus ?? 0)} since this page was opened
        </dd>
      </dl>
      <div class="panel-actions">
        <Button label="Show" icon="zoom" onClick={() => map.value?.fit(shapeOf(detail.region))} />
        <Button
          label={paused ? "Resume" : "Pause"}
          icon={paused ? "play" : "pause"}
          disabled={changing}
          onClick={() => run(store.setPaused(subscription, !paused))}
        />
        <Button label="Change" icon="edit" disabled={changing} onClick={() => editor.edit(subscription)} />
        <Button
          label={muted ? "Unmute in feed" : "Mute in feed"}
          icon="mute"
          compact
          pressed={muted}
          onClick={() => feed.toggleMuted(id)}
        />
        <Button label="Delete" icon="trash" compact kind="danger" onClick={() => setConfirming(true)} />
      </div>
      {confirming && (
        <div class="confirm" role="alertdialog" aria-label={`Delete ${id}?`}>
          <span>Delete it for good?</span>
          <Button label="Delete" kind="danger" onClick={() => run(store.remove(subscription))} />
          <Button label="Keep" onClick={() => setConfirming(false)} />
        </div>
      )}
      <MoveForm key={id} subscription={subscription} />
    </section>
  );
}

/** Moving without a mouse: the new center is typed. */
function MoveForm({ subscription }: { subscription: Subscription }) {
  const { region } = subscription.config.subscriptionDetail;
  const [lon, lat] = centerOf(region);
  const [text, setText] = useState<string | null>(null);
  const place = text === null ? null : parsePlace(text);
  const move = (event: Event) => {
    event.preventDefault();
    if (!place) return;
    setText(null);
    const moved = translated(region, place.lon - lon, place.lat - lat);
    void store.move(subscription, moved).catch(fail);
  };
  return (
    <form class="inline" onSubmit={move}>
      <label>
        <span class="field-label">Move: drag it on the map, or type its new center</span>
        <input
          type="text"
          value={text ?? placeText(lon, lat)}
          aria-invalid={text !== null && place === null}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <Button label="Move" submit disabled={place === null} />
    </form>
  );
}

function whereText(subscription: Subscription): string {
  const detail = subscription.config.subscriptionDetail;
  const { region } = detail;
  const [lon, lat] = centerOf(region);
  const reach = reachOf(detail);
  if (reach !== null) return `near ${placeText(lon, lat, 2)}, up to ${distance(reach)}`;
  if ("areaType" in region && region.areaType === "CIRCLE") {
    return `${distance(region.radius)} around ${placeText(lon, lat, 2)}`;
  }
  const { west, south, east, north } = boundsOf(shapeOf(region));
  const corners = `${placeText(west, south, 1)} to ${placeText(east, north, 1)}`;
  return kindOf(region) === "rectangle" ? `rectangle, ${corners}` : `polygon within ${corners}`;
}
