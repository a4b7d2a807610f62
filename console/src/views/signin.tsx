// The form for the token that identifies the user to the daemon.
import { useState } from "preact/hooks";
import { hasToken, signIn, trouble } from "../live/changes.ts";

export function SignIn() {
  const [value, setValue] = useState("");
  const refused = trouble.value;
  return (
    <form class="sign-in" onSubmit={(event) => { event.preventDefault(); if (value.trim()) signIn(value.trim()); }}>
      <h1>Sign in</h1>
      <p>This daemon asks for a token. Somebody who runs it makes one with</p>
      <pre>twinprobe token NAME operator</pre>
      <label class="field">
        <span>Token</span>
        <input type="password" value={value} autocomplete="off" autofocus spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} />
      </label>
      {refused && (hasToken.value || refused.status === 403) && <p class="bad-text" role="alert">{refused.detail}</p>}
      <button type="submit" class="primary" disabled={!value.trim()}>Sign in</button>
      <p class="muted">The token stays in this tab and is forgotten when the tab is closed. Roles: viewer (states), collector (figures), operator (probes), admin (probes that decide about packets).</p>
    </form>
  );
}
