import { describe, expect, test } from "vitest";
import { SseParser } from "../src/stream/sse";

const STREAM =
  ": open\n\nid: 7-12\nevent: match\ndata: {\"a\":1}\n\nid: 7-13\n\nevent: gap\ndata: one\ndata: two\n\n";

const FRAMES = [
  { kind: "event", id: "7-12", type: "match", data: '{"a":1}' },
  { kind: "bookmark", id: "7-13" },
  { kind: "event", id: "", type: "gap", data: "one\ntwo" },
];

function framesOf(pieces: Iterable<string>) {
  const parser = new SseParser();
  return [...pieces].flatMap((piece) => parser.push(piece));
}

describe("SseParser", () => {
  test("reads events, bookmarks and events without an id", () => {
    expect(framesOf([STREAM])).toEqual(FRAMES);
  });

  test("gives the same for every size of the pieces", () => {
    for (let size = 1; size < STREAM.length; size++) {
      const pieces = [];
      for (let at = 0; at < STREAM.length; at += size) pieces.push(STREAM.slice(at, at + size));
      expect(framesOf(pieces)).toEqual(FRAMES);
    }
  });

  test("takes CR and CRLF, also when a piece ends between them", () => {
    const crlf = STREAM.replaceAll("\n", "\r\n");
    expect(framesOf([crlf])).toEqual(FRAMES);
    expect(framesOf(crlf)).toEqual(FRAMES);
    expect(framesOf([`${STREAM.replaceAll("\n", "\r")}:`])).toEqual(FRAMES);
  });

  test("ignores comments, unknown fields, a byte order mark, and an unfinished frame", () => {
    const given = "\uFEFFretry: 5\n: hello\nfoo: bar\ndata\ndata:  x\n\nid: 9-1\ndata: half";
    expect(framesOf([given])).toEqual([{ kind: "event", id: "", type: "message", data: "\n x" }]);
  });
});
