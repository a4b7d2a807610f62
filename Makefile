# Commands for people and CI. ./demo and ./test install make and Rust if these are missing and then call `make demo` and
# `make test`, which install the rest. docs/tests.md has a table of all commands with their durations.
#
#   make demo    build, start a daemon, push probes, send traffic, compare what is counted with what was sent, also
#                through a kill -9, clean up; KEEP=1 goes on for an hour, with the web console, until Ctrl-C
#   make test    formatting, lints, all tests, the demo, other kernels and the console among them; SCALE=0.1 for a tenth of
#                the repetitions, default 1; TESTS="..." chooses, by expressions of cargo-nextest
#   make test-kernels  the core tests of the kernel on Linux 5.10, 6.1 and 6.12 under qemu; part of make test
#   make test-arm64  the same on Linux 6.1 for arm64, with the daemon built for arm64; not part of make test
#   make test-console  the console in Chromium against the daemon; part of make test
#   make test-fleet  the objects of Kubernetes against a real API server, which Go builds first; not part of make test
#   make test-streams  windows into every receiver, those among them that Go builds first; not part of make test
#   make test-timed  the tests that measure time or cost, on an idle machine; part of make bench
#   make soak    all tests with the full counts; takes a night, or PART=1/4 a quarter of it
#   make bench   the tests that measure time, then the experiments of bench/: writes the pages below docs/benchmarks/, in two
#                hours. QUICK=1: each experiment with few repetitions, a minute, writes nothing; part of make soak.
#                BENCH="NAME..." chooses experiments, see bench/README.md
#   make console build the web console, which the daemon's build embeds; part of build and test; needs node and npm
#   make probes  write the sources of probes/ into their configurations, and the lists of the probes
#   make docs    the documentation as a site, target/docs; builds mdBook first, for minutes
#   make reference  write docs/reference/ from the schema, the commands' help and a daemon's metrics
#   make deb     the Debian package of the built binary, target/twinprobe.deb
#   make image   the container image of the built binary, by podman; on Debian
#   make manifests  render the Helm chart of deploy/ into the plain manifests beside it
#   make setup   install missing packages (clang, libbpf headers, ..., Rust if it is too old)

SCALE ?= 1
export TWINPROBE_SCALE = $(SCALE)
export PATH := $(PATH):/usr/sbin:/sbin
CARGO ?= cargo

# Tests and benchmarks load programs into the kernel, so cargo runs them as root.
ifneq ($(shell id -u),0)
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export CARGO_TARGET_$(HOST)_RUNNER := sudo -E
endif

.PHONY: all build setup check format console test-build test test-console test-kernels test-fleet test-streams test-arm64 test-timed soak bench probes docs reference manifests deb image demo

all: build

setup:
	@sh setup/install.sh

# This build leaves the tests out: together with them the binary would have their fault points. The sender of windows
# shares its libraries.
build: console
	$(CARGO) build --release -p twinprobe -p twinprobe-streams

# The console is built again only if one of its sources, or a probe of its library, has changed.
CONSOLE := $(shell find console/src console/*.json console/*.mjs probes/*/*.json probes/index.json api/openapi.yaml -type f)
console: setup console/dist/index.html
console/dist/index.html: console/node_modules/.package-lock.json $(CONSOLE)
	cd console && npm run --silent build
console/node_modules/.package-lock.json: console/package-lock.json
	cd console && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

check: console
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Builds all tests and the binaries that they run, with clippy as the compiler of our own packages: lints and tests share
# one build. Cargo compiles dependencies again if the selected packages need other features of them, or another profile:
# therefore each call below and in tests/kernels/run.sh is for the default members and the profile `dev`, and selects
# targets only.
test-build: console
	$(CARGO) build --bins --tests

test test-kernels test-console test-fleet test-streams test-timed test-arm64 soak: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
# The argument that `cargo clippy -- -D warnings` passes on.
test test-kernels test-console test-fleet test-streams test-timed test-arm64 soak: export CLIPPY_ARGS := -Dwarnings__CLIPPY_HACKERY__

