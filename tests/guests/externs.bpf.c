// Options of the kernel's configuration, and kernel functions that may be missing.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

extern unsigned int LINUX_KERNEL_VERSION __kconfig;
extern bool CONFIG_BPF_SYSCALL __kconfig __weak;
extern int CONFIG_NO_SUCH_OPTION __kconfig __weak;
extern int bpf_xdp_metadata_rx_no_such_hint(const struct xdp_md *ctx, __u32 *hash) __ksym __weak;

__u64 version, present, missing, hints;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	version = LINUX_KERNEL_VERSION;
	present = CONFIG_BPF_SYSCALL;
	missing = CONFIG_NO_SUCH_OPTION;
	if (bpf_xdp_metadata_rx_no_such_hint) {
		__u32 hash = 0;

		bpf_xdp_metadata_rx_no_such_hint(ctx, &hash);
		hints = hash;
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
