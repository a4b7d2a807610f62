// The files that a source includes: a choice of the one that is shown, and buttons to add and remove files.
import { useState } from "preact/hooks";
import type { Direction, DirectionConfig, Finding } from "../../api/types.ts";
import { Tabs } from "../../parts/basics.tsx";
import { FieldErrors } from "./form.tsx";

/** The name that stands for the source itself among its files. No file can have this name. */
export const SOURCE = "";

/** The file that a finding is about; the source if it is not about a file. */
export const fileOf = (finding: Finding): string => /^(?:(?:in|e)gress\.)?files\.(.+)$/.exec(finding.field ?? "")?.[1] ?? SOURCE;

/** The directions in which the file is missing or has another text. */
export function withFile(value: DirectionConfig | undefined, name: string, text: string | null): DirectionConfig {
  if (name === SOURCE) return { ...value, source: text ?? "" };
  const files = { ...value?.files };
  if (text === null) delete files[name];
  else files[name] = text;
  const { files: _, ...rest } = value ?? {};
  return Object.keys(files).length > 0 ? { ...rest, files } : rest;
}

export function FileTabs({ direction, files, shown, findings, onShow, onChange }: {
  direction: Direction;
  files: Record<string, string>;
  shown: string;
  findings: Finding[];
  onShow: (name: string) => void;
  onChange: (name: string, text: string | null) => void;
}) {
  const [name, setName] = useState("");
  const names = Object.keys(files);
  const add = () => {
    if (!name) return;
    if (files[name] === undefined) onChange(name, "");
    onShow(name);
    setName("");
  };
  return (
    <details class="files" open={names.length > 0}>
      <summary>Files that the source includes</summary>
      {names.length > 0 && <Tabs label="Files" tabs={[SOURCE, ...names].map((each) => [each, each || "source"] as const)} active={shown} onSelect={onShow} />}
      <div class="controls">
        <label class="field"><span>New file</span><input value={name} placeholder="sizes.h" spellcheck={false} onInput={(event) => setName(event.currentTarget.value.trim())} onKeyDown={(event) => { if (event.key === "Enter") add(); }} /></label>
        <button type="button" disabled={!name} onClick={add}>Add file</button>
        {shown !== SOURCE && <button type="button" onClick={() => { onShow(SOURCE); onChange(shown, null); }}>Remove {shown}</button>}
      </div>
      <FieldErrors findings={findings} field={`${direction}.files`} />
    </details>
  );
}
