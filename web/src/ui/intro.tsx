// What Nearcast does, for a first visit: three sentences and a picture.

import { useEffect, useRef } from "preact/hooks";
import * as editor from "../store/editor";
import { session } from "../store/session";
import { closeIntro, introOpen, panel } from "../store/view";
import { Button } from "./controls";

export function Intro() {
  const dialog = useRef<HTMLDivElement>(null);
  const open = introOpen.value && session.value !== null;
  useEffect(() => {
    if (open) dialog.current?.focus();
  }, [open]);
  if (!open) return null;
  return (
    <div
      class="intro"
      role="dialog"
      aria-labelledby="intro-title"
      tabIndex={-1}
      ref={dialog}
      onKeyDown={(event) => {
        if (event.key === "Escape") closeIntro();
      }}
    >
      <h2 id="intro-title">Messages find those whom they concern</h2>
      <ol>
        <li>
          <Picture step={1} />
          <span>
            <b>A subscription</b> is words and a region: <i>coffee NOT decaf</i>, around my office.
            The shapes on the map are subscriptions.
          </span>
        </li>
        <li>
          <Picture step={2} />
          <span>
            <b>A message</b> is a text at a place. Nearcast compares each one with every subscription,
            even with millions of them, in microseconds.
          </span>
        </li>
        <li>
          <Picture step={3} />
          <span>
            <b>What matches arrives at once</b>, with the reason. When a region moves, you learn what
            comes into it (+) and what leaves it (−).
          </span>
        </li>
      </ol>
      <div class="panel-actions">
        <Button
          label="Draw a subscription"
          kind="primary"
          onClick={() => {
            closeIntro();
            panel.value = "subscriptions";
            editor.begin();
            void editor.drawRegion("rectangle");
          }}
        />
        <Button label="Just watch" onClick={closeIntro} />
      </div>
    </div>
  );
}

function Picture({ step }: { step: 1 | 2 | 3 }) {
  return (
    <svg class="picture" viewBox="0 0 48 36" aria-hidden="true">
      <circle class="region" cx="24" cy="18" r="13" />
      {step > 1 && <circle class="message outside" cx="43" cy="7" r="2.6" />}
      {step > 1 && <circle class={step === 3 ? "message inside" : "message"} cx="27" cy="15" r="2.6" />}
      {step === 3 && <circle class="pulse" cx="27" cy="15" r="6" />}
    </svg>
  );
}
