// The document of GET /v1/fleet, which the operator serves.
export interface Counts {
  selected: number;
  updated: number;
  running: number;
  failed: number;
  excluded: number;
  silent: number;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime?: string;
}

export interface FleetObject {
  kind: "MonitoringProbe" | "MonitoringRule";
  name: string;
  /** False while the status is about an earlier state of the object. */
  isCurrent: boolean;
  /** True while nodes carry out the object's removal. */
  isLeaving: boolean;
  revision?: string;
  step?: string;
  stepBegan?: string;
  counts: Counts;
  firing?: number;
  worst?: { nsPerPacket: number; node: string; at?: string };
  conditions: Condition[];
  failures: { node: string; stage: string; reason: string }[];
}

export interface FleetOverview {
  version: string;
  objects: FleetObject[];
}
