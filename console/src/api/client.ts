// Requests to the daemon that has served this page.
import { signal } from "@preact/signals";
import { parseJson, writeJson } from "./json.ts";
import type { Finding } from "./types.ts";

const TOKEN = "twinprobe-token";

/** The bearer token. It lives as long as the tab. */
export const token = signal<string | null>(sessionStorage.getItem(TOKEN));

export function keepToken(value: string | null) {
  token.value = value;
  if (value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, value);
}

/** An answer that is not a success: a problem document of the daemon, or one that the console made. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly errors: Finding[] = [],
    readonly log?: string,
  ) {
    super(detail || title);
  }
}

async function problem(answer: Response): Promise<Problem> {
  const text = await answer.text().catch(() => "");
  try {
    const body = JSON.parse(text);
    return new Problem(answer.status, body.title, body.detail, body.errors, body.log);
  } catch {
    return new Problem(answer.status, answer.statusText, text || `the daemon answered ${answer.status}`);
  }
}

/** Turns a thrown error into a problem that can be shown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof TypeError) return new Problem(0, "No connection", "The daemon can't be reached. Is it running?");
  return new Problem(0, "Error", error instanceof Error ? error.message : String(error));
}

export interface Options {
  method?: string;
  body?: unknown;
  form?: FormData;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request. Fails with a [`Problem`] unless the answer is a success. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  let body: string | FormData | undefined = options.form;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = writeJson(options.body);
  }
  const init = { method: options.method ?? "GET", headers, body, signal: options.signal, cache: "no-store" as const };
  const answer = await fetch(path, { ...init, credentials: "same-origin" });
  if (!answer.ok) throw await problem(answer);
  return answer;
}

/** Sends a request and reads its JSON. */
export async function ask<T>(path: string, options: Options = {}): Promise<T> {
  const answer = await send(path, options);
  return parseJson(await answer.text()) as T;
}

export const rulePath = (name: string) => `/v1/rules/${encodeURIComponent(name)}`;
export const probePath = (name: string) => `/v1/probes/${encodeURIComponent(name)}`;

/** A path with the reason for a change, which the list of revisions shows. */
export const withReason = (path: string, reason: string) => (reason.trim() ? `${path}?message=${encodeURIComponent(reason.trim())}` : path);
