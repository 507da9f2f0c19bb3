// Who is signed in: with a key, by a one-time link, or as a guest of a demo.

import { computed, signal } from "@preact/signals";
import { Client } from "../api/client";
import { describe, Problem } from "../api/problems";
import type { About, Me, Role, Whose } from "../api/types";

export interface Session {
  me: Me;
  /** Whose events are shown. */
  whose: Whose;
}

interface Stored {
  credential: string;
  /** Whose events were chosen; those of all if it is left out. */
  subscriber?: string | undefined;
}

const STORED = "nearcast.session";

export const client = new Client();
export const about = signal<About | null>(null);
export const session = signal<Session | null>(null);
/** What the sign-in dialog says; null while it is not yet known who this is. */
export const signInProblem = signal<string | null>(null);
export const starting = signal(true);
export const roles = computed(() => new Set<Role>(session.value?.me.roles ?? []));

/** Finds out who this is: a link with a code, what was stored, a demo, or nobody yet. */
export async function start(): Promise<void> {
  client.onUnauthenticated = () => void ended();
  try {
    about.value = await client.about();
    const code = takeCode();
    const stored = readStored();
    if (code) await signInByLink(code);
    else if (stored) await signIn(stored.credential, { subscriber: stored.subscriber });
    else if (about.value.demo) await signInByCode(undefined);
  } catch (error) {
    signInProblem.value = describe(error);
  } finally {
    starting.value = false;
  }
}

/** Signs in with a key or a token. It is kept until the browser closes, or longer if wished. */
export async function signIn(
  credential: string,
  options: { stay?: boolean; subscriber?: string | undefined } = {},
): Promise<void> {
  client.signInWith(credential);
  const me = await client.me();
  const whose = me.subscriber ?? options.subscriber ?? null;
  if (options.stay !== undefined) writeStored({ credential }, options.stay);
  signInProblem.value = null;
  session.value = { me, whose };
}

export function signOut(): void {
  localStorage.removeItem(STORED);
  sessionStorage.removeItem(STORED);
  client.signInWith("");
  session.value = null;
  signInProblem.value = null;
}

/** Shows the events of another subscriber of the tenant, or of all of them. */
export function watch(whose: Whose): void {
  const now = session.value;
  if (!now || now.me.subscriber !== null || now.whose === whose) return;
  const kept = localStorage.getItem(STORED) !== null;
  writeStored({ credential: client.credential, subscriber: whose ?? undefined }, kept);
  session.value = { ...now, whose };
}

async function signInByLink(code: string): Promise<void> {
  try {
    await signInByCode(code);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    signInProblem.value =
      "This link was used already, or is older than 15 minutes. Start the server again for a new one, or give a key.";
  }
}

async function signInByCode(code: string | undefined): Promise<void> {
  const { token } = await client.signIn(code);
  await signIn(token, { stay: true }); // a token ends by itself
}

async function ended(): Promise<void> {
  if (session.value === null) return;
  signOut();
  if (!about.value?.demo) {
    signInProblem.value = "Your session has ended. Please sign in again.";
    return;
  }
  await signInByCode(undefined).catch((error: unknown) => {
    signInProblem.value = describe(error);
  });
}

/** The code of a one-time link, which then disappears from the address. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

function readStored(): Stored | null {
  const text = sessionStorage.getItem(STORED) ?? localStorage.getItem(STORED);
  try {
    return text ? (JSON.parse(text) as Stored) : null;
  } catch {
    return null;
  }
}

function writeStored(stored: Stored, stay: boolean): void {
  (stay ? localStorage : sessionStorage).setItem(STORED, JSON.stringify(stored));
  (stay ? sessionStorage : localStorage).removeItem(STORED);
}
