// Operations: live figures of the server, and how the index found a message.

import { useEffect, useState } from "preact/hooks";
import type { Trace } from "../api/types";
import { Chart } from "../charts/chart";
import * as store from "../store/operations";
import { roles } from "../store/session";
import { textOf } from "../stream/entries";
import { Button, Empty } from "../ui/controls";
import { count, decimal, duration, plural, short } from "../ui/formats";

export function OperationsPanel() {
  useEffect(() => store.watchMetrics(), []);
  const list = store.figures.value;
  const last = list.at(-1);
  const times = list.map((one) => one.time);
  const of = <K extends keyof store.Figures>(name: K) => list.map((one) => one[name]);
  return (
    <>
      <TraceSection />
      {last ? (
        <dl class="figures">
          <Figure name="subscriptions" value={short(last.subscriptions)} />
          <Figure name="segments" value={count(last.segments)} />
          <Figure name="streams" value={count(last.streams)} />
          <Figure name="pending" value={short(last.pending)} />
          <Figure name="lost" value={short(last.lost)} warns={last.lost > 0} />
          <Figure name="log" value={`${decimal(last.logBytes / 1e6, 1)} MB`} />
        </dl>
      ) : (
        <Empty>Reading the figures of the server…</Empty>
      )}
      <Chart
        title="Messages a second"
        times={times}
        series={[{ label: "", values: of("messagesPerS"), color: 0 }]}
        format={rateText}
      />
      <Chart
        title="Matches a second"
        times={times}
        series={[{ label: "", values: of("matchesPerS"), color: 0 }]}
        format={rateText}
      />
      <Chart
        title="Arrival to delivery"
        times={times}
        series={[
          { label: "p50", values: of("p50"), color: 0 },
          { label: "p99", values: of("p99"), color: 1 },
        ]}
        format={duration}
      />
      <Chart
        title="Subscriptions examined a message"
        times={times}
        series={[{ label: "", values: of("examined"), color: 0 }]}
        format={(value) => decimal(value, value < 10 ? 1 : 0)}
      />
      <Chart
        title="Pending and lost events"
        times={times}
        series={[
          { label: "pending", values: of("pending"), color: 0 },
          { label: "lost", values: of("lost"), color: 1 },
        ]}
        format={short}
      />
    </>
  );
}

function Figure({ name, value, warns = false }: { name: string; value: string; warns?: boolean }) {
  return (
    <div class={warns ? "warns" : ""}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function TraceSection() {
  const [id, setId] = useState("");
  const trace = store.trace.value;
  if (!roles.value.has("admin")) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    if (id.trim()) void store.traceMessage(id.trim());
  };
  return (
    <section class="trace" aria-label="How it was found">
      <form class="inline" onSubmit={submit}>
        <label>
          <span class="field-label">How it was found: the id of a message</span>
          <input
            type="text"
            value={id}
            placeholder="or “How found” in the feed"
            onInput={(event) => setId(event.currentTarget.value)}
          />
        </label>
        <Button label="Trace" submit disabled={!id.trim() || store.tracing.value} />
      </form>
      {trace && <TraceShown trace={trace} />}
    </section>
  );
}

function TraceShown({ trace }: { trace: Trace }) {
  const segments = trace.segments.toSorted((a, b) => b.subscriptions - a.subscriptions);
  const nodes = segments.flatMap((segment) => segment.nodes);
  const boxes = nodes.flatMap((node) => node.boxes);
  const opened = boxes.filter((box) => box.opened).length;
  return (
    <div class="trace-shown">
      <p class="message-text">{textOf(trace.message)}</p>
      <p>
        {plural(trace.tokens.length, "token")} led to {plural(nodes.length, "node")} of the trie.{" "}
        {boxes.length > 0 && `${count(opened)} of ${plural(boxes.length, "box", "boxes")} were opened. `}
        {plural(trace.examined, "subscription")} examined, {count(trace.matches)} matched.
        {trace.truncated && " Only a part is shown."}
      </p>
      <ul class="tokens" aria-label="Tokens">
        {trace.tokens.map((token, at) => (
          <li key={`${at}-${token}`}>{token}</li>
        ))}
      </ul>
      {segments.map((segment, at) => (
        <details key={at} open={at === 0}>
          <summary>
            {segment.index}, {plural(segment.subscriptions, "subscription")}
          </summary>
          {segment.nodes.length === 0 && (
            <p class="hint">No tree: there are so few that each is compared.</p>
          )}
          <table hidden={segment.nodes.length === 0}>
            <thead>
              <tr>
                <th scope="col">node</th>
                <th scope="col">clauses</th>
                <th scope="col">boxes</th>
                <th scope="col">examined</th>
                <th scope="col">matched</th>
              </tr>
            </thead>
            <tbody>
              {segment.nodes.slice(0, 50).map((node, index) => (
                <tr key={index}>
                  <th scope="row">{node.path.join(" › ") || "(any word)"}</th>
                  <td>{count(node.clauses)}</td>
                  <td>{count(node.boxes.length)}</td>
                  <td>{count(node.examined)}</td>
                  <td>{count(node.matched)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      ))}
      <Button label="Close the trace" icon="close" onClick={store.clearTrace} />
    </div>
  );
}

function rateText(value: number): string {
  return value < 10 ? decimal(value, 1) : short(value);
}
