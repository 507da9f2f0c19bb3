// The page: a bar, the map, a panel beside it, and the feed on the other side. At phone width the
// feed is one of the tabs.

import { useEffect, useRef } from "preact/hooks";
import { MapPane } from "./map/map_pane";
import { FeedPanel } from "./panels/feed";
import { OperationsPanel } from "./panels/operations";
import { PublishPanel } from "./panels/publish";
import { SubscriptionsPanel } from "./panels/subscriptions";
import { ReplayBar } from "./replay/bar";
import { SignIn } from "./session/sign_in";
import * as feed from "./store/feed";
import { roles, session } from "./store/session";
import type { Panel } from "./store/view";
import { panel } from "./store/view";
import { count } from "./ui/formats";
import { Icon, type IconName } from "./ui/icons";
import { Intro } from "./ui/intro";
import { Notices } from "./ui/notices";
import { TopBar } from "./ui/top_bar";
import { useMedia } from "./ui/media";

const TABS: [Panel, string, IconName][] = [
  ["subscriptions", "Subscriptions", "layers"],
  ["feed", "Feed", "bell"],
  ["publish", "Publish", "send"],
  ["operations", "Operations", "chart"],
];

export function App() {
  const wide = useMedia("(min-width: 1080px)");
  const signedIn = session.value !== null;
  return (
    <div class={`page${wide ? " wide" : ""}`}>
      <TopBar />
      <main class="body">
        <SidePanel wide={wide} />
        <div class="center">
          <MapPane />
          <Intro />
          {signedIn && roles.value.has("subscribe") && <ReplayBar />}
        </div>
        {wide && (
          <aside class="feed-column" aria-label="Feed">
            <h2 class="column-head">
              <span>Feed</span>
              <small>{count(feed.visible.value.length)} shown</small>
            </h2>
            <div class="scroll" tabIndex={0} role="region" aria-label="List of events">
              {signedIn && <FeedPanel />}
            </div>
          </aside>
        )}
      </main>
      <Notices />
      <SignIn />
    </div>
  );
}

function SidePanel({ wide }: { wide: boolean }) {
  const tabs = wide ? TABS.filter(([name]) => name !== "feed") : TABS;
  const current = wide && panel.value === "feed" ? "subscriptions" : panel.value;
  return (
    <aside class="side" aria-label="Panels">
      <Tabs tabs={tabs} current={current} />
      <div class="scroll" id="panel" role="tabpanel" aria-labelledby={`tab-${current}`} tabIndex={0}>
        {session.value && <PanelOf name={current} />}
      </div>
    </aside>
  );
}

function PanelOf({ name }: { name: Panel }) {
  if (name === "feed") return <FeedPanel />;
  if (name === "publish") return <PublishPanel />;
  if (name === "operations") return <OperationsPanel />;
  return <SubscriptionsPanel />;
}

function Tabs({ tabs, current }: { tabs: typeof TABS; current: Panel }) {
  const list = useRef<HTMLDivElement>(null);
  const byKey = useRef(false);
  useEffect(() => {
    if (byKey.current) list.current?.querySelector<HTMLElement>("[aria-selected=true]")?.focus();
    byKey.current = false;
  }, [current]);
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const at = tabs.findIndex(([name]) => name === current);
    byKey.current = true;
    panel.value = tabs[(at + step + tabs.length) % tabs.length]![0];
  };
  return (
    <div class="tabs" role="tablist" aria-label="Panels" ref={list} onKeyDown={onKey}>
      {tabs.map(([name, label, icon]) => (
        <button
          key={name}
          type="button"
          role="tab"
          id={`tab-${name}`}
          aria-controls="panel"
          aria-selected={name === current}
          tabIndex={name === current ? 0 : -1}
          onClick={() => {
            panel.value = name;
          }}
        >
          <Icon name={icon} />
          <span>{label}</span>
        </button>
      ))}
    </div>
  );
}
