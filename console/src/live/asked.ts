// Answers that the stream of changes does not contain. A view asks for them again after each change that may affect
// them.
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, asProblem } from "../api/client.ts";
import type { Loading } from "../parts/basics.tsx";
import { connection, onWindow, probes } from "./changes.ts";

/** The wait after a window until rules have judged it, in milliseconds. Other windows in this time join the request. */
const SOON = 300;
/** The wait for changes that nothing announces, such as another user's. */
const REST = 5000;

/** The announced state that answers may depend on, without windows. */
const told = () => `${connection.value} ${[...probes.value.values()].map((probe) => `${probe.name} ${probe.revision} ${probe.state}`).join(" ")}`;

/**
 * The answer of `path` as long as the view is open. Requests it again after each window of a probe that `goesBy` names,
 * after each change of a probe, and after a while. A lost connection keeps the last answer.
 */
export function useLive<T>(path: string, goesBy: (value: T) => string[]): [Loading<T>, () => void] {
  const [loading, set] = useState<Loading<T>>({ state: "loading" });
  const again = useRef(() => {});
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let due = Infinity;
    let [sent, seen] = [0, 0];
    let watched: string[] = [];
    const readIn = (ms: number) => {
      const time = performance.now() + ms;
      if (control.signal.aborted || time >= due) return;
      clearTimeout(timer);
      due = time;
      timer = setTimeout(read, ms);
    };
    const read = async () => {
      due = Infinity;
      if (document.hidden) return readIn(REST);
      const number = (sent += 1);
      let answer: Loading<T>;
      try {
        const value = await ask<T>(path, { signal: control.signal });
        watched = goesBy(value);
        answer = { state: "there", value };
      } catch (error) {
        answer = { state: "failed", problem: asProblem(error) };
      }
      // An answer is outdated if a later request was answered before it.
      const isLost = answer.state === "failed" && answer.problem.status === 0;
      if (!control.signal.aborted && number > seen && !isLost) {
        seen = number;
        set(answer);
      }
      readIn(REST);
    };
    const stop = onWindow((probe) => watched.includes(probe) && readIn(SOON));
    let before = told();
    const dispose = effect(() => {
      const now = told();
      if (now !== before) readIn(SOON);
      before = now;
    });
    again.current = () => readIn(0);
    readIn(0);
    return () => {
      stop();
      dispose();
      clearTimeout(timer);
      control.abort();
    };
  }, [path]);
  return [loading, () => again.current()];
}
