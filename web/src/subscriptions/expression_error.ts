// Where an expression is wrong: the word at the position that the server names.

export interface Marked {
  before: string;
  word: string;
  after: string;
}

const SEPARATOR = /[\s()]/;

/**
 * Splits a text around the word at a position. The server counts characters (code points), while
 * strings here count UTF-16 units. A position at the end marks the last word.
 */
export function markError(text: string, position: number): Marked {
  const characters = [...text];
  let at = Math.max(0, Math.min(position, characters.length - 1));
  const single = (index: number) => SEPARATOR.test(characters[index] ?? " ");
  while (at > 0 && /\s/.test(characters[at] ?? " ")) at -= 1;
  let [from, to] = [at, at + 1];
  if (characters[at] === '"' || characters[at] === "“") {
    const closing = characters.findIndex((one, index) => index > at && /["”]/.test(one));
    to = closing < 0 ? characters.length : closing + 1;
  } else if (!single(at)) {
    while (from > 0 && !single(from - 1)) from -= 1;
    while (to < characters.length && !single(to)) to += 1;
  }
  const part = (start: number, end?: number) => characters.slice(start, end).join("");
  return { before: part(0, from), word: part(from, to), after: part(to) };
}
