#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads maps by BCC: each line of the input is an order, each line of the output its answer.

`make KIND ENTRIES` makes a map of u32 -> u64 and answers `ok`. `read` and `erase` fill it, read it (and empty it), and
answer the microseconds of reading and erasing. Each entry is seen by Python, as a program on BCC has to. BCC has batches
for the types in BATCHES; the others are read one by one.
"""

import ctypes
import sys
import tempfile
import time

from deploy_by_bcc import find_headers

BATCHES = ("HASH", "LRU_HASH")
TABLES = {
    "HASH": 'BPF_TABLE("hash", u32, u64, table, ENTRIES);',
    "LRU_HASH": 'BPF_TABLE("lru_hash", u32, u64, table, 4 * ENTRIES + 1024);',
    "PERCPU_HASH": 'BPF_TABLE("percpu_hash", u32, u64, table, ENTRIES);',
    "ARRAY": 'BPF_TABLE("array", u32, u64, table, ENTRIES);',
    "PERCPU_ARRAY": 'BPF_TABLE("percpu_array", u32, u64, table, ENTRIES);',
    "LPM_TRIE": "struct prefix { u32 length, address; };\nBPF_LPM_TRIE(table, struct prefix, u64, ENTRIES);",
    "QUEUE": "BPF_QUEUE(table, u64, ENTRIES);",
}


def number(value):
    """Returns the number of an element of an array, of a ctypes value, or of one for each CPU."""
    return value if isinstance(value, int) else value.value if hasattr(value, "value") else sum(value)


class Map:
    def __init__(self, bpf, kind, entries):
        self.kind, self.entries = kind, entries
        self.bpf = bpf(text=TABLES[kind].replace("ENTRIES", str(entries)))
        self.table = self.bpf["table"]
        self.full = False

    def fill(self):
        if self.full:
            return
        self.full = True
        table, kind = self.table, self.kind
        if kind in BATCHES:
            keys = (table.Key * self.entries)(*range(self.entries))
            table.items_update_batch(keys, (table.Leaf * self.entries)(*range(self.entries)))
            return
        for n in range(self.entries):
            if kind == "QUEUE":
                table.push(ctypes.c_uint64(n))
                continue
            key = table.Key(32, n) if kind == "LPM_TRIE" else table.Key(n)
            value = table.Leaf(*[n] * len(table.Leaf())) if kind.startswith("PERCPU") else table.Leaf(n)
            table[key] = value

    def read(self, erase):
        """Returns the number of entries, and their sum so that each is looked at."""
        table, kind, seen, total = self.table, self.kind, 0, 0
        if kind == "QUEUE":
            for value in table.values():
                seen, total = seen + 1, total + value.value
            self.full = False
            return seen, total
        batch = table.items_lookup_and_delete_batch if erase else table.items_lookup_batch
        for _, value in batch() if kind in BATCHES else table.items():
            seen, total = seen + 1, total + number(value)
        if erase:
            self.full = False
            if kind not in BATCHES:
                # Elements of an array become zero, entries of others are deleted.
                table.clear()
        return seen, total


def main():
    with tempfile.TemporaryDirectory() as directory:
        find_headers(directory)
        from bcc import BPF

        print("ready", flush=True)
        table = None
        for line in sys.stdin:
            order, *rest = line.split()
            if order == "make":
                if table:
                    table.bpf.cleanup()
                table = Map(BPF, rest[0], int(rest[1]))
                print("ok", flush=True)
                continue
            table.fill()
            started = time.monotonic()
            seen, _ = table.read(order == "erase")
            elapsed = time.monotonic() - started
            if seen != table.entries:
                print(f"{seen} of {table.entries} entries", flush=True)
            else:
                print(1e6 * elapsed, flush=True)


if __name__ == "__main__":
    main()
