# What there is to run: `make help`. CI runs `make check`.
# Needed: Go, gcc, python3. Everything else the targets fetch themselves, pinned; on Debian and Ubuntu also g++ and Python's venv.

GO ?= go
# Lint vets the packages. Parallel tests wait for simulated GPUs more than they compute.
# Without DWARF tests link in half of the time; stacks need none of it.
TEST = $(GO) test -timeout 30m -vet=off -ldflags=-w -parallel 4
# Those whose tests take longest are first, so that others run beside them.
CHECKED = ./memory/... ./cdevice ./cdata ./flight/... ./device/... ./integration/soak ./internal/... ./interop/... ./pyextension/... ./share

SUITES = test-go test-python test-cuda test-cuda-13 test-cdata test-archery test-triton test-share test-sql test-programs test-distributed test-training

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(MAKEFILE_LIST)) # all targets

help: ## the targets
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z0-9-]+:.*## / && !seen[$$1]++ { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Tests
demo: tools ## send real batches Go -> PyArrow -> Go, and print what happened
	integration/run.sh --demo

test: tools ## everything: Go tests, then what others wrote, over the simulated driver and against PyArrow
	$(SIDE_BY_SIDE) $(SUITES)

tools:
	@command -v $${CXX:-g++} >/dev/null || ci/apt g++
	@$${PYTHON:-python3} -c 'import ensurepip, venv' 2>/dev/null || ci/apt python3-venv

# Two at a time, as they wait more than they compute; the output of each is printed when it has ended.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs=2 --output-sync=target

test-go:
	$(TEST) -shuffle=on ./memory/... ./cudasim/... ./cdevice/... ./...
test-python:
	integration/run.sh
test-cuda:
	integration/cuda/run.sh
test-cuda-13:
	integration/cuda/run.sh --cuda-13
test-cdata:
	integration/cdata/run.sh
test-archery:
	integration/archery/run.sh
test-triton:
	integration/triton/run.sh
test-share:
	integration/share/run.sh
test-distributed:
	examples/distributed/run.sh --test
test-training:
	examples/training/run.sh --test
test-sql:
	examples/sql/run.sh --test
test-programs:
	integration/programs/run.sh

check: tools ## what must pass before a change lands
	$(SIDE_BY_SIDE) lint race asan gpu gorgonia clang msan counts arm64 windows darwin go-versions python-newest wheels DARWIN=arm64:aarch64
	$(MAKE) --no-print-directory test

##@ Static checks
lint: cc ## formatting of Go and C, vet, fix, staticcheck, warnings of the C compiler, ruff, shellcheck, actionlint
	@unformatted=$$(gofmt -l . | grep -v '^build/'); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	ci/format-c --check
	$(GO) vet ./...
	$(GO) fix -diff ./...
	$(GO) tool -modfile=ci/tools/go.mod staticcheck ./...
	$(GO) -C examples/sql vet -tags=duckdb_arrow ./...
	$(GO) -C examples/sql fix -diff -tags=duckdb_arrow ./...
	$(GO) -C examples/sql tool -modfile=../../ci/tools/go.mod staticcheck -tags=duckdb_arrow ./...
	tools=$$(dirname "$$(ci/venv ci/tools/requirements.txt)") && $$tools/ruff check --quiet && $$tools/shellcheck \
		$$(grep -rlE '^#!/(usr/)?bin/(env )?(ba)?sh$$' --exclude-dir=build --exclude-dir=.git .) && \
		$(GO) tool -modfile=ci/tools/go.mod actionlint -shellcheck $$tools/shellcheck

format-c: ## the C and C++ sources, as .clang-format says
	ci/format-c

