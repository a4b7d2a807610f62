"""How schemathesis meets real probes, and what it checks beside its own checks.

The test has deployed the probes `kept` (windows) and `reports` (events), which no generated name is likely to remove, and
made an interface `eth0` for the examples of the description.
"""

import json
import re
import time
import zlib

import requests
import schemathesis

SOURCE = r"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} m SEC(".maps");
SEC("SECTION") int count(struct CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&m, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	return VERDICT;
}
char _license[] SEC("license") = "GPL";
"""

# Rules that only the descriptions of the schema state: refusals of stage `config`, by field and message.
IN_WORDS = [
    # An answer names 256 mistakes at most.
    (r"^$", r"^\d+ more mistakes are not shown"),
    (r"^name$", "they must agree"),
    (r"", "is listed twice|is called .* already|is already read by"),
    (r"interfaces?", "the limit is .* bytes|a '\[' has no '\]'"),
    (r"source$", "the source is empty|a NUL byte|bytes; the limit is"),
    (r"defines", "bytes; the limit is"),
    (r"^netns$", "the limit is .* bytes without NUL|lead to pods"),
    (r"^window\.interval$|^expires$|sum_expires$", r"not a duration|; use \d+ms to |resets nothing"),
    # The schema has dependentRequired for it, which the generator ignores.
    (r"series_by$", "it needs max_series"),
    (r"key_label$", "two '_' first|metrics already have|has a label .* already"),
    (r"^labels", "metrics already have|bytes; the limit is|control character"),
    (r"^shared_maps", "both are needed|must agree"),
    (r"calls$", "is for the dialect bcc"),
    (r"files", "a folder of|leaves the source's folder|is the name of the source|is not a name of a file|is for the compiler|the limit is"),
    (r"^exclude_interfaces", "there is no pattern|excludes"),
    (r"calls\.", "is not a slot"),
    # The daemon checks a rule against the windows of its probe, and against the other rules.
    (r"^(watch|scope|on|when|until|cooldown|for)$", ""),
    (r"^do\[\d+\]", ""),
    # YAML has numbers that JSON lacks. For the schema 3.0 is an integer.
    (r"", "JSON number out of range"),
    (r"max_actions_per_hour$", "floating point"),
    (r"^pods$", "exclude each other"),
    (r"^per_interface$", "name interfaces"),
    (r"^map$", "only to maps that fill names"),
    (r"object$", "is not base64|the object is empty|exclude each other"),
    (r"(source|defines|dialect|files|calls)$", "an object is compiled already|exclude each other"),
]
# The valid fields of a metric depend on the maps of the program, if the source is a valid program.
OF_A_PROGRAM = r"metrics\[\d+\]|on_replace"

# The times, steps, names and keys of a chart are texts for the schema.
OF_A_CHART = "|".join([
    "^metric is missing: ",
    r"^(from|to)=.* is not a time such as ",
    "^from is not before to$",
    "^step=.* is not a duration of at least ",
    "^step would give ",
    "^the windows have no metric ",
    "^both directions have a metric ",
    "^metric .*: ",
    "keys are too many; ",
    # History has whole seconds, and no keys that a client chooses.
    "^step: points of history are whole seconds apart$",
    "^from and to have no whole step of ",
    "^the probe shows no metric ",
])
CHARTS = ("/series", "/series/history")

# Addresses and ports are texts, too.
OF_NAMES = "^address or port is missing|^address=.* is not an address|^port=.* is not a port"
# So are the nodes.
OF_NODES = "^probe is missing: |^node=.*: the file of --nodes has no such name$"


def chosen(case, one_of):
    """True for some of the cases, always the same ones."""
    text = repr((case.operation.label, case.path_parameters, case.query, case.body))
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % one_of == 0


def positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


# A capture in pcapng without packets, and a configuration for it. The generator can make neither.
REPLAY = {
    "capture": "\n\r\r\n\x1c\0\0\0M<+\x1a\1\0\0\0" + 8 * "\0" + "\x1c\0\0\0",
    "config": json.dumps({"ingress": {"source": "", "metrics": [{"name": "m", "map": "m"}]}}),
}

# A capture in pcapng with one packet, and a rule over a metric with windows.
PACKET = 60 * "\0"
RULE_REPLAY = {
    "capture": REPLAY["capture"]
    + "\1\0\0\0\x14\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0"
    + "\6\0\0\0\x5c\0\0\0" + 12 * "\0" + 2 * "\x3c\0\0\0" + PACKET + "\x5c\0\0\0",
    "config": json.dumps({"ingress": {"source": "", "metrics": [
        {"name": "m", "map": "m", "snapshot": True, "init": True, "agg": "sum"}]}}),
    "rule": json.dumps({"watch": "kept", "when": "sum(ingress.m) > 1e18", "do": [{"mark": "many"}]}),
}

asked = set()


def first(case):
    """True for the first case of each operation. The caller makes this case a valid one."""
    new = case.operation.label not in asked
    asked.add(case.operation.label)
    return new


def short(value):
    return [str(item)[:1] for item in value] if isinstance(value, list) else str(value)[:64]


@schemathesis.hook
def before_call(context, case, kwargs):
    # Shortens a long poll to a tenth of a second.
    wait = case.query and case.query.get("wait")
    if isinstance(wait, (int, float)) and 0 <= wait <= 300:
        case.query["wait"] = min(wait, 0.1)
    # Protects these two.
    changes = case.method in ["PUT", "DELETE"] and case.path.endswith("/{name}")
    if changes and case.path_parameters.get("name") in ["kept", "reports"]:
        case.path_parameters["name"] = "flow-features"
    # hyper refuses a head of more than 16 KiB, and writes no problem document then.
    if case.path.startswith(("/v1/names", "/v1/nodes/")) and case.query and len(repr(case.query)) > 1024:
        case.query = {name: short(value) for name, value in case.query.items()}
    if not positive(case):
        return
    must = first(case)
    if case.headers:
        # Both conditions together never hold.
        if must or chosen(case, 2) or case.headers.get("If-None-Match") == "*":
            for name in ["If-Match", "If-None-Match"]:
                case.headers.pop(name, None)
    # A scenario continues with the window that the last answer named, in any state of this window.
    linked = case.meta.phase.name == "stateful"
    if case.path_parameters and not changes and not linked and (must or not chosen(case, 4)):
        case.path_parameters["name"] = "reports" if case.path.endswith("/events") else "kept"
        if "seq" in case.path_parameters and (must or chosen(case, 2)):
            case.path_parameters["seq"] = 1
        if "map" in case.path_parameters and (must or chosen(case, 2)):
            case.path_parameters["map"] = "blocked"
            if must and case.method == "PUT":
                case.body = [{"key": 7, "value": 1}]
        # The one collector that `kept` has, and the one metric of `reports`.
        for name, value in [("collector", "archive"), ("metric", "lengths")]:
            if case.query and name in case.query and (must or chosen(case, 2)):
                case.query[name] = value
        if case.path.endswith(CHARTS) and (must or chosen(case, 2)):
            # A metric that `kept` has, over all of its windows.
            case.query = {"metric": "packets"}
    if case.path == "/v1/rules/{name}":
        # Nothing else makes a probe of this name.
        case.path_parameters["name"] = "pings"
        if isinstance(case.body, dict) and (must or chosen(case, 2)):
            case.body = {"watch": "kept", "when": "sum(ingress.packets) > 1e18", "do": [{"mark": "many"}]}
    if case.path == "/v1/templates/{name}" and changes:
        case.path_parameters["name"] = "pinged"
    if case.path.startswith("/v1/nodes/") and (must or chosen(case, 2)):
        # The file of nodes has this name only.
        metric = {"metric": "packets"} if case.path.endswith("/series") else {}
        case.query = {"probe": "kept", "node": ["gw-1"], **metric}
    if case.path == "/v1/names" and (must or chosen(case, 2)):
        # Most generated addresses are invalid.
        case.query = {"address": ["192.0.2.1"], "port": ["443", "udp/53"]}
    if case.path == "/v1/changes" and case.query and (must or chosen(case, 2)):
        case.query["probe"] = "kept"
    parts = {"/v1/replay": REPLAY, "/v1/replay/rule": RULE_REPLAY}.get(case.path)
    if parts:
        config = json.loads(parts["config"])
        deployable(config)
        case.body = {**parts, "config": json.dumps(config)}
        if case.path == "/v1/replay/rule" and must:
            case.query = {}
    elif isinstance(case.body, dict) and (must or chosen(case, 2)):
        deployable(case.body)


def deployable(config):
    """Sets an interface that exists and a program that compiles. The rest stays as generated."""
    if "interface" in config:
        config["interface"] = "eth0"
    elif "interfaces" in config:
        config["interfaces"] = ["eth0"]
    config.pop("exclude_interfaces", None)
    config.pop("netns", None)
    config.pop("name", None)
    for direction in ["ingress", "egress"]:
        program = config.get(direction)
        if isinstance(program, dict):
            xdp = direction == "ingress" and program.get("hook", "xdp") == "xdp"
            words = [("xdp", "xdp_md", "XDP_PASS"), ("tc", "__sk_buff", "0")][not xdp]
            source = SOURCE
            for word, text in zip(["SECTION", "CONTEXT", "VERDICT"], words):
                source = source.replace(word, text)
            program["source"] = source
            for field in ["defines", "entry", "files", "variables"]:
                program.pop(field, None)
            program.pop("max_ns_per_packet", None)
            for metric in (program.get("metrics") or [])[:1]:
                metric["map"] = "m"


@schemathesis.check
def only_listed_answers(ctx, response, case):
    """`default` is for 405 and for errors that no client can cause."""
    listed = case.operation.definition.raw["responses"]
    status = response.status_code
    if str(status) not in listed and status not in (404, 405):
        raise AssertionError(f"status {status} is not listed")


@schemathesis.check
def only_described_refusals(ctx, response, case):
    """The daemon refuses documents that the schema allows only for reasons in the description's words, or in the
    program's text."""
    if not positive(case) or response.status_code not in (400, 406, 413, 415, 421, 422):
        return
    problem = response.json()
    errors = problem["errors"]
    for error in errors:
        field, message = error.get("field", ""), error["message"]
        in_words = any(re.search(at, field) and re.search(words, message) for at, words in IN_WORDS)
        of_a_program = "BPF_MAP_TYPE" in repr(case.body) and re.search(OF_A_PROGRAM, field)
        if error["stage"] == "config" and not in_words and not of_a_program:
            raise AssertionError(f"the schema allows what is refused: {field}: {message}")
    detail = problem["detail"]
    of_a_chart = case.path.endswith(CHARTS) and re.search(OF_A_CHART, detail, re.DOTALL)
    of_names = case.path == "/v1/names" and re.search(OF_NAMES, detail, re.DOTALL)
    of_nodes = case.path.startswith("/v1/nodes/") and re.search(OF_NODES, detail, re.DOTALL)
    # `by` needs `top`, and names a number that the metrics have.
    known = of_a_chart or of_names or of_nodes or re.search("has no collector|it needs top|^by: ", detail)
    if not errors and not known:
        raise AssertionError(f"the schema allows what is refused: {detail}")


# A stream of events has no end: the client reads its beginning, and then hangs up.
HANG_UP = 0.2
send = requests.adapters.HTTPAdapter.send


def send_and_hang_up(self, request, **options):
    response = send(self, request, **{**options, "stream": True})
    if response.status_code != 200 or not request.url.split("?")[0].endswith(("/events", "/v1/changes")):
        return response
    end, content = time.monotonic() + HANG_UP, b""
    connection = response.raw._connection
    while time.monotonic() < end:
        if connection and connection.sock:
            connection.sock.settimeout(max(0.001, end - time.monotonic()))
        try:
            content += response.raw.read1()
        except Exception:
            break
    response._content = content[: content.rfind(b"\n") + 1]
    response.raw.close()
    return response


requests.adapters.HTTPAdapter.send = send_and_hang_up
