/* BCC's features that probes can't have. Each name gives an error with the reason and a replacement. */
#ifndef TWINPROBE_BCC_UNSUPPORTED_H
#define TWINPROBE_BCC_UNSUPPORTED_H

#define TBCC_REFUSE(message) _Static_assert(0, message)
#define TBCC_NO_TRACING(what) \
	TBCC_REFUSE(what " traces functions of the kernel; probes see packets: write a function of a packet, " \
		       "int count(struct CTXTYPE *ctx)")

#define TRACEPOINT_PROBE(...) TBCC_NO_TRACING("TRACEPOINT_PROBE"); static __attribute__((unused)) int twinprobe_refused(void *args)
#define RAW_TRACEPOINT_PROBE(...) \
	TBCC_NO_TRACING("RAW_TRACEPOINT_PROBE"); static __attribute__((unused)) int twinprobe_refused(void *ctx)
#define KFUNC_PROBE(...) TBCC_NO_TRACING("KFUNC_PROBE"); static __attribute__((unused)) int twinprobe_refused(void *ctx)
#define KRETFUNC_PROBE(...) TBCC_NO_TRACING("KRETFUNC_PROBE"); static __attribute__((unused)) int twinprobe_refused(void *ctx)
#define LSM_PROBE(...) TBCC_NO_TRACING("LSM_PROBE"); static __attribute__((unused)) int twinprobe_refused(void *ctx)
#define MODIFY_RETURN(...) TBCC_NO_TRACING("MODIFY_RETURN"); static __attribute__((unused)) int twinprobe_refused(void *ctx)
#define BPF_ITER(...) TBCC_NO_TRACING("BPF_ITER"); static __attribute__((unused)) int twinprobe_refused(void *ctx)

#define BPF_STACK_TRACE(...) \
	TBCC_REFUSE("BPF_STACK_TRACE holds calls of functions of the kernel; packets have none: leave it out")
#define BPF_STACK_TRACE_BUILDID(...) \
	TBCC_REFUSE("BPF_STACK_TRACE_BUILDID holds calls of functions of a program; packets have none: leave it out")
#define BPF_PERF_ARRAY(...) \
	TBCC_REFUSE("BPF_PERF_ARRAY reads hardware counters; the cost of a probe is in the answer to POST /v1/validate: leave it out")
#define BPF_CGROUP_ARRAY(...) \
	TBCC_REFUSE("BPF_CGROUP_ARRAY is filled with control groups by the program that loads it; at the hook tc bpf_skb_cgroup_id(skb) " \
		  "gives the id of the group")

#define TBCC_FILLED_FROM_OUTSIDE(what) \
	TBCC_REFUSE(what " is filled by the program that loads it, and twinprobe fills no tables; a probe that watches returns its " \
		       "hook's verdict to pass the packet on: leave the table out")
#define BPF_DEVMAP(...) TBCC_FILLED_FROM_OUTSIDE("BPF_DEVMAP")
#define BPF_CPUMAP(...) TBCC_FILLED_FROM_OUTSIDE("BPF_CPUMAP")
#define BPF_XSKMAP(...) TBCC_FILLED_FROM_OUTSIDE("BPF_XSKMAP")
#define BPF_SOCKMAP(...) TBCC_FILLED_FROM_OUTSIDE("BPF_SOCKMAP")
#define BPF_SOCKHASH(...) TBCC_FILLED_FROM_OUTSIDE("BPF_SOCKHASH")

#define TBCC_MAP_OF_MAPS(what) \
	TBCC_REFUSE(what " is filled by the program that loads it; the dialect libbpf has maps of maps with the maps in them: " \
		       "__array(values, struct {...}) and .values = {...}")
#define BPF_ARRAY_OF_MAPS(...) TBCC_MAP_OF_MAPS("BPF_ARRAY_OF_MAPS")
#define BPF_HASH_OF_MAPS(...) TBCC_MAP_OF_MAPS("BPF_HASH_OF_MAPS")

#define TBCC_NO_STORAGE(what) \
	TBCC_REFUSE(what " keeps state with what packets do not belong to; keep state by address and port in a BPF_HASH")
#define BPF_SK_STORAGE(...) TBCC_NO_STORAGE("BPF_SK_STORAGE")
#define BPF_INODE_STORAGE(...) TBCC_NO_STORAGE("BPF_INODE_STORAGE")
#define BPF_TASK_STORAGE(...) TBCC_NO_STORAGE("BPF_TASK_STORAGE")

#define TBCC_CHANGES(name, instead) \
static __attribute__((unused, unavailable("it changes the packet through BCC's copy of a header; " instead))) \
int name(/* any arguments */);
TBCC_CHANGES(incr_cksum_l3, "use bpf_l3_csum_replace() with verdict enforce")
TBCC_CHANGES(incr_cksum_l4, "use bpf_l4_csum_replace() with verdict enforce")
TBCC_CHANGES(bpf_dins_pkt, "use bpf_skb_store_bytes() with verdict enforce")

#endif
