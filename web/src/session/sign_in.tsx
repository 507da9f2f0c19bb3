// Signing in with a key. One-time links and demos sign in by themselves.

import { useState } from "preact/hooks";
import { describe, Problem } from "../api/problems";
import { about, session, signIn, signInProblem, starting } from "../store/session";
import { Button, Field } from "../ui/controls";

export function SignIn() {
  const [key, setKey] = useState("");
  const [stay, setStay] = useState(false);
  const [busy, setBusy] = useState(false);
  if (session.value || starting.value) return null;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(key.trim(), { stay });
      setKey("");
    } catch (error) {
      signInProblem.value = refusal(error, key.trim());
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="veil" role="dialog" aria-modal="true" aria-labelledby="sign-in-title">
      <form class="dialog" onSubmit={(event) => void submit(event)}>
        <h2 id="sign-in-title">Sign in to Nearcast</h2>
        <p class="hint">
          Open the one-time link that <code>nearcast serve</code> has printed, or give a key.
        </p>
        <Field label="Key">
          <input
            type="password"
            autocomplete="current-password"
            required
            value={key}
            placeholder="nc_…"
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </Field>
        <label class="check">
          <input type="checkbox" checked={stay} onChange={(event) => setStay(event.currentTarget.checked)} />
          <span>Stay signed in on this browser</span>
        </label>
        {signInProblem.value && (
          <p class="problem" role="alert">
            {signInProblem.value}
          </p>
        )}
        <Button label="Sign in" kind="primary" submit disabled={busy || !key.trim()} />
        {about.value && <p class="hint">Version {about.value.version}</p>}
      </form>
    </div>
  );
}

/** What to tell a person whose key was refused. */
function refusal(error: unknown, key: string): string {
  if (!(error instanceof Problem) || error.status !== 401) return describe(error);
  if (!/^nct?_/.test(key)) return "This is not a key of Nearcast: keys begin with nc_.";
  return "This server does not know this key. Check that it is complete, and that it was not revoked.";
}
