#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Consumes a ring of events (bench/bpf/events.bpf.c) by BCC, as `consumer.c` does by libbpf: consume_by_bcc.py PIN MODE.

BCC wants to compile the programs itself. What is measured is its way from a ring to a Python function, so this opens a
pinned ring by the calls of BCC's `open_ring_buffer`, `ring_buffer_poll` and `ring_buffer_consume`.
"""

import ctypes
import json
import signal
import sys
import time

from bcc.libbcc import _RINGBUF_CB_TYPE, lib

SIZE = 156


class Event(ctypes.Structure):
    _pack_ = 4
    _fields_ = [(name, ctypes.c_uint64) for name in ("serial", "time", "check", "addresses")] + [
        ("ports", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
    ]


def read_table(table):
    """Reads a hash each time that a line comes, key by key as BCC's tables do."""
    key, following, value = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint64()
    print("ready", file=sys.stderr, flush=True)
    for _ in sys.stdin:
        begun = time.process_time_ns()
        entries = total = 0
        known = lib.bpf_get_first_key(table, ctypes.byref(key), 4) == 0
        while known:
            if lib.bpf_lookup_elem(table, ctypes.byref(key), ctypes.byref(value)) == 0:
                entries += 1
                total += value.value
            known = lib.bpf_get_next_key(table, ctypes.byref(key), ctypes.byref(following)) == 0
            key.value = following.value
        said = {"entries": entries, "sum": total, "cpu": time.process_time_ns() - begun}
        print(json.dumps(said), file=sys.stderr, flush=True)


def main():
    _, pin, mode = sys.argv
    checks = mode == "check"
    said = {"delivered": 0, "gaps": 0, "disordered": 0, "damaged": 0}
    following = {}
    latencies = []
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))

    def handle(_context, data, size):
        event = ctypes.cast(data + size - SIZE, ctypes.POINTER(Event)).contents
        expected = following.get(event.cpu, 0)
        said["delivered"] += 1
        if event.serial < expected:
            said["disordered"] += 1
        else:
            said["gaps"] += event.serial - expected
        following[event.cpu] = event.serial + 1
        if checks:
            total = event.serial ^ event.time ^ event.addresses
            if size > SIZE:
                words = ctypes.c_uint64 * ((size - SIZE) // 8)
                for word in words.from_address(data):
                    total ^= word
            said["damaged"] += total != event.check
            latencies.append(time.monotonic_ns() - event.time)
        return 0

    lib.bpf_obj_get.argtypes = [ctypes.c_char_p]
    ring = lib.bpf_obj_get(pin.encode())
    if mode == "table":
        return read_table(ring)
    callback = _RINGBUF_CB_TYPE(handle)
    manager = lib.bpf_new_ringbuf(ring, callback, None)
    if ring < 0 or not manager:
        return "the ring can't be opened"
    print("ready", file=sys.stderr, flush=True)
    begun = time.process_time_ns()
    while not stopped:
        lib.bpf_poll_ringbuf(manager, 100)
    lib.bpf_consume_ringbuf(manager)
    said["cpu"] = time.process_time_ns() - begun
    latencies.sort()
    for name, part in (("median", 0.5), ("late", 0.99)):
        said[name] = latencies[int(part * (len(latencies) - 1))] if latencies else 0
    print(json.dumps(said), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
