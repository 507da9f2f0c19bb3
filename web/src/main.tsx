// The page starts here: first the shell is painted, then who this is is found out.

import { effect, untracked } from "@preact/signals";
import { render } from "preact";
import { App } from "./app";
import { followDraft } from "./store/editor";
import { followForm } from "./store/publishing";
import { session, start } from "./store/session";
import { followSession } from "./store/streaming";
import * as subscriptions from "./store/subscriptions";
import { listenToKeys } from "./ui/keyboard";
import { applyTheme } from "./ui/theme";

applyTheme();
const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
followSession();
followDraft();
followForm();
listenToKeys();
effect(() => {
  const signedIn = session.value !== null;
  untracked(() => {
    subscriptions.clear();
    if (signedIn) subscriptions.refreshSoon(0);
  });
});
void start();
