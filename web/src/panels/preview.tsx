// Which of the last messages a subscription would have got, with scores split into place and words.

import type { PreviewedMessage } from "../api/types";
import * as editor from "../store/editor";
import { map } from "../store/view";
import { placeOf, textOf } from "../stream/entries";
import { count, decimal, distance, percent, plural } from "../ui/formats";

const SHOWN = 40;

export function PreviewList() {
  const preview = editor.preview.value;
  if (!preview) {
    return (
      <section class="preview" aria-label="Preview">
        <p class="hint">
          {editor.request.value
            ? "Looking at the last messages…"
            : "With a place and words, a preview shows here what would have come."}
        </p>
      </section>
    );
  }
  const ordered = order(preview.messages);
  const missed = ordered.filter((one) => !one.matches && isClose(one)).slice(0, 5);
  const matched = ordered.filter((one) => one.matches);
  return (
    <section class={`preview${editor.previewing.value ? " stale" : ""}`} aria-label="Preview">
      <h3>
        <span role="status">
          {count(preview.matched)} of the last {plural(preview.messages.length, "message")} would have
          come
        </span>
      </h3>
      <div class="preview-list">
        <ul>
          {matched.slice(0, SHOWN).map((one) => (
            <Previewed key={one.id} message={one} />
          ))}
        </ul>
        {matched.length > SHOWN && <p class="hint">and {count(matched.length - SHOWN)} more, on the map</p>}
        {missed.length > 0 && (
          <>
            <h4>Just missed</h4>
            <ul>
              {missed.map((one) => (
                <Previewed key={one.id} message={one} />
              ))}
            </ul>
          </>
        )}
      </div>
    </section>
  );
}

function Previewed({ message }: { message: PreviewedMessage }) {
  const place = placeOf(message.message);
  return (
    <li class={message.matches ? "" : "missed"}>
      <button
        type="button"
        class="previewed"
        title={message.reasons.join("\n")}
        onMouseEnter={() => map.value?.highlight(place)}
        onMouseLeave={() => map.value?.highlight(null)}
        onFocus={() => map.value?.highlight(place)}
        onBlur={() => map.value?.highlight(null)}
        onClick={() => place && map.value?.flyTo(place)}
      >
        <span class="message-text">{textOf(message.message)}</span>
        {message.parts && message.score !== undefined && <ScoreBar message={message} />}
      </button>
    </li>
  );
}

/** The score as a bar of two parts, and the threshold as a line across it. */
function ScoreBar({ message }: { message: PreviewedMessage }) {
  const { words, place } = message.parts!;
  const label =
    `score ${decimal(message.score!)}: place ${decimal(place)}, words ${decimal(words)}` +
    (message.distanceM === undefined ? "" : `, ${distance(message.distanceM)} away`);
  return (
    <span class="score">
      <span class="score-bar" role="img" aria-label={label}>
        <span class="score-place" style={{ width: percentage(place) }} />
        <span class="score-words" style={{ width: percentage(words) }} />
        <span class="score-threshold" style={{ left: percentage(message.threshold ?? 0) }} />
      </span>
      <span class="score-number" aria-hidden="true">
        {percent(message.score!)}
      </span>
    </span>
  );
}

/** The best first; without scores, the newest first. */
export function order(messages: readonly PreviewedMessage[]): PreviewedMessage[] {
  const newestFirst = messages.toReversed();
  return newestFirst.sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
}

function isClose(message: PreviewedMessage): boolean {
  return message.margin !== undefined && message.margin > -0.15;
}

function percentage(share: number): string {
  return `${Math.max(0, Math.min(1, share)) * 100}%`;
}
