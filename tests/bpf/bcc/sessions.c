// Counts packets in tables of both directions. The other source declares them "extern".
struct session {
	u64 in;
	u64 out;
#ifdef WIDE
	u64 more;
#endif
};

BPF_TABLE("hash", u32, struct session, sessions, 64);
BPF_TABLE("percpu_array", int, u64, cpus, 2);
BPF_ARRAY(own, u64, 1);

int count(struct CTXTYPE *ctx)
{
	u32 key = load_byte(ctx, 14);
	int zero = 0;
	struct session none = {}, *session = sessions.lookup_or_try_init(&key, &none);
	u64 *packets = cpus.lookup(&zero);

	if (session)
		lock_xadd(&session->FIELD, 1);
	if (packets)
		*packets += 1;
	own.increment(0);
	return 0;
}
