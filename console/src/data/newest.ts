// The newest windows of a probe, and the age of their numbers.
import type { Document, Probe, WindowEntry, WindowHead, WindowsStatus } from "../api/types.ts";
import { secondsIn } from "./nodes.ts";

/**
 * The two newest retained windows, oldest first. Numbers of windows may have gaps: a scrape closes windows that nothing
 * retains. So the number before the newest one is certain only if there are as many windows as numbers; otherwise the
 * list tells it. The newest window also counts if the one before it was removed meanwhile.
 */
export async function newestTwo({ retained, oldest, newest }: WindowsStatus, list: () => Promise<Pick<WindowEntry, "seq">[]>, get: (seq: number) => Promise<Document>): Promise<Document[]> {
  if (oldest === null || newest === null) return [];
  const isWhole = retained === newest - oldest + 1;
  const [last, before] = isWhole ? [newest, newest > oldest ? newest - 1 : undefined] : (await list()).slice(-2).reverse().map(({ seq }) => seq);
  if (last === undefined) return [];
  const document = await get(last);
  const earlier = before === undefined ? null : await get(before).catch(() => null);
  return earlier ? [earlier, document] : [document];
}

/** The least age of a window that is no longer current, in milliseconds. */
const OLD = 30_000;

/** The end of the newest window, in milliseconds, if it is too long ago for its numbers to be current; or else `null`.
 * Without an interval, nothing closes the next window. */
export function endedBefore({ config }: Pick<Probe, "config">, window: WindowHead | undefined, now: number): number | null {
  const end = Date.parse(window?.end ?? "");
  return now - end > Math.max(OLD, 3000 * secondsIn(config.window?.interval ?? "")) ? end : null;
}
