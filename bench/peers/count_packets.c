// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counts packets in user space and does nothing else with them, as fast as each way allows: an upper bound
// for a monitor there.
//   count_packets packet|xdp INTERFACE
// `packet` is a packet socket with a ring of blocks (TPACKET_V3), `xdp` an AF_XDP socket of queue 0, which copies packets
// since veth can't do without. Says `ready`; at SIGINT says how many packets it has seen, `seen N`.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <bpf/bpf.h>

#define BLOCK (1u << 20)
#define BLOCKS 64u
#define FRAME 2048u
#define FRAMES 8192u

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

static volatile sig_atomic_t stop;
static unsigned long long seen;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

// Tells whether to go on, once there are packets or a signal came.
static int wait_for(int socket)
{
	struct pollfd pollfd = { .fd = socket, .events = POLLIN };

	return !stop && (poll(&pollfd, 1, 100) >= 0 || errno == EINTR);
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static void count_by_packet_socket(unsigned interface)
{
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), version = TPACKET_V3;
	struct tpacket_req3 ring = {
		.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = FRAME,
		.tp_frame_nr = BLOCK / FRAME * BLOCKS, .tp_retire_blk_tov = 10,
	};
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)interface,
	};
	char *blocks;

	check(fd < 0, "socket");
	check(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)), "PACKET_VERSION");
	check(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)), "PACKET_RX_RING");
	blocks = mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(blocks == MAP_FAILED, "mmap");
	check(bind(fd, (struct sockaddr *)&address, sizeof(address)), "bind");
	ready();
	for (unsigned next = 0;; next = (next + 1) % BLOCKS) {
		struct tpacket_block_desc *block = (void *)(blocks + (size_t)next * BLOCK);

		while (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
			if (!wait_for(fd))
				return;
		seen += block->hdr.bh1.num_pkts;
		__atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
}

// Sends the packets of each queue to the socket that is in the map.
static int redirect(int sockets)
{
	struct bpf_insn program[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1,
		  .off = offsetof(struct xdp_md, rx_queue_index) },
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = sockets },
		{ 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	return bpf_prog_load(BPF_PROG_TYPE_XDP, "count_packets", "GPL", program,
			     sizeof(program) / sizeof(*program), NULL);
}

static void *ring_of(int fd, const struct xdp_ring_offset *offsets, size_t entry, off_t where)
{
	void *ring = mmap(NULL, offsets->desc + FRAMES * entry, PROT_READ | PROT_WRITE, MAP_SHARED, fd, where);

	check(ring == MAP_FAILED, "mmap a ring");
	return ring;
}

static void count_by_xdp_socket(unsigned interface)
{
	int fd = socket(AF_XDP, SOCK_RAW, 0), size = FRAMES, sockets, program;
	unsigned queue = 0, got = 0, given = FRAMES;
	struct xdp_umem_reg memory = { .len = (__u64)FRAME * FRAMES, .chunk_size = FRAME };
	struct xdp_mmap_offsets offsets;
	socklen_t length = sizeof(offsets);
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = interface };
	char *received, *free_frames;

	check(fd < 0, "socket");
	memory.addr = (uintptr_t)mmap(NULL, memory.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(memory.addr == (uintptr_t)MAP_FAILED, "mmap");
	check(setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &memory, sizeof(memory)), "XDP_UMEM_REG");
	check(setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &size, sizeof(size)), "XDP_UMEM_FILL_RING");
	check(setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &size, sizeof(size)), "XDP_UMEM_COMPLETION_RING");
	check(setsockopt(fd, SOL_XDP, XDP_RX_RING, &size, sizeof(size)), "XDP_RX_RING");
	check(getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length), "XDP_MMAP_OFFSETS");
	received = ring_of(fd, &offsets.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
	free_frames = ring_of(fd, &offsets.fr, sizeof(__u64), XDP_UMEM_PGOFF_FILL_RING);
	for (unsigned frame = 0; frame < FRAMES; frame++)
		((__u64 *)(free_frames + offsets.fr.desc))[frame] = (__u64)frame * FRAME;
	__atomic_store_n((unsigned *)(free_frames + offsets.fr.producer), given, __ATOMIC_RELEASE);
	check(bind(fd, (struct sockaddr *)&address, sizeof(address)), "bind");
	sockets = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "sockets", sizeof(queue), sizeof(fd), 1, NULL);
	check(sockets < 0, "a map of sockets");
	check(bpf_map_update_elem(sockets, &queue, &fd, 0), "the map of sockets");
	program = redirect(sockets);
	check(program < 0, "load a program");
	check(bpf_link_create(program, (int)interface, BPF_XDP, NULL) < 0, "attach a program");
	ready();
	while (!stop) {
		unsigned until = __atomic_load_n((unsigned *)(received + offsets.rx.producer), __ATOMIC_ACQUIRE);

		if (got == until)
			wait_for(fd);
		for (; got != until; got++, given++) {
			struct xdp_desc *packet = (struct xdp_desc *)(received + offsets.rx.desc) + got % FRAMES;

			((__u64 *)(free_frames + offsets.fr.desc))[given % FRAMES] = packet->addr / FRAME * FRAME;
			seen++;
		}
		__atomic_store_n((unsigned *)(free_frames + offsets.fr.producer), given, __ATOMIC_RELEASE);
		__atomic_store_n((unsigned *)(received + offsets.rx.consumer), got, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	unsigned interface;

	if (argc != 3 || (strcmp(argv[1], "packet") && strcmp(argv[1], "xdp"))) {
		fprintf(stderr, "usage: %s packet|xdp INTERFACE\n", argv[0]);
		return 2;
	}
	interface = if_nametoindex(argv[2]);
	check(!interface, argv[2]);
	sigaction(SIGINT, &action, NULL);
	(strcmp(argv[1], "xdp") ? count_by_packet_socket : count_by_xdp_socket)(interface);
	printf("seen %llu\n", seen);
	return 0;
}
