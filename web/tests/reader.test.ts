import { describe, expect, test } from "vitest";
import { Problem } from "../src/api/problems";
import type { Entry } from "../src/stream/entries";
import type { StreamStatus } from "../src/stream/reader";
import { retryMs, StreamReader } from "../src/stream/reader";

function frame(id: string): string {
  const event = {
    id,
    type: "org.nearcast.match",
    time: "2026-01-01T00:00:00Z",
    data: { message: { text: id }, matches: [] },
  };
  return `id: ${id}\nevent: match\ndata: ${JSON.stringify(event)}\n\n`;
}

/** A server whose connections are these pieces; a connection ends after its last piece. */
function reading(connections: (string[] | Error)[]) {
  const cursors: string[] = [];
  const stored: { ids: string[]; cursor: string }[] = [];
  const statuses: StreamStatus[] = [];
  const waits: number[] = [];
  const end = new AbortController();
  const reader = new StreamReader(
    {
      connect: async (cursor) => {
        cursors.push(cursor);
        const next = connections.shift();
        if (next === undefined) {
          end.abort();
          throw new TypeError("nothing left");
        }
        if (next instanceof Error) throw next;
        const encoder = new TextEncoder();
        const body = new ReadableStream<Uint8Array>({
          start(controller) {
            for (const piece of next) controller.enqueue(encoder.encode(piece));
            controller.close();
          },
        });
        return new Response(body);
      },
      store: async (entries: Entry[], cursor) => {
        stored.push({ ids: entries.map((entry) => entry.id), cursor });
      },
      status: (status) => statuses.push(status),
      wait: async (ms) => {
        waits.push(ms);
      },
      now: () => 0,
      random: () => 1,
    },
    "7-0",
  );
  return { reader, end, cursors, stored, statuses, waits };
}

describe("StreamReader", () => {
  test("goes on after the last id that was stored, bookmarks included", async () => {
    const { reader, end, cursors, stored } = reading([
      [frame("7-1"), frame("7-2")],
      ["id: 7-9\n\n"],
      [`${frame("7-10")}id: 7-11\nevent: ma`],
    ]);
    await reader.run(end.signal);
    expect(cursors).toEqual(["7-0", "7-2", "7-9", "7-10"]);
    expect(stored.flatMap((one) => one.ids)).toEqual(["7-1", "7-2", "7-10"]);
  });

  test("keeps the bytes of a character that two pieces share", async () => {
    const { reader, end, stored } = reading([[frame("7-1").replace("7-1\"}", "é\"}")]]);
    await reader.run(end.signal);
    expect(stored[0]!.ids).toEqual(["7-1"]);
  });

  test("waits longer after each failure, and less again after a connection", async () => {
    const failure = new TypeError("refused");
    const { reader, end, waits } = reading([failure, failure, failure, [": open\n\n"], failure]);
    await reader.run(end.signal);
    expect(waits).toEqual([500, 1000, 2000, 500, 1000]);
    expect(retryMs(30, 1)).toBe(15_000);
    expect(retryMs(1, 0)).toBe(250);
  });

  test("stops when the credential is refused", async () => {
    const { reader, end, statuses } = reading([new Problem(401, "UNAUTHENTICATED", "no")]);
    await reader.run(end.signal);
    expect(statuses).toEqual(["connecting", "signed-out"]);
  });

  test("a gap is an entry and does not move the cursor by itself", async () => {
    const gap = 'event: gap\ndata: {"from":"7-0","to":"7-50","lost":4}\n\n';
    const { reader, end, cursors, stored } = reading([[gap], [gap + frame("7-51")]]);
    await reader.run(end.signal);
    expect(cursors).toEqual(["7-0", "7-0", "7-51"]);
    expect(stored[0]).toEqual({ ids: ["gap:7-0:7-50"], cursor: "7-0" });
  });
});
