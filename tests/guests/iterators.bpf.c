// XDP: loops over numbers with the kernel's iterators, like `bpf_for` and `bpf_repeat` of libbpf 1.2. They run on every
// kernel.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct numbers {
	__u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct numbers *it, int start, int end) __weak __ksym;
extern int *bpf_iter_num_next(struct numbers *it) __weak __ksym;
extern void bpf_iter_num_destroy(struct numbers *it) __weak __ksym;

#define FOR(i, start, end)                                                                         \
	for (struct numbers it __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),         \
	     *start_ __attribute__((unused)) = (bpf_iter_num_new(&it, (start), (end)), &it);        \
	     ({                                                                                    \
		     int *next_ = bpf_iter_num_next(&it);                                          \
		     next_ ? ((i) = *next_, (i) >= (start) && (i) < (end)) : 0;                    \
	     });)

__u64 table[16], sum, pairs, none, below, stopped, bytes;

SEC("xdp") int count(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length = end - data;
	int i, j;

	/* Computes the length before the loops. */
	asm volatile("" : "+r"(length));

	FOR(i, 0, 16)
		table[i & 15] += i;
	FOR(i, 0, 16)
		sum += table[i & 15];
	FOR(i, 0, 8)
		FOR(j, i, 8)
			pairs++;
	/* These two ranges are empty. */
	FOR(i, 5, 5)
		none++;
	FOR(i, 9, 3)
		none++;
	FOR(i, -3, 2)
		below += i + 3;
	FOR(i, 0, 1000) {
		if (i == 7)
			break;
		stopped++;
	}
	/* The packet decides the number of rounds. */
	length &= 63;
	FOR(i, 0, (int)length)
		bytes++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
