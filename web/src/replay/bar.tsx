// The replay bar: the history of the log as small columns, a time to drag, and speeds.

import { useEffect, useState } from "preact/hooks";
import { fail } from "../store/notices";
import * as store from "../store/replay";
import { Button } from "../ui/controls";
import { count, fullTime, plural, time } from "../ui/formats";
import { SPEEDS } from "./clock";

const STEPS = 1_000;

export function ReplayBar() {
  const [open, setOpen] = useState(false);
  const replay = store.replay.value;
  const toggle = () => {
    if (open && replay) store.leave();
    if (!open) void store.loadHistory().catch(fail);
    setOpen(!open);
  };
  return (
    <section class={`replay${open ? " open" : ""}`} aria-label="Replay">
      <Button
        label={open ? "Back to live" : "Replay"}
        icon={open ? "close" : "history"}
        kind={replay ? "primary" : "plain"}
        onClick={toggle}
      />
      {open && <Timeline />}
    </section>
  );
}

function Timeline() {
  const history = store.history.value;
  const replay = store.replay.value;
  const [dragging, setDragging] = useState<number | null>(null);
  useEffect(() => setDragging(null), [history]);
  if (!history) return <p class="hint">Reading the history…</p>;
  const [from, to] = [Date.parse(history.from), Date.parse(history.to)];
  const at = replay?.at ?? to;
  const value = dragging ?? (to > from ? Math.round(((at - from) / (to - from)) * STEPS) : STEPS);
  const shownTime = dragging === null ? at : from + (dragging / STEPS) * (to - from);
  const most = Math.max(1, ...history.buckets.map((bucket) => bucket.messages));
  return (
    <div class="timeline">
      <Button
        label={replay?.playing ? "Pause replay" : "Play"}
        icon={replay?.playing ? "pause" : "play"}
        compact
        kind="primary"
        onClick={store.togglePlaying}
      />
      <div class="track">
        <svg class="columns" viewBox={`0 0 ${history.buckets.length || 1} 100`} preserveAspectRatio="none" aria-hidden="true">
          {history.buckets.map((bucket, index) => {
            const height = bucket.messages > 0 ? 6 + (94 * bucket.messages) / most : 0;
            return <rect key={bucket.from} x={index + 0.1} width={0.8} y={100 - height} height={height} />;
          })}
        </svg>
        <input
          type="range"
          min={0}
          max={STEPS}
          value={value}
          aria-label="Time of the replay"
          aria-valuetext={fullTime(shownTime)}
          onInput={(event) => setDragging(Number(event.currentTarget.value))}
          onChange={(event) => {
            store.seek(Number(event.currentTarget.value) / STEPS);
            setDragging(null);
          }}
        />
      </div>
      <div class="replay-facts">
        <time dateTime={new Date(shownTime).toISOString()}>{time(shownTime)}</time>
        <small role="status">
          {replay
            ? `${plural(replay.delivered, "event")} delivered`
            : `${count(history.buckets.reduce((sum, one) => sum + one.messages, 0))} messages kept`}
        </small>
      </div>
      <label class="speed">
        <span class="visually-hidden">Speed</span>
        <select
          value={String(replay?.speed ?? 60)}
          onChange={(event) => store.setSpeed(Number(event.currentTarget.value))}
        >
          {SPEEDS.map((speed) => (
            <option key={speed} value={String(speed)}>
              {count(speed)}×
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}
