#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Has a table of ENTRIES numbers, which is filled from outside. Each line of the input reads it by a batch, which is BCC's
fastest way, and makes JSON of it; each line of the output is milliseconds and the number of entries.
"""

import json
import sys
import tempfile
import time

from deploy_by_bcc import find_headers


def main():
    entries = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        find_headers(directory)
        from bcc import BPF

        probe = BPF(text=f"BPF_HASH(table, u32, u64, {entries});\n")
        print("ready", flush=True)
        for _ in sys.stdin:
            started = time.monotonic()
            rows = [{"key": key, "value": leaf} for key, leaf in probe["table"].items_lookup_batch()]
            text = json.dumps(rows)
            took = 1000 * (time.monotonic() - started)
            print(took, text.count('"key"'), flush=True)


if __name__ == "__main__":
    main()
