# Commands for people and CI. ./demo and ./test install make and Rust if these are missing and then call `make demo` and
# `make test`, which install the rest by themselves.
#
#   make demo    build, start a daemon, push probes, send traffic, compare what is counted with what was sent, also
#                through a kill -9, clean up; KEEP=1 goes on for an hour, with the web console, until Ctrl-C
#   make test    formatting, lints, all tests, the demo among them; SCALE=0.1 for a tenth of the repetitions, default 1; LANES=1 for
#                one group of integration tests at a time, default 3
#   make test-kernels  the core tests of the kernel on Linux 5.10, 6.1 and 6.12 under qemu; part of make test; 3 minutes
#   make test-arm64  the same on Linux 6.1 for arm64, with the agent built for arm64; not part of make test; 8 minutes after make test
#   make soak    all tests with the full counts; takes hours
#   make bench   the experiments of bench/: writes docs/benchmarks.md and its figures, in two hours. QUICK=1: each
#                with few repetitions, a minute, writes nothing; part of make test. BENCH="NAME..." chooses, see bench/README.md
#   make console build the web console, which the daemon's build embeds; part of build and test; needs node and npm
#   make test-console  the console in Chromium against the daemon; part of make test; 80 s
#   make test-bench  each experiment with few repetitions, in a minute; part of make test
#   make probes  write the sources of probes/ into their configurations, and the lists of the probes
#   make docs    the documentation as a site, target/docs; builds mdBook first, for minutes
#   make reference  write docs/reference/ from the schema, the commands' help and a daemon's metrics
#   make deb     the Debian package of the built binary, target/twinprobe.deb
#   make image   the container image of the built binary, by podman; on Debian
#   make manifests  render the Helm chart of deploy/ into the plain manifests beside it
#   make setup   install missing packages (clang, libbpf headers, ..., Rust if it is too old)

SCALE ?= 1
LANES ?= 3
export TWINPROBE_SCALE := $(SCALE)
export PATH := $(PATH):/usr/sbin:/sbin
CARGO ?= cargo

# Tests and benchmarks load programs into the kernel, so cargo runs them as root.
ifneq ($(shell id -u),0)
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export CARGO_TARGET_$(HOST)_RUNNER := sudo -E
endif

.PHONY: all build setup check console test-build test test-console test-kernels test-arm64 test-bench soak bench probes docs reference manifests deb image demo

all: build

setup:
	@sh setup/install.sh

build: console
	$(CARGO) build --release --workspace

# The console is built again only if one of its sources, or a probe of its library, has changed.
CONSOLE := $(shell find console/src console/*.json console/*.mjs probes/*/*.json probes/index.json -type f)
console: setup console/dist/index.html
console/dist/index.html: console/node_modules/.package-lock.json $(CONSOLE)
	cd console && npm run --silent build
console/node_modules/.package-lock.json: console/package-lock.json
	cd console && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

check: console
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# Builds all tests and the binaries that they run in one build. Cargo compiles dependencies again if the selected
# packages need other features of them, or another profile: therefore each call below, in tests/kernels/run.sh and in
# `check` is for the whole workspace and for release, and selects targets only.
test-build: console
	$(CARGO) build --release --workspace --bins --tests

# Integration tests mostly wait for the kernel, so several groups run at the same time, the long ones first. The tests of
# one group run one after the other. Those below run alone: they measure delays, occupy a processor, or look for objects
# in the kernel that other tests have as well.
LONG := deploy crashes attach maps security export windows
GROUPS := $(LONG) $(filter-out $(LONG),$(notdir $(wildcard tests/tests/*)))
ALONE := crowd:: grace_period:: schedule:: a_long_poll_ends_with_the_next_window readings_keep_their_latency \
	a_crowd_of_readers_does_not_stop_the_clock nothing_is_left_of_a_probe_with_events \
	a_thousand_windows_a_second expedited:: probes_cost_what_their_readmes_say lifecycle:: capabilities:: \
	programs_see_what_was_captured_when_it_was a_replay_is_fast
WITHOUT_KERNEL := $(sort $(basename $(notdir $(wildcard crates/*/tests/*.rs))))
INTEGRATION := $(CARGO) test --release --workspace

test: check test-build
	$(CARGO) test --release --workspace --lib --bins
	$(CARGO) test --release --workspace --doc
	$(INTEGRATION) $(WITHOUT_KERNEL:%=--test %)
	$(MAKE) --no-print-directory --jobs=$(LANES) --keep-going --output-sync=target $(GROUPS:%=group-%)
	$(INTEGRATION) $(GROUPS:%=--test %) -- --test-threads=1 $(ALONE)
	$(INTEGRATION) --test quick
	@bash console/tests/run.sh
	@sh tests/kernels/run.sh

group-%:
	$(INTEGRATION) --test $* -- --test-threads=1 $(ALONE:%=--skip %)

test-bench: test-build
	$(INTEGRATION) --test quick -- --nocapture

test-console: test-build
	@bash console/tests/run.sh

test-kernels: test-build
	@sh tests/kernels/run.sh

test-arm64: test-build
	@sh setup/install.sh --arm64
	@sh tests/kernels/run.sh arm64

soak:
	$(MAKE) test SCALE=full

# The profile `bench` compiles the traffic generator with optimizations, and lies where `release` does.
bench: build
	$(CARGO) run --profile bench -p twinprobe-bench -- $(if $(QUICK),--quick) $(BENCH)

probes:
	$(CARGO) run --quiet -p twinprobe-tests --bin inline-probes

reference: test-build
	UPDATE_GOLDEN=1 $(INTEGRATION) --test docs -- --test-threads=1 the_reference

TOOLS := $(or $(CARGO_TARGET_DIR),target)/tmp/deploy-tools

docs:
	@sh setup/deploy-tools.sh $(TOOLS) mdbook
	@sh docs/build.sh $(TOOLS)/bin/mdbook target/docs

manifests:
	@sh setup/deploy-tools.sh $(TOOLS) helm
	@sh deploy/kubernetes/render.sh $(TOOLS)/bin/helm >deploy/kubernetes/twinprobe.yaml

deb: build
	@sh setup/deploy-tools.sh $(TOOLS) cargo-deb
	@PATH="$(abspath $(TOOLS))/bin:$$PATH" sh deploy/debian/build.sh target/twinprobe.deb

image: build
	@sh deploy/image/build.sh twinprobe

demo: console
	@bash tests/demo.sh