format: setup
	@$(CARGO) fmt --all --check

# Tests mostly wait for the kernel, so the number of parallel tests is that of the processors plus two.
# .config/nextest.toml has their order.
TEST_TOOLS := $(or $(CARGO_TARGET_DIR),target)/tmp/test-tools
export PATH := $(abspath $(TEST_TOOLS))/bin:$(PATH)
export NEXTEST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 2)))
PROFILE := default
TESTS :=
# run-tests ARGUMENTS: runs the tests, then says what failed, as the end of the output.
define run-tests
	@sh setup/test-tools.sh $(TEST_TOOLS)
	@rm -f $(or $(CARGO_TARGET_DIR),target)/nextest/$(PROFILE)/junit.xml
	@cargo nextest run --profile $(PROFILE) $(if $(TESTS),-E '$(TESTS)') $1 || true
	@python3 tests/summary.py $(or $(CARGO_TARGET_DIR),target)/nextest/$(PROFILE)/junit.xml $(SLOWEST)
endef

test: format test-build
	$(call run-tests)

# The table in docs/tests.md explains the groups.
test-kernels: TESTS := binary(kernels)
test-kernels: test-build
	$(call run-tests)

test-console: TESTS := binary(console)
test-console: test-build
	$(call run-tests)

test-fleet: TESTS := binary(fleet)
test-fleet: test-build
	@sh setup/kubernetes.sh $(or $(CARGO_TARGET_DIR),target)/tmp/kubernetes
	@sh setup/deploy-tools.sh $(TOOLS) helm
	$(call run-tests,--ignore-default-filter)

test-streams: TESTS := binary(streams)
test-streams: test-build
	@sh setup/test-tools.sh $(TEST_TOOLS) go
	$(call run-tests,--ignore-default-filter)

test-timed: PROFILE := timed
test-timed: TESTS := test(/::timed$$/)
test-timed: console
	$(CARGO) build --release
	$(call run-tests,--release --run-ignored only)

test-arm64: test-build
	@sh setup/install.sh --arm64
	@sh tests/kernels/run.sh arm64

soak: SCALE := full
soak: PROFILE := soak
soak: format test-build
	$(CARGO) clippy -p twinprobe-bench --all-targets -- -D warnings
	$(CARGO) build --release
	$(CARGO) test --release -p twinprobe-bench
	$(call run-tests,--run-ignored all $(if $(PART),--partition slice:$(PART)))

# The profile `bench` compiles the traffic generator with optimizations, and writes to the directory of `release`.
bench: console $(if $(QUICK)$(BENCH),,test-timed)
	@sh setup/test-tools.sh $(TEST_TOOLS)
	$(CARGO) build --release -p twinprobe -p twinprobe-streams
	$(CARGO) run --profile bench -p twinprobe-bench -- $(if $(QUICK),--quick) $(BENCH)

probes:
	$(CARGO) run --quiet -p twinprobe-tests --bin inline-probes

reference: test-build
	UPDATE_GOLDEN=1 $(CARGO) test --test docs -- --test-threads=1 the_reference

TOOLS := $(or $(CARGO_TARGET_DIR),target)/tmp/deploy-tools

docs:
	@sh setup/deploy-tools.sh $(TOOLS) mdbook
	@sh docs/build.sh $(TOOLS)/bin/mdbook target/docs

manifests:
	@sh setup/deploy-tools.sh $(TOOLS) helm
	@sh deploy/kubernetes/render.sh $(TOOLS)/bin/helm >deploy/kubernetes/twinprobe.yaml

deb: build
	@sh deploy/debian/build.sh target/twinprobe.deb

image: build
	$(CARGO) build --release -p twinprobe-operator
	@sh deploy/image/build.sh twinprobe

# Only `KEEP=1` shows the console. Otherwise the demo needs neither npm nor the packages for tests.
demo: $(if $(KEEP),console)
	@$(if $(KEEP),,sh setup/install.sh --demo )bash tests/demo.sh
