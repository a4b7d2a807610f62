// SPDX-License-Identifier: Apache-2.0 OR MIT
// A minimal consumer of a ring buffer with libbpf: loads an object, attaches it to an interface, and until SIGTERM counts
// events, or prints them as JSON as a tool would.
//   consumer OBJECT INTERFACE count|json
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

struct event {
	uint64_t serial, started, ended;
	uint8_t source[4], destination[4];
	uint16_t source_port, destination_port;
	uint32_t process, thread, cpu, flags;
	int64_t result, offset, size;
	char name[16], path[64];
	uint8_t data[];
} __attribute__((packed));

static volatile sig_atomic_t stop;
static unsigned long long delivered;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static int count(void *context, void *data, size_t size)
{
	(void)context, (void)data, (void)size;
	delivered++;
	return 0;
}

static int json(void *context, void *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	static char hex[2 * 65536 + 1];
	const struct event *e = data;
	size_t payload = size - sizeof(*e);

	(void)context;
	delivered++;
	printf("{\"event\":{\"serial\":%llu,\"started\":%llu,\"ended\":%llu,\"source\":\"%u.%u.%u.%u\","
	       "\"destination\":\"%u.%u.%u.%u\",\"source_port\":%u,\"destination_port\":%u,\"process\":%u,\"thread\":%u,"
	       "\"cpu\":%u,\"flags\":%u,\"result\":%lld,\"offset\":%lld,\"size\":%lld,\"name\":\"%.16s\",\"path\":\"%.64s\"",
	       (unsigned long long)e->serial, (unsigned long long)e->started, (unsigned long long)e->ended, e->source[0],
	       e->source[1], e->source[2], e->source[3], e->destination[0], e->destination[1], e->destination[2],
	       e->destination[3], ntohs(e->source_port), ntohs(e->destination_port), e->process, e->thread, e->cpu,
	       e->flags, (long long)e->result, (long long)e->offset, (long long)e->size, e->name, e->path);
	if (payload && payload <= 65536) {
		for (size_t i = 0; i < payload; i++) {
			hex[2 * i] = digits[e->data[i] >> 4];
			hex[2 * i + 1] = digits[e->data[i] & 15];
		}
		printf(",\"data\":\"0x");
		fwrite(hex, 1, 2 * payload, stdout);
		printf("\"");
	}
	printf("}}\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct bpf_object *object;
	struct bpf_program *program;
	struct ring_buffer *ring;
	struct bpf_link *link;
	int print;

	if (argc != 4)
		return 2;
	print = !strcmp(argv[3], "json");
	signal(SIGTERM, on_signal);
	object = bpf_object__open_file(argv[1], NULL);
	if (!object || bpf_object__load(object))
		return 1;
	program = bpf_object__find_program_by_name(object, "report");
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "events"), print ? json : count, NULL, NULL);
	if (!program || !ring)
		return 1;
	link = bpf_program__attach_xdp(program, if_nametoindex(argv[2]));
	if (!link)
		return 1;
	fprintf(stderr, "ready\n");
	while (!stop) {
		int n = ring_buffer__poll(ring, 100);

		if (n < 0 && n != -EINTR)
			return 1;
		if (print)
			fflush(stdout);
	}
	bpf_link__destroy(link);
	ring_buffer__consume(ring);
	fflush(stdout);

	uint32_t key = 1;
	unsigned long long lost = 0;

	bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "counts"), &key, &lost);
	fprintf(stderr, "delivered %llu lost %llu\n", delivered, lost);
	ring_buffer__free(ring);
	bpf_object__close(object);
	return 0;
}
