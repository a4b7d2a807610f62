#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Deploys probes by BCC: each line of the input is `MAPS COPIES INTERFACE`, each line of the output milliseconds.

A deployment compiles a source with MAPS tables COPIES times, loads each copy and attaches the first one at XDP, as
frameworks on BCC do that keep twins. It is taken down again outside of the measured time.
"""

import glob
import os
import subprocess
import sys
import tempfile
import time

# The kernel's limit of maps that a program uses is 64.
USED_MAPS = 60


def find_headers(directory):
    """Lets BCC find headers: Debian's, merged, if there are none of the running kernel."""
    if os.path.isdir(f"/lib/modules/{os.uname().release}/build") or "BCC_KERNEL_SOURCE" in os.environ:
        return
    for built in sorted(glob.glob("/usr/src/linux-headers-*[0-9]-*"), reverse=True):
        common = built.rsplit("-", 1)[0] + "-common"
        if built.endswith("-common") or not os.path.isdir(common):
            continue
        for source in (common, built):
            parts = [f"{source}/{part}" for part in ("include", "arch")]
            subprocess.run(["cp", "-asn", *parts, directory], check=True)
        os.environ["BCC_KERNEL_SOURCE"] = directory
        return


def source(maps, serial):
    tables = "".join(f"BPF_HASH(map{n}, u32, u64, 256);\n" for n in range(maps))
    body = "".join(
        f"\t{{ u64 *value = map{n}.lookup(&key); if (value) __sync_fetch_and_add(value, 1); }}\n"
        for n in range(min(maps, USED_MAPS))
    )
    return f"{tables}int count(struct xdp_md *ctx)\n{{\n\tu32 key = ctx->rx_queue_index;\n{body}\treturn XDP_PASS;\n}}\n// {serial}\n"


def main():
    with tempfile.TemporaryDirectory() as directory:
        find_headers(directory)
        from bcc import BPF

        print("ready", flush=True)
        for serial, line in enumerate(sys.stdin):
            maps, copies, interface = line.split()
            text = source(int(maps), serial)
            started = time.monotonic()
            probes = [BPF(text=text) for _ in range(int(copies))]
            functions = [probe.load_func("count", BPF.XDP) for probe in probes]
            probes[0].attach_xdp(interface, functions[0], 0)
            print(1000 * (time.monotonic() - started), flush=True)
            probes[0].remove_xdp(interface, 0)
            for probe in probes:
                probe.cleanup()


if __name__ == "__main__":
    main()
