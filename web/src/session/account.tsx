// Who is signed in, and signing out.

import { useEffect, useRef, useState } from "preact/hooks";
import { about, session, signOut } from "../store/session";
import { Button } from "../ui/controls";
import { fullTime } from "../ui/formats";

export function Account() {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const close = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [open]);
  const now = session.value;
  if (!now) return null;
  return (
    <div
      class="account"
      ref={box}
      onKeyDown={(event) => {
        if (event.key === "Escape") setOpen(false);
      }}
    >
      <Button label="Account" icon="user" kind="quiet" compact pressed={open} onClick={() => setOpen(!open)} />
      {open && (
        <div class="popover">
          <dl>
            <dt>Tenant</dt>
            <dd>{now.me.tenant}</dd>
            <dt>May</dt>
            <dd>{now.me.roles.join(", ")}</dd>
            {now.me.expiresAt && (
              <>
                <dt>Until</dt>
                <dd>{fullTime(Date.parse(now.me.expiresAt))}</dd>
              </>
            )}
            <dt>Version</dt>
            <dd>{about.value?.version}</dd>
          </dl>
          <Button label="Sign out" onClick={signOut} />
          <a class="hint" href="/assets/licenses.txt" target="_blank" rel="noreferrer">
            Licenses of what this page is made of
          </a>
        </div>
      )}
    </div>
  );
}
