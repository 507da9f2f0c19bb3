// The panel of subscriptions: those in view, one of them in detail, or the editor.

import { useRef } from "preact/hooks";
import type { Subscription } from "../api/types";
import * as editor from "../store/editor";
import * as feed from "../store/feed";
import { fail, notify } from "../store/notices";
import { client, roles, session } from "../store/session";
import * as store from "../store/subscriptions";
import { wordsOf } from "../subscriptions/draft";
import { exportGeoJson, readImportFile } from "../subscriptions/geojson";
import { Button, Empty } from "../ui/controls";
import { count, plural } from "../ui/formats";
import { Swatch } from "../ui/swatch";
import { Editor } from "./editor";
import { SubscriptionDetails } from "./subscription_details";

export function SubscriptionsPanel() {
  if (!roles.value.has("subscribe")) {
    return <Empty>This key may not subscribe.</Empty>;
  }
  if (editor.draft.value) return <Editor />;
  return (
    <>
      <div class="panel-actions">
        <Button label="New subscription" icon="plus" kind="primary" onClick={() => editor.begin()} />
        <ImportButton />
        <Button label="Export as GeoJSON" icon="download" compact onClick={() => void exportAll()} />
      </div>
      {store.selected.value && <SubscriptionDetails subscription={store.selected.value} />}
      <ListHead />
      <ul class="subscriptions" aria-label="Subscriptions in view">
        {store.listed.value.slice(0, 200).map((one) => (
          <Row key={one.id} subscription={one} />
        ))}
      </ul>
      {store.loaded.value && store.total.value === 0 && (
        <Empty>
          Nothing listens in this part of the world. Make a subscription: words, and a region that
          you draw on the map.
        </Empty>
      )}
    </>
  );
}

function ListHead() {
  const [total, listed] = [store.total.value, store.listed.value.length];
  if (!store.loaded.value) return <Empty>Loading…</Empty>;
  const many = total > store.MAX_LISTED;
  return (
    <h2 class="list-head">
      <span>{plural(total, "subscription")} in view</span>
      {many && <small>Zoom in to see each of them.</small>}
      {!many && listed > 200 && <small>The first 200 are listed.</small>}
    </h2>
  );
}

function Row({ subscription }: { subscription: Subscription }) {
  const { id } = subscription;
  const detail = subscription.config.subscriptionDetail;
  const counts = feed.counts.value.get(id);
  const selected = store.selectedId.value === id;
  const paused = subscription.status === "INACTIVE";
  return (
    <li>
      <button
        type="button"
        class={`subscription${selected ? " selected" : ""}${paused ? " paused" : ""}`}
        aria-pressed={selected}
        onClick={() => store.select(selected ? null : id)}
      >
        <Swatch id={id} />
        <span class="subscription-text">
          <strong>{id}</strong>
          <span class="words">{wordsOf(detail)}</span>
        </span>
        <span class="badges">
          {paused && <span class="badge">paused</span>}
          {detail.ranking && <span class="badge">ranked</span>}
          {feed.muted.value.has(id) && <span class="badge">muted</span>}
          {counts && <span class="count">{count(counts.plus)}</span>}
        </span>
      </button>
    </li>
  );
}

function ImportButton() {
  const input = useRef<HTMLInputElement>(null);
  const read = async () => {
    const file = input.current?.files?.[0];
    if (!file) return;
    try {
      const { body, type } = readImportFile(await file.text());
      const done = await client.import(body, type, true);
      const refused = done.rejected[0];
      notify(
        `${plural(done.accepted, "subscription")} imported` +
          (refused
            ? `, ${count(done.rejectedCount)} refused; the first is number ${refused.line}: ${refused.field} ${refused.reason}.`
            : "."),
        refused ? { kind: "error" } : {},
      );
      await store.refresh();
    } catch (error) {
      fail(error);
    }
    input.current!.value = "";
  };
  return (
    <>
      <input
        ref={input}
        type="file"
        class="visually-hidden"
        accept=".json,.geojson,.ndjson,.jsonl,application/geo+json"
        aria-label="File with subscriptions"
        tabIndex={-1}
        onChange={() => void read()}
      />
      <Button label="Import GeoJSON" icon="upload" compact onClick={() => input.current?.click()} />
    </>
  );
}

/** All subscriptions of the key, page by page, as a file. */
async function exportAll(): Promise<void> {
  try {
    const found: Subscription[] = [];
    let after: string | undefined;
    do {
      const page = await client.subscriptions({ after, limit: 1_000 });
      found.push(...page.subscriptions.filter((one) => one.status !== ("DELETED" as string)));
      after = page.next;
    } while (after !== undefined);
    const text = JSON.stringify(exportGeoJson(found));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/geo+json" }));
    link.download = `nearcast-${session.value?.me.tenant ?? "subscriptions"}.geojson`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    notify(`${plural(found.length, "subscription")} exported.`);
  } catch (error) {
    fail(error);
  }
}
