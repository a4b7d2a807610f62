// Headers of the kernel's own sources: a hash function, and the states of connections.
#include <linux/bpf.h>
#include <linux/jhash.h>
#include <linux/skbuff.h>
#include <net/sock.h>
#include <bpf/bpf_helpers.h>

static const char text[] = "Four score and seven years ago";
__u64 of_bytes, of_words, states;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	u32 words[] = { 1, 2, 3 };

	of_bytes = jhash(text, sizeof(text) - 1, 0);
	of_words += jhash2(words, 3, 7) == jhash_3words(1, 2, 3, 7) && jhash_2words(1, 2, 7) != jhash_1word(1, 7);
	states = TCP_ESTABLISHED + TCP_LISTEN;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
