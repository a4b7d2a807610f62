// The frame of all views: navigation, the state of the connection, and the current user.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { answerOffer, connection, hasToken, hello, listed, may, offered, signOut, trouble, tryNow } from "../live/changes.ts";
import { zone } from "../data/format.ts";
import { FollowRules } from "../live/rules.ts";
import { go, route } from "../parts/route.ts";
import { setTheme, theme, type Theme } from "../parts/theme.ts";
import { Capabilities } from "./capabilities.tsx";
import { AlertCount } from "./overview/alerts.tsx";
import { InterfaceView } from "./overview/interface.tsx";
import { Overview } from "./overview/overview.tsx";
import { ProbeView } from "./probe/probe.tsx";
import { SignIn } from "./signin.tsx";

const PLACES = [["", "Overview"], ["nodes", "Nodes"], ["rules", "Rules"], ["history", "Changes"], ["new", "New probe"], ["replay", "Replay"], ["capabilities", "Capabilities"]] as const;

/** A view whose code the browser loads when the user opens it. */
function Later({ load, ...rest }: { load: () => Promise<ComponentType<any>>; [more: string]: unknown }) {
  const [View, set] = useState<ComponentType<any> | null>(null);
  useEffect(() => {
    load().then((view) => set(() => view));
  }, []);
  return View ? <View {...rest} /> : <p class="empty" role="status">Loading…</p>;
}

const loadEditor = () => import("./editor/editor.tsx").then((file) => file.Editor as ComponentType<any>);
const loadRules = () => import("./rules/rules.tsx").then((file) => file.Rules as ComponentType<any>);
const loadRule = () => import("./rules/rule.tsx").then((file) => file.RuleView as ComponentType<any>);
const loadNodes = () => import("./nodes/nodes.tsx").then((file) => file.Nodes as ComponentType<any>);
const loadHistory = () => import("./history.tsx").then((file) => file.AllHistory as ComponentType<any>);
const loadFind = () => import("./find.tsx").then((file) => file.Find as ComponentType<any>);
const loadReplay = () => import("./replay.tsx").then((file) => file.Replay as ComponentType<any>);

function View() {
  const { parts, query } = route.value;
  const [place, name, tab] = parts;
  switch (place) {
    case undefined: return <Overview />;
    case "history": return <Later key="history" load={loadHistory} />;
    case "find": return <Later key="find" load={loadFind} text={name ?? ""} />;
    case "interface": return <InterfaceView key={`${name} ${query.get("netns")}`} name={name ?? ""} netns={query.get("netns") ?? undefined} />;
    case "probe": return <ProbeView key={name} name={name ?? ""} tab={tab ?? "chart"} />;
    case "nodes": return <Later key="nodes" load={loadNodes} probe={name} />;
    case "rules": return <Later key="rules" load={loadRules} />;
    case "rule": return <Later key={`rule ${name}`} load={loadRule} name={name ?? ""} tab={tab ?? "firings"} />;
    case "new": return <Later key={`new ${name}`} load={loadEditor} template={name} />;
    case "edit": return <Later key={`edit ${name} ${query.get("revision")}`} load={loadEditor} name={name} revision={query.get("revision")} />;
    case "replay": return <Later load={loadReplay} />;
    case "capabilities": return <Capabilities />;
    default: return <p class="empty">There is nothing at this address. <a href="#/">Overview</a></p>;
  }
}

function State() {
  const text = { connecting: "connecting", live: "live", lost: "connection lost", "signed-out": "signed out" }[connection.value];
  return <span class={`connection ${connection.value}`} role="status"><span class="dot" aria-hidden="true" />{text}</span>;
}

/** Finds an address, a port or another key in the newest windows of all probes. */
function Search() {
  const { parts } = route.value;
  const found = parts[0] === "find" ? (parts[1] ?? "") : "";
  return (
    <form role="search" key={found} onSubmit={(event) => {
      event.preventDefault();
      const text = String(new FormData(event.currentTarget).get("text")).trim();
      if (text) go("find", text);
    }}>
      <input type="search" name="text" aria-label="Find" placeholder="Find address or port" defaultValue={found} />
    </form>
  );
}

const title = (parts: string[]) =>
  [["probe", "rule", "interface", "find"].includes(parts[0] ?? "") || (parts[0] === "nodes" && parts[1]) ? parts[1] : PLACES.find(([id]) => id === (parts[0] ?? ""))?.[1] ?? parts[1], hello.value?.node, "twinprobe"].filter(Boolean).join(" · ");

export function Shell() {
  const { parts } = route.value;
  useEffect(() => {
    document.title = title(parts);
  }, [parts, hello.value]);
  const [place = ""] = parts;
  const here = { probe: "", interface: "", edit: "new", rule: "rules" }[place] ?? place;
  const signedOut = connection.value === "signed-out";
  return (
    <>
      <a class="skip" href="#main-content" onClick={(event) => { event.preventDefault(); document.getElementById("main-content")?.focus(); }}>Skip to content</a>
      <header class="topbar">
        <a class="brand" href="#/">twinprobe{hello.value && <span class="node">{hello.value.node}</span>}</a>
        {!signedOut && (
          <nav aria-label="Views">
            {PLACES.filter(([id]) => id !== "nodes" || hello.value?.nodes).map(([id, text]) => <a href={`#/${id}`} aria-current={here === id ? "page" : undefined}>{text}</a>)}
          </nav>
        )}
        {!signedOut && may("collector") && <Search />}
        <div class="status">
          {connection.value === "live" && may("operator") && <FollowRules />}
          {listed.value && <AlertCount />}
          <State />
          {hello.value && <span class="who" title={hello.value.who}>{hello.value.role}</span>}
          <label class="theme">
            <span>Theme</span>
            <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
              {["system", "light", "dark"].map((value) => <option value={value} selected={theme.value === value}>{value}</option>)}
            </select>
          </label>
          {hasToken.value && !signedOut && <button type="button" onClick={signOut}>Sign out</button>}
        </div>
      </header>
      {connection.value === "lost" && (
        <div class="lost" role="alert">
          {trouble.value?.detail ?? "The connection to the daemon has ended."} What is shown is from before. The console tries again.{" "}
          <button type="button" onClick={tryNow}>Try now</button>
        </div>
      )}
      {offered.value !== null && !signedOut && (
        <div class="lost" role="alert">
          A link has brought another token{hello.value && <>; you are signed in as {hello.value.who} ({hello.value.role})</>}. Use it only if you trust where
          the link comes from: what you do then is done with that token.{" "}
          <button type="button" onClick={() => answerOffer(false)}>Stay signed in</button>{" "}
          <button type="button" onClick={() => answerOffer(true)}>Use the other token</button>
        </div>
      )}
      <main id="main-content" tabIndex={-1}>
        {signedOut ? <SignIn /> : listed.value || parts[0] === "capabilities" ? <View /> : <p class="empty" role="status">Connecting to the daemon…</p>}
      </main>
      <footer>
        <span>{hello.value ? `twinprobe ${hello.value.version} on ${hello.value.node}` : "twinprobe"}</span>
        <span>times: {zone()}</span>
        <a href="/openapi.yaml">API</a>
        <a href={document.getElementById("main")?.dataset.licences}>Licences</a>
      </footer>
    </>
  );
}
