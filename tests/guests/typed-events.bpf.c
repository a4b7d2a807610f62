// A perf event array whose definition names the type of events, and a priority for libxdp.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <xdp/xdp_helpers.h>
#include <xdp/prog_dispatcher.h>

struct event {
	__u64 time;
	__u32 length;
	__u32 interface;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

__u64 packets;

struct {
	__uint(priority, 20);
	__uint(XDP_PASS, 1);
} XDP_RUN_CONFIG(see);

SEC("xdp")
int see(struct xdp_md *ctx)
{
	struct event event = { bpf_ktime_get_ns(), ctx->data_end - ctx->data, ctx->ingress_ifindex };

	bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &event, sizeof(event));
	__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

__uint(loader_version, XDP_DISPATCHER_VERSION) SEC(XDP_METADATA_SECTION);
char LICENSE[] SEC("license") = "GPL";
