// Publishing a message: where, what, whom it would reach, and whom it has reached.

import { effect, signal } from "@preact/signals";
import { describe } from "../api/problems";
import type { Message, Reach } from "../api/types";
import { fail } from "./notices";
import { client, roles, session } from "./session";
import { map, panel } from "./view";

const SETTLE_MS = 300;
const ATTEMPTS = 20;

export interface Sent {
  id: string;
  text: string;
  reach: Reach | null;
  /** Own subscriptions that it has reached; null if they cannot be known. */
  own: string[] | null;
}

export const place = signal<[number, number] | null>(null);
export const text = signal("");
export const ttlS = signal(3_600);
export const expected = signal<Reach | null>(null);
export const dryRunProblem = signal<string | null>(null);
export const sending = signal(false);
export const sent = signal<readonly Sent[]>([]);

function message(): Message | null {
  const [at, said] = [place.value, text.value.trim()];
  if (!at || !said) return null;
  const made: Message = { text: said, lon: round(at[0]), lat: round(at[1]) };
  if (ttlS.value > 0) made.ttl_s = ttlS.value;
  return made;
}

export async function publish(): Promise<void> {
  const made = message();
  if (!made || sending.value) return;
  sending.value = true;
  try {
    // A repeated request, after a lost answer, does not publish twice.
    const { firstId } = await client.publish(made, newKey());
    sent.value = [{ id: firstId, text: made.text!, reach: null, own: null }, ...sent.value].slice(0, 20);
    text.value = "";
    void follow(firstId).catch(fail);
  } catch (error) {
    fail(error);
  } finally {
    sending.value = false;
  }
}

/** Asks what became of a message until it is matched, which takes milliseconds. */
async function follow(id: string): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const { reach } = await client.message(id);
    if (reach) {
      const own = await ownReached(id);
      sent.value = sent.value.map((one) => (one.id === id ? { ...one, reach, own } : one));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 100 + 50 * attempt));
  }
}

/** Names of the subscriptions whose events are shown. */
async function ownReached(id: string): Promise<string[] | null> {
  if (!roles.value.has("subscribe") || !session.value) return null;
  try {
    const { explanations } = await client.explain(id, session.value.whose);
    return explanations.flatMap((one) => one.subscriptionId ?? []);
  } catch {
    return []; // it has reached none of them
  }
}

/** Keeps the expected reach and the mark on the map as the form says. */
export function followForm(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let running: AbortController | null = null;
  effect(() => {
    const made = message();
    clearTimeout(timer);
    running?.abort();
    if (!made || panel.value !== "publish") {
      expected.value = null;
      return;
    }
    timer = setTimeout(async () => {
      const { signal: aborted } = (running = new AbortController());
      try {
        const answer = await client.dryRun(made, aborted);
        const refused = answer.rejected[0];
        expected.value = answer.reach[0] ?? null;
        dryRunProblem.value = refused ? `${refused.field} ${refused.reason}` : null;
      } catch (error) {
        if (aborted.aborted) return;
        expected.value = null;
        dryRunProblem.value = describe(error);
      }
    }, SETTLE_MS);
  });
  effect(() => {
    const open = panel.value === "publish";
    map.value?.showPick(open ? place.value : null);
    map.value?.setPicking(open);
  });
}

/** A random key; `randomUUID` exists in secure contexts only. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function round(degrees: number): number {
  return Math.round(degrees * 1e6) / 1e6;
}
