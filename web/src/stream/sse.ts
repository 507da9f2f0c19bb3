// A parser of server-sent events, for bodies that `fetch` streams.
//
// EventSource cannot send an Authorization header, and hides `id:` lines that come alone, which
// are Nearcast's bookmarks: a cursor without an event.

export interface SseEvent {
  kind: "event";
  id: string;
  type: string;
  data: string;
}

export interface SseBookmark {
  kind: "bookmark";
  id: string;
}

export type SseFrame = SseEvent | SseBookmark;

/** Takes text in pieces of any size, and returns the frames that are complete. */
export class SseParser {
  #waiting = "";
  #id = "";
  #hasId = false;
  #type = "";
  #data: string[] = [];
  #first = true;

  push(text: string): SseFrame[] {
    if (this.#first && text) {
      this.#first = false;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    const frames: SseFrame[] = [];
    this.#waiting += text;
    let from = 0;
    for (;;) {
      const end = endOfLine(this.#waiting, from);
      if (end === null) break;
      const frame = this.#line(this.#waiting.slice(from, end.at));
      if (frame) frames.push(frame);
      from = end.next;
    }
    this.#waiting = this.#waiting.slice(from);
    return frames;
  }

  #line(line: string): SseFrame | null {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) {
      this.#id = value;
      this.#hasId = true;
    }
    return null;
  }

  #dispatch(): SseFrame | null {
    const data = this.#data;
    const frame: SseFrame | null = data.length
      ? {
          kind: "event",
          id: this.#hasId ? this.#id : "",
          type: this.#type || "message",
          data: data.join("\n"),
        }
      : this.#hasId
        ? { kind: "bookmark", id: this.#id }
        : null;
    this.#data = [];
    this.#type = "";
    this.#hasId = false;
    return frame;
  }
}

/** Where a line ends and the next one starts; a CR at the very end may be half of a CRLF. */
function endOfLine(text: string, from: number): { at: number; next: number } | null {
  for (let at = from; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character === 10) return { at, next: at + 1 };
    if (character === 13) {
      if (at + 1 === text.length) return null;
      return { at, next: text.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
    }
  }
  return null;
}
