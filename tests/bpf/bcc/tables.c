// Counts every packet in a table of each type that metrics can read, in the style of BCC.
struct flow { u32 saddr; u32 daddr; };
struct sums { u64 packets; u64 bytes; };
struct prefix { u32 bits; u32 address; };

BPF_HASH(hash, struct flow, struct sums, 64);
BPF_TABLE("lru_hash", u32, u64, lru_hash, 1024);
BPF_PERCPU_HASH(percpu_hash, u32, u64, 64);
BPF_TABLE("lru_percpu_hash", u32, u64, lru_percpu_hash, 1024);
BPF_ARRAY(array, uint64_t, 4);
BPF_PERCPU_ARRAY(percpu_array, u64, 4)__attributes__((SWAP, EXPORT));
BPF_HISTOGRAM(sizes);
BPF_LPM_TRIE(trie, struct prefix, u64, 64);
BPF_QUEUE(queue, struct sums, 16);
BPF_STACK(stack, u32, 16);
BPF_PERF_OUTPUT(events);
BPF_RINGBUF_OUTPUT(ring, 8);
BPF_PROG_ARRAY(programs, 4);

static inline u64 *entry(struct flow *flow)
{
	struct sums zero = {}, *sums = hash.lookup_or_try_init(flow, &zero);

	return sums ? &sums->packets : NULL;
}

static __always_inline int handler(struct CTXTYPE *ctx, struct pkt_metadata *md)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct eth_hdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);

	if (data + sizeof(*ethernet) + sizeof(*ip) > data_end || ethernet->proto != htons(ETH_P_IP))
		return PASS;
	struct flow flow = { ip->saddr, ip->daddr };
	u64 *packets = entry(&flow);
	if (packets)
		lock_xadd(packets, 1);
	struct sums *sums = hash.lookup(&flow);
	if (sums)
		lock_xadd(&sums->bytes, md->length);

	u32 one = 1;
	lru_hash.increment(one);
	lru_hash.atomic_increment(one, 2);
	percpu_hash.increment(one);
	lru_percpu_hash.increment(one);
	array.increment(3);
	percpu_array.increment(2, 2);
	sizes.increment(bpf_log2l(md->length));

	u64 zero = 0;
	struct prefix prefix = { 32, ip->daddr };
	u64 *hits = trie.lookup_or_try_init(&prefix, &zero);
	if (hits)
		lock_xadd(hits, 1);
	hits = array.lookup(&one);
	if (hits && *hits == 0) {
		*hits = 1;
		struct sums sample = { 1, md->length };
		queue.push(&sample, 0);
		stack.push(&one, 0);
		events.perf_submit(ctx, &sample, sizeof(sample));
		struct sums *room = ring.ringbuf_reserve(sizeof(*room));
		if (room) {
			*room = sample;
			ring.ringbuf_submit(room, 0);
		}
		percpu_hash.delete(&one);
		sample.packets = get_time_epoch();
		hash.update(&(struct flow){ 7, 7 }, &sample);
	}
	programs.call(ctx, 1);
	return DROP;
}
