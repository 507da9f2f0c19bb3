// Starts and stops the stream of whoever is signed in.

import { effect, untracked } from "@preact/signals";
import type { Whose } from "../api/types";
import { openLog, TabLog } from "../stream/entry_log";
import type { Channel } from "../stream/hub";
import { Hub } from "../stream/hub";
import { browserLocks, Leadership } from "../stream/leader";
import { wait } from "../stream/reader";
import * as feed from "./feed";
import { fail } from "./notices";
import { client, session } from "./session";

let hub: Hub | null = null;
let generation = 0;

/** Follows the session for as long as the page is open. */
export function followSession(): void {
  effect(() => {
    const now = session.value;
    const own = ++generation;
    hub?.stop();
    hub = null;
    untracked(feed.reset);
    feed.status.value = "connecting"; // "open" was said of the stream before
    if (now?.me.roles.includes("subscribe")) {
      void open(now.me.tenant, now.whose, own).catch(fail);
    }
  });
  for (const name of ["online", "pageshow", "focus"]) window.addEventListener(name, nudge);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") nudge();
  });
}

function nudge(): void {
  hub?.nudge();
}

async function open(tenant: string, whose: Whose, own: number): Promise<void> {
  const name = whose === null ? `nearcast-all:${tenant}` : `nearcast:${tenant}:${whose}`;
  const locks = browserLocks();
  // Without locks every tab reads for itself, and must not share what it stores.
  const log = locks ? await openLog(name) : new TabLog(sessionStorage, name);
  if (own !== generation) return;
  const opened = new Hub({
    log,
    channel: new BroadcastChannel(name) as unknown as Channel,
    leadership: new Leadership(locks, name),
    connect: (cursor, signal) => client.stream(whose, cursor, signal),
    firstCursor: async () => (await client.poll(whose, "now", 1)).cursor,
    // A stream that has been left may still have something under way.
    show: (entries, stored) => {
      if (own === generation) feed.take(entries, stored);
    },
    status: (status) => {
      if (own === generation) feed.status.value = status;
    },
    wait,
    now: Date.now,
    random: Math.random,
  });
  hub = opened;
  await opened.start();
}
