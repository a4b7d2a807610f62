// SPDX-License-Identifier: Apache-2.0 OR MIT
// A consumer of a ring of events (bench/bpf/events.bpf.c) with libbpf. Until SIGTERM it counts events, checks each, or
// prints each as JSON as a tool would; then it prints the number of received events. With `table` it reads a hash instead, each time that
// a line comes.
//   consumer PIN count|check|json|table
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define CPUS 1024
#define LATENCIES (1 << 22)

struct event {
	uint64_t serial, time, check;
	uint8_t source[4], destination[4];
	uint16_t source_port, destination_port;
	uint32_t cpu, flags, process, thread;
	int64_t result, offset, size;
	char name[16], path[64];
} __attribute__((packed, aligned(4)));

static volatile sig_atomic_t stop;
static unsigned long long delivered, gaps, disordered, damaged;
static uint64_t next_of[CPUS];
static uint64_t *latencies;
static size_t latency_count;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static const struct event *account(const void *data, size_t size)
{
	const struct event *e = (const void *)((const char *)data + size - sizeof(*e));
	uint64_t *next = &next_of[e->cpu % CPUS];

	delivered++;
	if (e->serial < *next)
		disordered++;
	else
		gaps += e->serial - *next;
	*next = e->serial + 1;
	return e;
}

static int count(void *context, void *data, size_t size)
{
	(void)context;
	account(data, size);
	return 0;
}

static int check(void *context, void *data, size_t size)
{
	const struct event *e = account(data, size);
	const uint64_t *words = data;
	uint64_t addresses, sum;

	(void)context;
	memcpy(&addresses, e->source, 8);
	sum = e->serial ^ e->time ^ addresses;
	for (size_t i = 0; i < (size - sizeof(*e)) / 8; i++)
		sum ^= words[i];
	damaged += sum != e->check;
	if (latency_count < LATENCIES)
		latencies[latency_count++] = now(CLOCK_MONOTONIC) - e->time;
	return 0;
}

static int json(void *context, void *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	static char hex[2 * 65536];
	const struct event *e = account(data, size);
	size_t payload = size - sizeof(*e);

	(void)context;
	printf("{\"event\":{\"serial\":%llu,\"time\":%llu,\"check\":%llu,\"source\":\"%u.%u.%u.%u\","
	       "\"destination\":\"%u.%u.%u.%u\",\"source_port\":%u,\"destination_port\":%u,\"cpu\":%u,\"flags\":%u,"
	       "\"process\":%u,\"thread\":%u,\"result\":%lld,\"offset\":%lld,\"size\":%lld,\"name\":\"%.16s\",\"path\":\"%.64s\"",
	       (unsigned long long)e->serial, (unsigned long long)e->time, (unsigned long long)e->check, e->source[0],
	       e->source[1], e->source[2], e->source[3], e->destination[0], e->destination[1], e->destination[2],
	       e->destination[3], ntohs(e->source_port), ntohs(e->destination_port), e->cpu, e->flags, e->process, e->thread,
	       (long long)e->result, (long long)e->offset, (long long)e->size, e->name, e->path);
	if (payload && payload <= sizeof(hex) / 2) {
		const uint8_t *bytes = data;

		for (size_t i = 0; i < payload; i++) {
			hex[2 * i] = digits[bytes[i] >> 4];
			hex[2 * i + 1] = digits[bytes[i] & 15];
		}
		printf(",\"data\":\"0x");
		fwrite(hex, 1, 2 * payload, stdout);
		printf("\"");
	}
	printf("}}\n");
	return 0;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static unsigned long long latency(double part)
{
	return latency_count ? latencies[(size_t)(part * (latency_count - 1))] : 0;
}

static int read_table(int map)
{
	char line[16];

	fprintf(stderr, "ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		static uint32_t keys[1024];
		static uint64_t values[1024];
		uint32_t batch, entries = 1024;
		unsigned long long sum = 0;
		uint64_t begun = now(CLOCK_PROCESS_CPUTIME_ID);

		if (bpf_map_lookup_batch(map, NULL, &batch, keys, values, &entries, NULL) && errno != ENOENT)
			return 1;
		for (uint32_t i = 0; i < entries; i++)
			sum += values[i];
		fprintf(stderr, "{\"entries\":%u,\"sum\":%llu,\"cpu\":%llu}\n", entries, sum,
			(unsigned long long)(now(CLOCK_PROCESS_CPUTIME_ID) - begun));
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct ring_buffer *ring;
	struct sigaction action = { .sa_handler = on_signal };
	uint64_t begun;
	int map, print;

	if (argc != 3 || (map = bpf_obj_get(argv[1])) < 0)
		return 2;
	if (!strcmp(argv[2], "table"))
		return read_table(map);
	print = !strcmp(argv[2], "json");
	latencies = malloc(LATENCIES * sizeof(*latencies));
	sigaction(SIGTERM, &action, NULL);
	ring = ring_buffer__new(map, print ? json : !strcmp(argv[2], "check") ? check : count, NULL, NULL);
	if (!ring || !latencies)
		return 1;
	fprintf(stderr, "ready\n");
	begun = now(CLOCK_PROCESS_CPUTIME_ID);
	while (!stop) {
		int n = ring_buffer__poll(ring, 100);

		if (n < 0 && n != -EINTR)
			return 1;
		if (print)
			fflush(stdout);
	}
	ring_buffer__consume(ring);
	fflush(stdout);
	begun = now(CLOCK_PROCESS_CPUTIME_ID) - begun;
	qsort(latencies, latency_count, sizeof(*latencies), by_size);
	fprintf(stderr,
		"{\"delivered\":%llu,\"gaps\":%llu,\"disordered\":%llu,\"damaged\":%llu,\"cpu\":%llu,\"median\":%llu,\"late\":%llu}\n",
		delivered, gaps, disordered, damaged, (unsigned long long)begun, latency(0.5), latency(0.99));
	ring_buffer__free(ring);
	return 0;
}
