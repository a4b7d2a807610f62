// Other daemons, as `GET /v1/nodes` and the paths below it show them.
import type { Series } from "../data/aggregated.ts";
import type { Document } from "./types.ts";

export interface NodeProblem {
  detail: string;
  /** The status of the node's refusal; absent if the node gave no usable answer. */
  status?: number;
}

export interface NodeProbe {
  name: string;
  state: "running" | "failed";
  reason?: string;
  revision: number;
  attached: number;
  pending: number;
  ns_per_packet?: number;
  interval?: string;
  windows: number;
  lost: number;
}

export interface NodeStatus {
  name: string;
  server: string;
  labels?: Record<string, string>;
  problem?: NodeProblem;
  node?: string;
  version?: string;
  /** The traffic of its probes' interfaces so far. Earlier versions do not send it. */
  traffic?: { time: string; packets: number; bytes: number };
  probes: NodeProbe[];
}

/** The chart of a node, from its own daemon, with the metric that it shows. */
export interface NodeChart {
  name: string;
  chart?: Series & { metric: string; direction: string; field: string; shows: string };
  problem?: NodeProblem;
}

export interface NodeDocument {
  name: string;
  document?: Document;
  problem?: NodeProblem;
}
