// The feed: what arrives, why it matched, and what is missing.

import { computed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { describe } from "../api/problems";
import type { Explained } from "../api/types";
import * as feed from "../store/feed";
import { traceMessage } from "../store/operations";
import { client, roles, session, watch } from "../store/session";
import * as subscriptions from "../store/subscriptions";
import { panel, selectedEntry, selectEntry } from "../store/view";
import type { Entry, GapEntry, LifecycleEntry, MatchEntry } from "../stream/entries";
import { textOf } from "../stream/entries";
import { Button, Empty } from "../ui/controls";
import { count, decimal, fullTime, plural, time } from "../ui/formats";
import { Swatch } from "../ui/swatch";

const PAGE = 80;

/** Subscribers that this page has come across; any other name can be typed. */
const knownSubscribers = computed(() => {
  const names = new Set<string>();
  for (const { config } of subscriptions.listed.value) {
    names.add(config.subscriptionDetail.subscriber ?? "default");
  }
  for (const entry of feed.entries.value) {
    if (entry.kind !== "match") continue;
    for (const { subscriber } of entry.matches) if (subscriber !== undefined) names.add(subscriber);
  }
  return [...names].sort((a, b) => a.localeCompare(b));
});

export function FeedPanel() {
  const [shown, setShown] = useState(PAGE);
  if (!roles.value.has("subscribe")) return <Empty>This key may not subscribe.</Empty>;
  const visible = feed.visible.value;
  const hidden = feed.entries.value.length - visible.length;
  return (
    <>
      <FeedControls>
        <FeedOf />
      </FeedControls>
      <ol class="feed" aria-label="Events, newest first">
        {visible.slice(0, shown).map((entry) => (
          <Item key={entry.id} entry={entry} />
        ))}
      </ol>
      {visible.length > shown && (
        <Button label={`Show ${count(Math.min(PAGE, visible.length - shown))} more`} onClick={() => setShown(shown + PAGE)} />
      )}
      {visible.length === 0 && <EmptyFeed hidden={hidden} />}
    </>
  );
}

/** Whose events these are, and the choice of another subscriber if the key may read them. */
function FeedOf() {
  const { me, whose } = session.value!;
  const [name, setName] = useState(whose ?? "");
  useEffect(() => setName(whose ?? ""), [whose]);
  if (me.subscriber !== null) {
    return (
      <p class="feed-of">
        Events of <b>{me.subscriber}</b>
      </p>
    );
  }
  const names = knownSubscribers.value;
  const show = (given: string) => watch(given.trim() || null);
  return (
    <label class="feed-of">
      <span>Events of</span>
      <input
        type="search"
        list="subscribers"
        autocomplete="off"
        maxLength={256}
        placeholder="all subscribers"
        value={name}
        onInput={(event) => {
          const given = event.currentTarget.value;
          setName(given);
          if (given === "" || names.includes(given)) show(given);
        }}
        onChange={(event) => show(event.currentTarget.value)}
      />
      <datalist id="subscribers">
        {names.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </label>
  );
}

function FeedControls({ children }: { children: ComponentChildren }) {
  const { filterText, filterSign, muted, paused, held } = feed;
  return (
    <div class="feed-controls">
      {children}
      <div class="row">
        <input
          id="feed-filter"
          type="search"
          placeholder="Filter by word or subscription"
          aria-label="Filter the feed"
          value={filterText.value}
          onInput={(event) => {
            filterText.value = event.currentTarget.value;
          }}
        />
        <Button
          label={paused.value ? "Resume feed" : "Pause feed"}
          icon={paused.value ? "play" : "pause"}
          compact
          pressed={paused.value}
          onClick={() => (paused.value ? feed.resume() : feed.pause())}
        />
      </div>
      <div class="row">
        <div class="segmented small" role="group" aria-label="Which events">
          {(["all", "plus", "minus"] as const).map((sign) => (
            <Button
              key={sign}
              label={{ all: "All", plus: "+ new", minus: "− gone" }[sign]}
              pressed={filterSign.value === sign}
              onClick={() => {
                filterSign.value = sign;
              }}
            />
          ))}
        </div>
        {muted.value.size > 0 && (
          <Button
            label={`Unmute ${count(muted.value.size)}`}
            icon="mute"
            kind="quiet"
            onClick={() => {
              muted.value = new Set();
            }}
          />
        )}
      </div>
      {paused.value && (
        <p class="paused-note" role="status">
          Paused. {plural(held.value, "event waits", "events wait")};{" "}
          {held.value > feed.MAX_HELD
            ? `the last ${count(feed.MAX_HELD)} are kept here, and the replay has all of them.`
            : "none is lost."}
        </p>
      )}
    </div>
  );
}

function EmptyFeed({ hidden }: { hidden: number }) {
  const { me, whose } = session.value!;
  if (hidden > 0) return <Empty>{plural(hidden, "event is", "events are")} hidden by the filter.</Empty>;
  return (
    <>
      <Empty>
        No message has matched a subscription of {whose === null ? "any subscriber" : <b>{whose}</b>}{" "}
        since you first opened this feed. Matches appear here the moment that they happen; the replay
        below the map shows those from before.
      </Empty>
      {whose !== null && me.subscriber === null && (
        <Button label="Show all subscribers" onClick={() => watch(null)} />
      )}
    </>
  );
}

function Item({ entry }: { entry: Entry }) {
  if (entry.kind === "gap") return <GapItem entry={entry} />;
  if (entry.kind === "lifecycle") return <LifecycleItem entry={entry} />;
  return <MatchItem entry={entry} />;
}

function MatchItem({ entry }: { entry: MatchEntry }) {
  const element = useRef<HTMLLIElement>(null);
  const open = selectedEntry.value?.id === entry.id;
  const matches = entry.matches.length + (entry.omitted ?? 0);
  useEffect(() => {
    if (open) element.current?.scrollIntoView({ block: "nearest" });
  }, [open]);
  return (
    <li ref={element} class={`entry${open ? " open" : ""}`} data-id={entry.id}>
      <button
        type="button"
        class="entry-head"
        aria-expanded={open}
        onClick={() => selectEntry(open ? null : entry)}
      >
        <span class="message-text">{textOf(entry.message)}</span>
        <time dateTime={new Date(entry.time).toISOString()} title={fullTime(entry.time)}>
          {time(entry.time)}
        </time>
      </button>
      <ul class="matches">
        {entry.matches.slice(0, 6).map((match) => (
          <li key={match.subscriptionId} class={match.sign > 0 ? "plus" : "minus"}>
            <Swatch id={match.subscriptionId} sign={match.sign} />
            <span class="sign" aria-label={match.sign > 0 ? "matches" : "no longer matches"} role="img">
              {match.sign > 0 ? "+" : "−"}
            </span>
            <span class="match-name">{match.subscriptionId}</span>
            <Owner name={match.subscriber} />
            {match.score !== undefined && <span class="match-score">{decimal(match.score)}</span>}
          </li>
        ))}
        {matches > 6 && <li>and {count(matches - 6)} more</li>}
      </ul>
      {open && <Why entry={entry} />}
    </li>
  );
}

/** Whose subscription it is, where that is not the same for all. */
function Owner({ name }: { name: string | undefined }) {
  return name === undefined ? null : <span class="owner">for {name}</span>;
}

/** Why it matched, asked of the server when someone wants to know. */
function Why({ entry }: { entry: MatchEntry }) {
  const [explained, setExplained] = useState<Explained | string | null>(null);
  useEffect(() => {
    let gone = false;
    client.explain(entry.id, session.value?.whose ?? null).then(
      (answer) => gone || setExplained(answer),
      (error: unknown) => gone || setExplained(describe(error)),
    );
    return () => {
      gone = true;
    };
  }, [entry.id]);
  const first = entry.matches[0]?.subscriptionId;
  return (
    <div class="why">
      {explained === null && <p class="hint">Asking why…</p>}
      {typeof explained === "string" && <p class="problem">{explained}</p>}
      {explained !== null &&
        typeof explained !== "string" &&
        explained.explanations.map((one) => (
          <div key={one.subscriptionId}>
            <h4>{one.subscriptionId}</h4>
            <ul>
              {one.reasons.map((reason) => (
                <li key={reason}>{reason}</li>
              ))}
            </ul>
          </div>
        ))}
      <div class="panel-actions">
        {first !== undefined && (
          <Button label="Subscription" icon="layers" onClick={() => openSubscription(first)} />
        )}
        {first !== undefined && (
          <Button
            label={feed.muted.value.has(first) ? "Unmute" : "Mute"}
            icon="mute"
            onClick={() => feed.toggleMuted(first)}
          />
        )}
        {roles.value.has("admin") && (
          <Button label="How found" icon="chart" onClick={() => void traceMessage(entry.id)} />
        )}
      </div>
    </div>
  );
}

function openSubscription(id: string): void {
  panel.value = "subscriptions";
  subscriptions.select(id);
}

const HAPPENED = { started: "listens now", updated: "was changed", ended: "has ended" } as const;

function LifecycleItem({ entry }: { entry: LifecycleEntry }) {
  const reason = entry.reason?.replaceAll("_", " ").toLowerCase();
  return (
    <li class="entry lifecycle">
      <Swatch id={entry.subscriptionId} />
      <span>
        <b>{entry.subscriptionId}</b> <Owner name={entry.subscriber} /> {HAPPENED[entry.what] ?? entry.what}
        {reason && ` (${reason})`}
      </span>
      <time dateTime={new Date(entry.time).toISOString()}>{time(entry.time)}</time>
    </li>
  );
}

function GapItem({ entry }: { entry: GapEntry }) {
  const lost =
    entry.lost === null ? "An unknown number of events is" : plural(entry.lost, "event is", "events are");
  const why = entry.id.startsWith("held:")
    ? "too many came during the pause; the replay has them"
    : "the server no longer keeps them";
  return (
    <li class="entry gap" data-gap={entry.id}>
      <strong>Gap</strong>
      <span>
        {lost} missing here: {why}.
      </span>
    </li>
  );
}