# -O2: only then does the compiler follow values, and warn of one that is used and was never set. The extension of the benchmarks
# needs the headers of Python, which not every machine has; its build has these warnings. The header of examples/driver is generated.
cc: ## the warnings of the C compiler: cgo's own code does not compile with these flags, so ours is checked apart
	mkdir -p build
	for f in $$(find . -name '*.c' -not -name '*_windows.c' -not -path './build/*' -not -path './bench/python/*' -not -path './examples/driver/*'); do \
		compiler=$${CC:-gcc}; \
		$$compiler -std=c11 -D_GNU_SOURCE -Icdevice/include -O2 -Wall -Wextra -Wpedantic -Werror -c -o build/$${compiler##*/}.o $$f || exit 1; \
	done

##@ Tests in other ways
# -short: fewer of the injected faults and of the changed bytes, and a short soak. Both modes check arithmetic with
# unsafe.Pointer (checkptr) too.
race: ## the race detector; with it, no unpinned Go pointer is stored in C memory
	GOEXPERIMENT=cgocheck2 $(TEST) -short -race $(CHECKED)

asan: ## the C half, and Go's accesses to C memory, under AddressSanitizer
	$(TEST) -short -asan $(CHECKED)

# Go that runs C, C that runs Go, and the simulated driver. The C traps where its behaviour is undefined.
BY_CLANG = ./internal/abi ./internal/bridge ./internal/schema ./internal/cstruct ./internal/cuda ./interop/dlpack ./memory/hostpinned ./pyextension/...
clang: ## the packages with C, by clang, their C checked for undefined behaviour; those of race and cudasim, too, with CLANG_ALL=1
	ci/apt clang
	CC='clang -fsanitize=undefined -fsanitize-trap=undefined' $(TEST) -short $(if $(CLANG_ALL),$(CHECKED) ./cudasim/...,$(BY_CLANG))
	$(MAKE) --no-print-directory cc CC=clang

# Without the packages that need a driver, which would have to be built for it, too, and without those that it stops in memory
# that Go wrote: clear of C memory, for one, counts as no write. The tests left out take minutes.
msan: ## MemorySanitizer: what Go or C reads of C memory was written
	ci/apt clang libclang-rt-dev
	CC=clang $(TEST) -short -msan -skip 'GiveTheirMemoryBack$$|TestCachesAreBounded$$' ./internal/abi ./internal/bridge ./internal/schema ./internal/cstruct

##@ Counts
counts: ## what hot paths cost, against an earlier revision: instructions, allocations, calls; apt-get installs valgrind
	ci/apt valgrind
	$(GO) run ./ci/counts

counts-accept: ## the lines of paths that have become more expensive, into docs/counts.txt
	ci/apt valgrind
	$(GO) run ./ci/counts -accept

##@ Other processors, systems and versions
# The C of exports and of the simulator, and programs that tests start. None needs arrow-go, whose compilation takes minutes.
ARM64_SAMPLE = ./device ./internal/abi ./internal/bridge ./internal/handle ./internal/live ./internal/memcopy ./ci/rules

arm64: ## a sample of the tests as programs of linux/arm64, which qemu-user runs; apt-get installs it and a cross compiler
	ci/arm64/go version
	ci/arm64/lacks/check
	ci/arm64/go vet $(ARM64_SAMPLE) ./cudasim
	ci/arm64/go test -vet=off -ldflags=-w -short $(ARM64_SAMPLE)
	ci/arm64/go test -vet=off -ldflags=-w -run 'TestRules$$/driver' ./cudasim -only 'process|pool'

# One package after the other: they have bounds of time, and qemu takes five times as long.
test-arm64: ## the Go tests of all packages that need no Python, in the same way (half an hour)
	ci/arm64/go version
	ci/arm64/lacks/check
	ci/arm64/go vet ./...
	ci/arm64/go test -timeout 60m -vet=off -ldflags=-w -short -p 1 $(CHECKED) ./cudasim/... ./ci/rules

# What programs on every system import, without the tools of this repository.
PORTABLE = ./cdata/... ./cdevice/... ./device/... ./flight/... ./internal/... ./interop/... ./memory/... ./pyextension/... ./share/...
VETTED = $(PORTABLE) ./cmd/... ./cudasim/... ./examples/...
WINDOWS = GOOS=windows GOARCH=amd64 CGO_ENABLED=1 CC=x86_64-w64-mingw32-gcc $(GO)
UNDER_WINE = $(WINDOWS) test -short -timeout 30m -vet=off -ldflags=-w -exec $(CURDIR)/ci/wine

test-portable: ## the tests of the CPU half: on a machine with Windows or macOS
	$(TEST) -short $(PORTABLE)

windows-tools:
	ci/apt gcc-mingw-w64-x86-64-posix wine wine64

windows: windows-tools ## Windows: vet of all that a program can import, and tests of a few packages under wine
	$(WINDOWS) vet $(VETTED)
	$(UNDER_WINE) ./internal/errno ./internal/bridge ./pyextension ./share

test-windows: windows-tools ## the tests of the CPU half under wine
	$(UNDER_WINE) $(PORTABLE)

DARWIN = arm64:aarch64 amd64:x86_64
darwin: ## macOS: vet of all that a program can import, with the C code compiled; DARWIN=arm64:aarch64 for one architecture
	for target in $(DARWIN); do \
		GOOS=darwin GOARCH=$${target%:*} CGO_ENABLED=1 CC="$(CURDIR)/ci/zig -target $${target#*:}-macos" $(GO) vet $(VETTED) || exit 1; \
	done

# The oldest Go that go.mod allows, and the newest; the other targets use the one of this machine. GOTOOLCHAIN downloads them.
GO_VERSIONS ?= go1.25.14 go1.27.4
BY_GO_VERSIONS = ./device ./internal/bridge ./internal/items ./internal/tree ./internal/testing/... ./interop/dlpack ./pyextension/...
go-versions: ## vet and tests by other versions of Go; every package with GO_VERSIONS_ALL=1
	for version in $(GO_VERSIONS); do \
		export GOTOOLCHAIN=$$version; \
		$(GO) version && $(GO) vet $(if $(GO_VERSIONS_ALL),./...,$(BY_GO_VERSIONS)) && \
			$(TEST) -short $(if $(GO_VERSIONS_ALL),$(CHECKED) ./cudasim/... && $(GO) -C examples/sql vet -tags=duckdb_arrow ./...,$(BY_GO_VERSIONS)) || exit 1; \
	done

python-newest: ## a sample of the tests in Python in the newest version: functions, processes, what the library asks of Python
	integration/pythons.sh $$(grep -oE 'Python :: 3\.[0-9]+' python/pyproject.toml | tail -n 1 | cut -d' ' -f3) \
		pyextension/test_functions.py pyextension/test_processes.py pyextension/test_capi.py

test-pythons: ## the tests of pyextension in each version of Python that the package claims (20 minutes; 1 GB of wheels for each, the first time)
	integration/pythons.sh

##@ GPUs
cudasim: ## the simulated CUDA driver, for any program; prints its path
	@$(GO) run ./cudasim/build

gpu: ## both halves of the kit for a GPU, with the simulated driver for one and no Go in reach of the second
	ci/gpu build build/gpu
	driver=$$($(GO) run ./cudasim/build) && python=$$(integration/cuda/venv.sh "$$driver") && \
		env -i PATH=/usr/bin:/bin CDEVICE_CUDA_DRIVER="$$driver" KIT_SIMULATED=1 KIT_SECONDS=2400 PYTHON="$$python" \
		CUDASIM=devices=2,pageable_async=1 build/gpu/gpu run

libcudf: ## the kit's programs for libcudf, built, and run as far as they need no GPU; 500 MB of wheels, the first time
	ci/gpu build build/libcudf libcudf
	driver=$$($(GO) run ./cudasim/build) && env -i PATH=/usr/bin:/bin CDEVICE_CUDA_DRIVER="$$driver" KIT_SIMULATED=1 KIT_SECONDS=1200 \
		CUDASIM=devices=2,pageable_async=1 build/libcudf/gpu run libcudf

gorgonia: ## the package for programs that use gorgonia.org/cu, which is built against cuda.h
	memory/cudaalloc/gorgonia/test.sh

##@ Releases
release: ## the files of a release, judged, in build/release
	ci/release/build

wheels: ## those of the Python package only
	ci/release/build wheels

##@ Long searches
JOBS ?= 2
mutants: ## each wait removed, one at a time: every one must turn the tests red (an hour or so)
	$(GO) run ./ci/mutants -j $(JOBS)

faults: ## every call of the driver fails once: tens of thousands, of which the tests take a sample
	CDEVICE_FAULTS=all $(GO) test -timeout 60m -run 'TestEachCall' ./cdevice ./memory/...

SOAKTIME ?= 10m
soak: ## random programs in all worlds, and two simulated GPUs under 200 goroutines that cancel, hold up and capture; the tests do seconds of it
	$(GO) test ./cudasim -count=1 -run TestOrder -runs 100
	RANDOM_PROGRAMS=2500 $(GO) test ./cudasim -count=1 -run 'TestRules$$'
	$(GO) test ./cdevice -count=1 -timeout 0 -run TestMissingWaitsAreReported -missing 30
	$(GO) test ./flight -count=1 -timeout 0 -run TestChangedMessages -changes 800
	$(GO) test -v -count=1 -timeout 0 ./internal/testing/metamorphic -run TestPrograms -seed 0 -for $(SOAKTIME)
	CDEVICE_SOAK=$(SOAKTIME) CDEVICE_SOAK_BOUND=100ms $(GO) test -v -count=1 -timeout 0 ./integration/soak

FUZZTIME ?= 60s
fuzz: ## look for new bad input; findings land in testdata/fuzz, commit them
	$(GO) test ./cdevice -run '^$$' -fuzz FuzzImport -fuzztime $(FUZZTIME)
	$(GO) test ./internal/schema -run '^$$' -fuzz FuzzImport -fuzztime $(FUZZTIME)
	$(GO) test ./internal/cstruct -run '^$$' -fuzz FuzzPlans -fuzztime $(FUZZTIME)
	$(GO) test ./internal/cstruct -run '^$$' -fuzz FuzzAccepted -fuzztime $(FUZZTIME)

HAMMERS ?= 20
hammer: ## threads that share memory without a lock, again and again: on arm64, a wrong order of memory shows here
	$(TEST) -count=$(HAMMERS) -shuffle=on -run 'Hammer|OrderOfMemory|BothSides|OnThreads|OtherThreads|ManyThreads|Goroutines|Stragglers|ConcurrentUse' \
		./internal/bridge ./internal/handle ./cdevice ./share

##@ Benchmarks
# With BASE=revision, this library against itself at another revision. ARGS are arguments of the benchmark, such as
# ARGS="-only import -columns 100".
ifndef BASE
bench: bench-peers bench-python ## side by side with other Arrow libraries (5 minutes or so); fails if a promised ratio does not hold
	$(GO) run ./bench -check -out bench/results/latest.json $(ARGS)
	$(GO) run ./bench -pages docs
else
bench:
	bench/compare.sh $(BASE) $(ARGS)
endif

bench-quick: bench-peers ## the same in a minute: few turns, and batches of 1 and of 100 columns
	$(GO) run ./bench -quick -round 2ms -rounds 3 $(ARGS)

bench-peers: ## Arrow C++, nanoarrow and arrow-rs for the benchmarks: those that this machine can build
	bench/peers/build.sh

bench-python: ## the Python extensions that the benchmarks call: those that this machine can build
	bench/python/build.sh >/dev/null

clean: ## removes what the targets have built
	rm -rf build
