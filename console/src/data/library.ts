// The library of probes, a part of the console.
import { parseJson } from "../api/json.ts";
import type { Config, Template } from "../api/types.ts";

let loaded: Promise<Template[]> | null = null;

export function library(): Promise<Template[]> {
  loaded ??= fetch(document.getElementById("main")!.dataset.library!)
    .then((answer) => {
      if (!answer.ok) throw new Error("The library could not be loaded. Load the page again: the daemon may be another one now.");
      return answer.text();
    })
    .then((text) => (parseJson(text) as Template[]).map(whole))
    .catch((error) => {
      loaded = null;
      throw error;
    });
  return loaded;
}

/** Fills in a shared source, which is only at ingress. */
function whole(template: Template): Template {
  const { ingress, egress } = template.config;
  if (ingress && egress && egress.source === null) egress.source = ingress.source;
  return template;
}

/** The window settings of a probe that the console deploys: short intervals, so that numbers appear soon. */
export const WINDOW = { interval: "5s", retain: 360 };

/** The configuration of a template for some interfaces. */
export function configOf(template: Template, interfaces: string[]): Config {
  const { interface: _, format: __, ...config } = structuredClone(template.config);
  const counts = [config.ingress, config.egress].some((direction) => direction?.metrics?.some((metric) => metric.snapshot || metric.init));
  return { ...config, interfaces, ...(counts && !config.window && { window: { ...WINDOW } }) };
}
