// Answers that do not end: lines of JSON, and server-sent events. They are read by `fetch`, since an EventSource can't
// send a token.
import { send } from "./client.ts";
import { parseJson } from "./json.ts";

/** Yields the lines of an answer as they come. */
export async function* lines(answer: Response): AsyncGenerator<string> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop()!;
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export interface Message {
  event: string;
  data: unknown;
}

/** Yields the messages of an event stream; comments as messages of the type `comment`. */
export async function* messages(path: string, signal: AbortSignal): AsyncGenerator<Message> {
  const answer = await send(path, { headers: { Accept: "text/event-stream" }, signal });
  let event = "message";
  let data: string[] = [];
  for await (const line of lines(answer)) {
    if (line === "") {
      if (data.length > 0) yield { event, data: parseJson(data.join("\n")) };
      event = "message";
      data = [];
    } else if (line.startsWith(":")) {
      yield { event: "comment", data: null };
    } else if (line.startsWith("event: ")) {
      event = line.slice(7);
    } else if (line.startsWith("data: ")) {
      data.push(line.slice(6));
    }
  }
}

/** Yields objects of JSON lines. */
export async function* objects(path: string, signal: AbortSignal): AsyncGenerator<unknown> {
  const answer = await send(path, { headers: { Accept: "application/x-ndjson" }, signal });
  for await (const line of lines(answer)) if (line) yield parseJson(line);
}
