// An editor for C. It lives in a shadow tree. There its styles are constructed style sheets, which a strict
// Content-Security-Policy allows. Elsewhere they would be elements, which the policy forbids.
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentUnit, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { c } from "@codemirror/legacy-modes/mode/clike";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import type { Finding } from "../api/types.ts";

const property = (name: string) => `var(--${name})`;

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: property("text"), backgroundColor: property("surface") },
  ".cm-scroller": { fontFamily: property("mono"), lineHeight: "1.5" },
  ".cm-content": { caretColor: property("text") },
  ".cm-cursor": { borderLeftColor: property("text") },
  "&.cm-focused": { outline: `2px solid ${property("accent")}`, outlineOffset: "-2px" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: `${property("select")} !important` },
  ".cm-gutters": { backgroundColor: property("raised"), color: property("muted"), borderRight: `1px solid ${property("line")}` },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: property("active") },
  ".cm-panels, .cm-tooltip": { backgroundColor: property("raised"), color: property("text"), border: `1px solid ${property("line")}` },
  ".cm-panel input, .cm-panel button, .cm-panel label": { fontSize: "13px" },
  ".cm-button": { backgroundImage: "none", backgroundColor: property("surface"), color: property("text"), border: `1px solid ${property("line")}` },
  ".cm-textfield": { backgroundColor: property("surface"), color: property("text"), border: `1px solid ${property("line")}` },
  ".cm-matchingBracket": { backgroundColor: property("select") },
  ".cm-diagnostic": { whiteSpace: "pre-wrap", maxWidth: "60em", fontFamily: property("sans") },
  ".cm-lintRange-error": { backgroundImage: "none", borderBottom: `2px solid ${property("bad")}` },
  ".cm-lintRange-warning": { backgroundImage: "none", borderBottom: `2px solid ${property("warn")}` },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier], color: property("code-keyword") },
  { tag: [tags.typeName, tags.standard(tags.typeName)], color: property("code-type") },
  { tag: [tags.string, tags.character], color: property("code-string") },
  { tag: [tags.number, tags.bool, tags.atom], color: property("code-number") },
  { tag: tags.comment, color: property("code-comment") },
  { tag: [tags.meta, tags.processingInstruction], color: property("code-meta") },
]);

/** Completions in addition to the words of the source. */
const HELPERS = [
  "bpf_map_lookup_elem", "bpf_map_update_elem", "bpf_map_delete_elem", "bpf_ktime_get_ns", "bpf_ringbuf_output",
  "bpf_ringbuf_reserve", "bpf_ringbuf_submit", "bpf_get_prandom_u32", "bpf_get_smp_processor_id", "bpf_htons", "bpf_ntohs",
  "bpf_ntohl", "__sync_fetch_and_add", "TP_PROBE", "TP_PASS", "TP_HASH", "TP_LRU_HASH", "TP_PERCPU_ARRAY", "TP_ARRAY",
  "TP_HISTOGRAM", "TP_RINGBUF", "TP_LPM", "tp_parse", "tp_flow", "tp_length", "tp_count", "tp_at_index", "tp_get",
  "tp_histogram", "tp_source", "tp_destination", "tp_now", "tp_reserve", "tp_submit", "tp_log2", "tp_sample",
];

function complete(context: { matchBefore: (pattern: RegExp) => { from: number; text: string } | null; explicit: boolean; state: EditorState }) {
  const word = context.matchBefore(/\w{2,}/);
  if (!word && !context.explicit) return null;
  const words = new Set([...HELPERS, ...(context.state.doc.toString().match(/\b[a-zA-Z_]\w{3,}\b/g) ?? [])]);
  if (word) words.delete(word.text);
  return { from: word?.from ?? 0, options: [...words].map((label) => ({ label })), validFor: /^\w*$/ };
}

function diagnosticsOf(state: EditorState, findings: Finding[], severity: "error" | "warning"): Diagnostic[] {
  return findings
    .filter((finding) => finding.line !== undefined && finding.line <= state.doc.lines)
    .map((finding) => {
      const line = state.doc.line(finding.line!);
      const indent = /^\s*/.exec(line.text)![0].length;
      const start = line.from + (finding.column ? Math.min(finding.column - 1, line.length) : Math.min(indent, line.length));
      const word = /^\w+/.exec(line.text.slice(start - line.from))?.[0].length ?? 1;
      const end = finding.column ? Math.min(start + word, line.to) : line.to;
      return { from: start, to: Math.max(start, end), severity, source: finding.stage, message: finding.message };
    });
}

export interface CodeProps {
  label: string;
  /** The text to begin with. The editor keeps the text from then on; another `key` makes another editor. */
  value: string;
  readOnly?: boolean;
  plain?: boolean;
  errors?: Finding[];
  warnings?: Finding[];
  /** The place to jump to. A new object jumps again, even to the same place. */
  goTo?: { line: number; column?: number } | null;
  onChange?: (value: string) => void;
  onSave?: () => void;
}

export function Code(props: CodeProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const newest = useRef(props);
  newest.current = props;

  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    parent.style.height = "100%";
    root.append(parent);
    const editor = new EditorView({
      root,
      parent,
      state: EditorState.create({
        doc: props.value,
        extensions: [
          props.readOnly ? [EditorState.readOnly.of(true)] : [history(), lintGutter(), autocompletion({ override: [complete as never] })],
          lineNumbers(), drawSelection(), highlightActiveLine(), highlightActiveLineGutter(), bracketMatching(), search({ top: true }),
          highlightSelectionMatches(),
          indentUnit.of("\t"),
          EditorState.tabSize.of(8),
          props.plain ? [] : StreamLanguage.define(c),
          syntaxHighlighting(colours),
          theme,
          EditorView.contentAttributes.of({ "aria-label": props.label, tabindex: "0" }),
          keymap.of([
            { key: "Mod-Enter", run: () => (newest.current.onSave?.(), true) },
            ...defaultKeymap, ...historyKeymap, ...searchKeymap, ...completionKeymap, ...lintKeymap, indentWithTab,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) newest.current.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => {
      editor.destroy();
      parent.remove();
    };
  }, [props.readOnly, props.plain, props.label]);

  useEffect(() => {
    const { state } = view.current!;
    const found = [...diagnosticsOf(state, props.errors ?? [], "error"), ...diagnosticsOf(state, props.warnings ?? [], "warning")];
    view.current!.dispatch(setDiagnostics(state, found));
  }, [props.errors, props.warnings, props.label]);

  useEffect(() => {
    const editor = view.current!;
    if (!props.goTo || props.goTo.line > editor.state.doc.lines) return;
    const line = editor.state.doc.line(props.goTo.line);
    const anchor = line.from + Math.min((props.goTo.column ?? 1) - 1, line.length);
    editor.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) });
    editor.focus();
  }, [props.goTo]);

  return <div class="code" ref={host} />;
}
