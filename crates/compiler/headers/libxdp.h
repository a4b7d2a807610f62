/* XDP_RUN_CONFIG sets a program's priority for libxdp. Here the configuration sets it, so the values have no effect. */
#ifndef TWINPROBE_LIBXDP_H
#define TWINPROBE_LIBXDP_H

#define XDP_DEFAULT_RUN_PRIO 50
#define XDP_DEFAULT_CHAIN_CALL_ACTIONS (1 << XDP_PASS)
#define XDP_METADATA_SECTION "xdp_metadata"
#define XDP_DISPATCHER_VERSION 2
#define TWINPROBE_RUN_CONFIG(program) _##program __attribute__((section(".xdp_run_config"), used))
#define XDP_RUN_CONFIG(program) TWINPROBE_RUN_CONFIG(program)

#endif
