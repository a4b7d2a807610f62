// Other daemons, as `GET /v1/nodes` and the paths below it tell of them.
import type { Series } from "../data/aggregated.ts";
import type { Document } from "./types.ts";

export interface NodeProblem {
  detail: string;
  /** The status by which the node refuses; absent if it gave no answer that can be used. */
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
  /** What has passed the interfaces of its probes so far. Earlier versions do not tell it. */
  traffic?: { time: string; packets: number; bytes: number };
  probes: NodeProbe[];
}

/** The chart of a node: as of its own daemon, with the metric that it shows. */
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
