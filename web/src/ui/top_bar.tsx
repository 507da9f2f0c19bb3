// The bar at the top: the state of the stream, counts, light or dark, help, account.

import * as feed from "../store/feed";
import { about, roles } from "../store/session";
import { introOpen } from "../store/view";
import { Account } from "../session/account";
import type { StreamStatus } from "../stream/reader";
import { Button } from "./controls";
import { count } from "./formats";
import { dark, nextTheme } from "./theme";

const STATES: Record<StreamStatus, string> = {
  connecting: "connecting",
  open: "live",
  waiting: "reconnecting",
  "signed-out": "signed out",
};

export function TopBar() {
  const status = feed.status.value;
  return (
    <header class="top-bar">
      <h1>
        <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
          <circle cx="16" cy="16" r="3.5" class="logo-dot" />
          <circle cx="16" cy="16" r="8" class="logo-ring" />
          <circle cx="16" cy="16" r="13" class="logo-ring faint" />
        </svg>
        Nearcast
      </h1>
      {about.value?.demo && <span class="badge">demo</span>}
      {roles.value.has("subscribe") && (
        <span class={`stream ${status}`} role="status">
          <span class="stream-dot" aria-hidden="true" />
          {STATES[status]}
          <small class="received">{count(feed.received.value)} received</small>
        </span>
      )}
      <span class="spacer" />
      <Button
        label={dark.value ? "Switch to light" : "Switch to dark"}
        icon={dark.value ? "sun" : "moon"}
        kind="quiet"
        compact
        onClick={nextTheme}
      />
      <Button
        label="What is Nearcast?"
        icon="help"
        kind="quiet"
        compact
        pressed={introOpen.value}
        onClick={() => {
          introOpen.value = !introOpen.value;
        }}
      />
      <Account />
    </header>
  );
}
