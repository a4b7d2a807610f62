// What to write where the compiler or the verifier is hard to understand. For people who know networks and have never
// seen eBPF.
import type { Finding } from "../api/types.ts";

interface Hint {
  pattern: RegExp;
  text: string;
  code?: string;
}

const HINTS: Hint[] = [
  {
    pattern: /invalid access to packet|R\d+ offset is outside of the packet/i,
    text: "The program reads a part of the packet that may not be there. Compare with the end of the packet first, just before this line; with <twinprobe.h>, test the pointer that tp_at has returned:",
    code: "if ((void *)(header + 1) > data_end)\n\treturn XDP_PASS;\n\nif (!pointer)\n\treturn TP_PASS;",
  },
  {
    pattern: /invalid mem access '(map_value_or_null|mem_or_null|\w+_or_null)'|map_value_or_null/i,
    text: "A look-up may find nothing. Test the pointer before it is used:",
    code: "if (!value)\n\treturn XDP_PASS;",
  },
  {
    pattern: /invalid mem access '(inv|scalar)'/i,
    text: "This is used as a pointer, but the verifier knows it only as a number. Use pointers that come from the packet, from a map or from the stack, and test them before they are used.",
  },
  { pattern: /back-edge|infinite loop|loop is not bounded|too many (states|instructions)|BPF program is too large|processed \d+ insn/i, text: "The verifier goes through each round of a loop. Give the loop a fixed and small number of rounds:", code: "for (int i = 0; i < 8; i++) { ... }" },
  { pattern: /combined stack size|stack.*exceed|stack limit/i, text: "A program has 512 bytes of stack. Put large structures into a PERCPU_ARRAY with one entry." },
  { pattern: /unreleased reference/i, text: "What was reserved or looked up has to be given back on every way out: bpf_ringbuf_submit or bpf_ringbuf_discard, bpf_sk_release." },
  { pattern: /R0 !read_ok|At program exit the register R0/i, text: "Every way through the program has to return a verdict, such as XDP_PASS." },
  { pattern: /invalid (indirect )?read from stack|invalid read from stack/i, text: "A part of a variable was never written; padding between fields counts as well. Begin with all zeros:", code: "struct key key = {};" },
  { pattern: /unbounded memory access|min value is negative|unbounded min value|outside of the allowed memory range|invalid access to map value/i, text: "The index or length may be too large for what it is used on. Bound it, just before this line:", code: "if (length > sizeof(buffer))\n\tlength = sizeof(buffer);" },
  { pattern: /writes to the packet/i, text: "A probe with the verdict “observe” may only look at packets." },
  { pattern: /undeclared (identifier|function)|implicit declaration/i, text: "The name is not known here. Is it misspelled, or does a header lack? <twinprobe.h> brings most of what a probe needs; its constants begin with TP_, those of XDP with XDP_." },
  { pattern: /expected ';'/i, text: "A semicolon lacks at the end of the statement before." },
  { pattern: /file not found/i, text: "The daemon has this header not. Sources may include <twinprobe.h>, <linux/…>, <bpf/bpf_helpers.h> and <bpf/bpf_endian.h>." },
  { pattern: /no member named/i, text: "The structure has no such field. Its definition says which ones there are." },
  { pattern: /unknown func|unknown opaque|helper call is not allowed/i, text: "This kernel, or this hook, has no such helper function. “Capabilities” and the documentation say what there is." },
];

/** What to do about a finding; `null` if nothing is known beyond its message. */
export function hintFor(finding: Finding): Hint | null {
  if (finding.hint) return null;
  return HINTS.find((hint) => hint.pattern.test(finding.message)) ?? null;
}
