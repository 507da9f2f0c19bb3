// Keys of the whole page. None works while someone types.

import * as editor from "../store/editor";
import * as feed from "../store/feed";
import { closeIntro, panel, selectEntry } from "../store/view";

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (editor.drawing.value) editor.stopDrawing();
      else if (isTyping(event.target)) (event.target as HTMLElement).blur();
      else {
        closeIntro();
        selectEntry(null);
      }
      return;
    }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      if (!document.getElementById("feed-filter")) panel.value = "feed"; // it is a tab here
      requestAnimationFrame(() => document.getElementById("feed-filter")?.focus());
    } else if (event.key === "p") {
      if (feed.paused.value) feed.resume();
      else feed.pause();
    } else if (event.key === "n") {
      panel.value = "subscriptions";
      editor.begin();
    }
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select") !== null;
}
