// The daemon's answers, as far as the console reads them. `api/openapi.yaml` describes all of it.

export type Direction = "ingress" | "egress";
export const DIRECTIONS: Direction[] = ["ingress", "egress"];
export type Role = "viewer" | "collector" | "operator" | "admin";

export type Value = number | bigint | string | boolean | null | Value[] | { [name: string]: Value };

export interface MetricConfig {
  name: string;
  map: string;
  help?: string;
  snapshot?: boolean;
  init?: boolean;
  export?: boolean;
  agg?: string;
  type?: string;
  [more: string]: unknown;
}

export interface DirectionConfig {
  hook?: string;
  mode?: string;
  verdict?: string;
  source?: string;
  files?: Record<string, string>;
  object?: string;
  metrics?: MetricConfig[];
  [more: string]: unknown;
}

export interface WindowSettings {
  interval?: string;
  align?: boolean;
  retain?: number;
  retain_bytes?: number;
  collectors?: string[];
}

export interface Config {
  name?: string;
  interface?: string;
  interfaces?: string[];
  ingress?: DirectionConfig;
  egress?: DirectionConfig;
  window?: WindowSettings;
  labels?: Record<string, string>;
  [more: string]: unknown;
}

export interface Attachment {
  interface: string;
  state: "attached" | "pending";
  reason?: string;
  ifindex?: number;
  direction?: Direction;
  hook?: string;
  mode?: string;
  approximate?: string;
}

export interface DirectionCost {
  ns_per_packet?: number;
  noise_ns?: number;
  frame?: string;
  instructions: number;
  verified: number;
  stack_bytes: number;
}

export interface LiveCost {
  interface: string;
  direction: Direction;
  hook: string;
  ns_per_packet: number;
  by: "samples" | "trial";
  dispatcher_ns_per_packet: number;
  packets: number;
  measured: string;
}

export interface Cost {
  directions: Partial<Record<Direction, DirectionCost>>;
  map_bytes: number;
  live?: LiveCost[];
}

export interface Finding {
  stage: string;
  field?: string;
  line?: number;
  column?: number;
  message: string;
  /** The daemon's suggestion for a correction, if it has one. */
  hint?: string;
}

export interface WindowsStatus {
  retained: number;
  bytes: number;
  oldest: number | null;
  newest: number | null;
  lost: number;
  damaged: number;
  unreadable?: number;
  error?: string;
}

/** The rule that combines two values of a field. */
export type Joining = "sum" | "max" | "min" | "or" | "last";

export interface Probe {
  name: string;
  state: "running" | "failed";
  reason?: string;
  node?: string;
  instance?: string;
  labels?: Record<string, string>;
  expires_at?: string;
  revision: number;
  created: string;
  pushed_by?: string;
  interfaces: Attachment[];
  programs: Partial<Record<Direction, { entry: string; twins: boolean; left_out?: string[] }>>;
  shared_maps?: { map: string; type: string; twins: boolean }[];
  /** The fields whose values are not added up, with their rules. */
  joins?: { direction: Direction; metric: string; fields: Record<string, Joining> }[];
  events?: { direction: Direction; metric: string; delivered: number; lost: number | null; missed: number; clients: number }[];
  cost?: Cost;
  windows: WindowsStatus;
  warnings: Finding[];
  config: Config;
}

/** A change of a probe. */
export interface HistoryEntry {
  time: string;
  probe: string;
  change: "created" | "replaced" | "removed" | "expired";
  revision: number;
  who?: string;
  /** The other end of the connection, or the file. */
  from?: { address?: string; pid?: number | null; user?: string; program?: string; login?: string; file?: string };
  message?: string;
  cost_before?: Cost;
  cost_after?: Cost;
}

/** The fields that revisions of probes and of rules share. */
export interface Past {
  revision: number;
  created: string;
  pushed_by?: string;
  /** The reason for the deployment. */
  message?: string;
  current: boolean;
}

export interface Revision extends Past {
  config: Config;
}

export interface RuleRevision extends Past {
  rule: Rule;
}

/** Exactly one field is set. */
export interface RuleAction {
  apply?: { name: string; probe?: string; template?: string; config?: Config; expires: string };
  change?: { name: string; sample?: number | string; variables?: object; defines?: object };
  notify?: string;
  delete?: string;
  mark?: string;
}

export interface Rule {
  watch: string;
  when: string;
  for?: number;
  until?: string;
  do: RuleAction[];
  cooldown?: string;
  max_actions_per_hour?: number;
}

export interface Firing {
  window: number;
  time: string;
  do: RuleAction[];
  done?: string;
  ended?: string;
  error?: string;
}

export interface RuleNotification {
  window: number;
  /** The number of the action, from 0. */
  action: number;
  attempts: number;
  error?: string;
}

export interface RuleStatus {
  name: string;
  state: "watching" | "waiting" | "firing" | "stopped";
  reason?: string;
  revision: number;
  created: string;
  pushed_by: string;
  role: string;
  window: number;
  holds: number;
  missed: number;
  actions_left: number;
  last_error?: string;
  /** The reason why a condition had no value in the last window. */
  no_value?: string;
  /** The notifications that have not arrived yet. */
  notifications?: RuleNotification[];
  /** The probes that the rule has created. `changed` existed before. */
  probes: string[];
  /** Probes of the present firing that are not there any more. */
  gone?: string[];
  changed?: string[];
  /** Oldest first. */
  firings: Firing[];
  rule: Rule;
}

/** A configuration that rules deploy. */
export interface RuleTemplate {
  name: string;
  revision: number;
  changed: string;
  pushed_by: string;
  rules: string[];
}

export interface WindowEntry {
  seq: number;
  start: string;
  end: string;
  bytes: number;
}

export interface Entry {
  key?: Value;
  value: Value;
}

export interface Metric {
  map: string;
  type: string;
  help?: string;
  agg?: string;
  sample?: number;
  /** True if entry `i` counts the values from 2^i to 2^(i+1)-1. */
  histogram?: true;
  entries: Entry[];
  entries_used?: number;
  max_entries?: number;
  full?: boolean;
  completeness?: { fill?: number; failed_inserts?: number; failed_reserves?: number };
}

export interface WindowHead {
  seq: number;
  start: string;
  end: string;
  duration_ns?: number;
  clock_step_ns?: number;
  quiesce_us: number;
  lost_windows?: number;
}

export interface Document {
  probe: string;
  node?: string;
  instance?: string;
  interfaces: string[];
  window?: WindowHead;
  replayed?: Record<string, number | Record<string, number>>;
  ingress: Record<string, Metric>;
  egress: Record<string, Metric>;
}

export interface Report {
  valid: true;
  programs: Probe["programs"];
  metrics: Partial<Record<Direction, { name: string; map: string; type: string }[]>>;
  cost: Cost;
  warnings: Finding[];
}

export interface Capabilities {
  kernel: {
    release: string;
    possible_cpus: number;
    quiesce: string;
    quiesce_methods: { name: string; available: boolean; reason?: string }[];
    [feature: string]: unknown;
  };
  maps: { type: string; unavailable?: string; operations: Record<string, boolean>; strategy?: string }[];
  events: { type: string; unavailable?: string }[];
  compiler: { version: string; error?: string; confined: boolean };
}

/** A probe of the console's library. */
export interface Template {
  name: string;
  title: string;
  summary: string;
  hooks: string[];
  directions: Direction[];
  metrics: string[];
  cost: number;
  tags: string[];
  config: Config;
}
