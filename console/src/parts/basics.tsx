// Small parts that all views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Problem, asProblem } from "../api/client.ts";
import type { Finding } from "../api/types.ts";

export function Badge({ kind, children, title }: { kind: "good" | "bad" | "warn" | "plain"; children: ComponentChildren; title?: string }) {
  return <span class={`badge ${kind}`} title={title}>{children}</span>;
}

/** A table that scrolls sideways within the page on a narrow screen. If it is `stacked`, its cells are below each other
 * there, with `data-label` as titles. */
export function Wide({ label, stacked = false, children }: { label: string; stacked?: boolean; children: ComponentChildren }) {
  return <div class="table-scroll" tabIndex={0} role="region" aria-label={label}><table class={stacked ? "stacked" : undefined}>{children}</table></div>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Section({ title, actions, children }: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section>
      <div class="section-head"><h2>{title}</h2>{actions && <div class="actions">{actions}</div>}</div>
      {children}
    </section>
  );
}

/** One finding, with the place that it is about. */
export function FindingText({ finding, onGo }: { finding: Finding; onGo?: (finding: Finding) => void }) {
  const place = [finding.field, finding.line && `line ${finding.line}`].filter(Boolean).join(", ");
  return (
    <>
      <span class="stage">{finding.stage}</span>{" "}
      {place && (onGo && finding.line ? <button type="button" class="link" onClick={() => onGo(finding)}>{place}</button> : <span class="muted">{place}</span>)}
      {place && ": "}
      <span class="message">{finding.message}</span>
      {finding.hint && <pre class="hint">{finding.hint}</pre>}
    </>
  );
}

/** The most mistakes of a source that are shown together: later ones mostly follow from the first ones. */
const MOST = 3;

/** An error, with everything that the daemon says about it. */
export function ProblemBox({ problem, onGo }: { problem: Problem; onGo?: (finding: Finding) => void }) {
  const only = problem.errors.length === 1 && problem.errors[0]!.message === problem.detail;
  const follows = problem.errors[0]?.stage === "compile" ? problem.errors.slice(MOST) : [];
  const list = (errors: Finding[]) => <ul>{errors.map((finding) => <li><FindingText finding={finding} onGo={onGo} /></li>)}</ul>;
  return (
    <div class="problem" role="alert">
      {!only && <p><strong>{problem.detail || problem.title}</strong></p>}
      {problem.errors.length > 0 && list(problem.errors.slice(0, problem.errors.length - follows.length))}
      {follows.length > 0 && <details><summary>{follows.length} more, which may follow from these</summary>{list(follows)}</details>}
      {problem.log && <details><summary>Output of {problem.errors[0]?.stage === "load" ? "the verifier" : "the compiler"}</summary><pre tabIndex={0} aria-label="Output">{problem.log}</pre></details>}
    </div>
  );
}

export function Warnings({ warnings }: { warnings: Finding[] }) {
  if (warnings.length === 0) return null;
  return (
    <div class="warnings" role="note">
      <ul>{warnings.map((finding) => <li><FindingText finding={finding} /></li>)}</ul>
    </div>
  );
}

/** The outcome of a request. */
export type Loading<T> = { state: "loading" } | { state: "failed"; problem: Problem } | { state: "there"; value: T };

/** Sends one request for each change of `inputs`. `again` repeats it. */
export function useAsk<T>(ask: (signal: AbortSignal) => Promise<T>, inputs: unknown[]): [Loading<T>, () => void] {
  const [loading, set] = useState<Loading<T>>({ state: "loading" });
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    ask(control.signal).then(
      (value) => !control.signal.aborted && set({ state: "there", value }),
      (error) => !control.signal.aborted && set({ state: "failed", problem: asProblem(error) }),
    );
    return () => control.abort();
  }, [...inputs, times]);
  return [loading, () => setTimes((times) => times + 1)];
}

/** A question that the user must answer before an action. */
export function Dialog({ title, children, onClose }: { title: string; children: ComponentChildren; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

export function Select<T extends string>({ label, value, options, onChange }: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([id, text]) => <option value={id} selected={id === value}>{text}</option>)}
      </select>
    </label>
  );
}

/** Asks for the reason of a change. The daemon keeps it with the revision and in the list of changes. */
export function Reason({ value, onChange, keeper = "the list of revisions" }: { value: string; onChange: (value: string) => void; keeper?: string }) {
  return (
    <label class="field grow reason-field">
      <span>Reason for the change</span>
      <input value={value} maxLength={1000} placeholder={`${keeper} shows it`} onInput={(event) => onChange(event.currentTarget.value)} />
    </label>
  );
}

export function Check({ label, value, onChange, disabled }: { label: string; value: boolean; onChange: (value: boolean) => void; disabled?: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} disabled={disabled} onChange={(event) => onChange(event.currentTarget.checked)} />
      {label}
    </label>
  );
}

/** Tabs. Arrow keys move between them, as screen readers expect. */
export function Tabs({ label, tabs, active, onSelect }: {
  label: string;
  tabs: readonly (readonly [string, string])[];
  active: string;
  onSelect: (id: string) => void;
}) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const index = tabs.findIndex(([id]) => id === active);
    const next = (index + step + tabs.length) % tabs.length;
    onSelect(tabs[next]![0]);
    (list.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
      {tabs.map(([id, text]) => (
        <button type="button" role="tab" id={`tab-${id}`} aria-selected={id === active} aria-controls="panel" tabIndex={id === active ? 0 : -1} onClick={() => onSelect(id)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Panel({ tab, children }: { tab: string; children: ComponentChildren }) {
  return <div role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`} tabIndex={-1}>{children}</div>;
}
