"""summary.py JUNIT [COUNT]: the end of a test run, from the report that cargo-nextest has written.

Prints for each failed test its name, its seeds, its failure messages and the last lines of its daemons' logs; then
the COUNT slowest tests, 0 by default; at the end `N passed, N failed`. Exits with 1 if a test has failed or none has run.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

LOG = re.compile(r"^--- log of the daemon.*?\n(.*?)^---$", re.MULTILINE | re.DOTALL)
LINES = 20


def last(text, count):
    """Returns the last lines of a text."""
    return [line for line in text.rstrip().splitlines() if line.strip()][-count:]


def show(name, case):
    """Prints the output of a failed test."""
    out, err = ((case.findtext(tag) or "") for tag in ("system-out", "system-err"))
    print(f"\nFAILED {name}")
    for seed in sorted(set(re.findall(r"TWINPROBE_SEED=\d+", out + err))):
        print(f"  repeat it with {seed}")
    logs = LOG.findall(err)
    without = [line for line in last(LOG.sub("", err), 200) if not line.startswith(("note: run with", "stack backtrace"))]
    for line in without[:LINES]:
        print(f"  {line}")
    for number, log in enumerate(logs[-3:], max(len(logs) - 2, 1)):
        print(f"  log of daemon {number} of {len(logs)}, last lines:")
        for line in last(log, LINES):
            print(f"    {line}")


def main():
    report = ElementTree.parse(sys.argv[1])
    slowest = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    passed, failed, times = 0, 0, []
    for suite in report.iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{suite.get('name').split('::')[-1]} {case.get('name')}"
            times.append((float(case.get("time", 0)), name))
            if case.find("failure") is None and case.find("error") is None:
                passed += 1
                continue
            failed += 1
            show(name, case)
    for seconds, name in sorted(times, reverse=True)[:slowest]:
        print(f"{seconds:8.1f} s  {name}")
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
