# The verbs of the project. `make demo` and `make test` do all the set-up that a fresh machine needs.
SHELL := /bin/bash
PRESET ?= release
BUILD := build/$(PRESET)
# Two cores and a gigabyte per compiler: more jobs only swap. Override with JOBS=N.
JOBS ?= $(shell nproc)
# Tests that want both cores say so (PROCESSORS), and run alone.
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)
CLANG_FORMAT ?= clang-format

BOOTSTRAP := deploy/bootstrap.sh
NINJA := cmake --build --preset $(PRESET) -j $(JOBS)

.NOTPARALLEL:
.PHONY: bootstrap configure build programs demo test unit asan tsan fuzz chaos chaos-sim check bench format package test-deploy \
  release clean help
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

bootstrap: ## install what building and testing needs, with apt (idempotent)
	@$(BOOTSTRAP) test

configure:
	@[ -f $(BUILD)/build.ninja ] || { echo "build: configuring $(BUILD)"; cmake --preset $(PRESET) >/dev/null; }

build: bootstrap configure ## build everything: programs, tests, benchmarks
	@echo "build: everything (from nothing some 16 minutes on two cores; seconds when little has changed)"
	$(NINJA)

programs:
	@$(BOOTSTRAP) build
	@$(MAKE) --no-print-directory configure
	@echo "build: the daemon, its workers and the shell (from nothing some 9 minutes on two cores)"
	@$(NINJA) --target programs

demo: programs ## a whole cluster on this machine, more models than GPU memory, a killed worker (KEEP=1 leaves it running)
	deploy/demo.sh $(if $(KEEP),--keep)

# Tests with sanitizers compute, and most others wait for daemons: so they run beside each other, and those that compute give way.
test: release-tests asan-build ## every test: the unit and actor tiers under ASan and UBSan, all others in the release build
	@echo "tests: those with sanitizers write to build/asan-tests.log, and the others here"
	@nice $(CTEST) --test-dir build/asan -L 'unit|actors' >build/asan-tests.log 2>&1 & sanitized=$$!; \
	$(CTEST) --test-dir $(BUILD) -LE sanitized; others=$$?; \
	wait $$sanitized || { cat build/asan-tests.log; exit 1; }; \
	tail -n 4 build/asan-tests.log; exit $$others

.PHONY: release-tests
release-tests: bootstrap configure
	@echo "build: the programs and the tests that run without sanitizers (from nothing some 13 minutes on two cores)"
	@$(NINJA) --target release_tests

unit: build ## only the unit and actor tiers, release build
	$(CTEST) --test-dir $(BUILD) -L 'unit|actors|architecture'

chaos-sim: build ## N schedules of faults on simulated clusters (N=10000, FROM=1)
	$(BUILD)/bin/troupe chaos-sim --from $(or $(FROM),1) --schedules $(or $(N),10000) --jobs $(JOBS)

.PHONY: asan-build
asan-build: bootstrap
	@[ -f build/asan/build.ninja ] || cmake --preset asan >/dev/null
	cmake --build --preset asan -j $(JOBS) --target quick_tests

asan: asan-build ## the unit and actor tiers under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CTEST) --test-dir build/asan -L 'unit|actors'

tsan: bootstrap ## the unit and actor tiers under ThreadSanitizer (by hand: slow)
	@[ -f build/tsan/build.ninja ] || cmake --preset tsan >/dev/null
	cmake --build --preset tsan -j $(JOBS) --target quick_tests
	$(CTEST) --test-dir build/tsan -L 'unit|actors'

fuzz: ## every libFuzzer target for MINUTES=n (or SECONDS=n) each, JOBS at a time; tests/fuzz/README.md
	@$(BOOTSTRAP) fuzz
	@[ -f build/fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
	cmake --build --preset fuzz -j $(JOBS)
	python3 tests/fuzz/fuzz.py build/fuzz --seconds $(or $(SECONDS),$$(( $(or $(MINUTES),1) * 60 ))) --jobs $(JOBS)

chaos: build ## real processes, killed and cut for three minutes (MINUTES=30: longer; SEED=N: another plan); build/chaos
	TROUPE_BUILD_DIR=$(BUILD) OMP_WAIT_POLICY=passive tests/chaos/chaos.py --seconds $$(( $(or $(MINUTES),3) * 60 )) --seed $(or $(SEED),1)

check: bootstrap configure ## format, house rules, warnings as errors, clang-tidy on what changed
	deploy/check.sh $(BUILD)
	@$(NINJA) --target release_tests benches
	@$(MAKE) --no-print-directory asan-build

bench: build bench-baselines ## invoke, engine, swap and functions; writes build/bench/AREA.json
	bench/run.sh all

.PHONY: benches
benches: bootstrap configure ## compile the benchmarks, and run none
	@$(NINJA) --target benches

.PHONY: bench-baselines
bench-baselines:
	@$(BOOTSTRAP) bench

bench-%: build bench-baselines
	bench/run.sh $*

format: ## rewrite the sources in the house format
	git ls-files '*.hpp' '*.cpp' '*.cu' | xargs $(CLANG_FORMAT) -i

package: programs ## Debian packages of the release build, into build/release/packages
	@$(NINJA) --target package_files
	cd $(BUILD) && cpack --config CPackConfig.cmake

test-deploy: package deploy-tests ## packages, units, playbooks: a cluster on three hosts that are made here (some 10 minutes)

.PHONY: deploy-tests
deploy-tests: # of packages that are there
	@$(BOOTSTRAP) deploy
	/usr/bin/python3 -B tests/deploy/manifests_test.py --build $(BUILD)
	/usr/bin/python3 -B tests/deploy/release_test.py
	/usr/bin/python3 -B tests/deploy/deploy_test.py --build $(BUILD) --figures build/bench || [ $$? -eq 77 ]

release: ## the packages of HEAD, built twice and equal, with sources, SBOM and checksums, into build/dist
	@$(BOOTSTRAP) build
	deploy/release.py --out build/dist --jobs $(JOBS)

clean: ## remove every build
	rm -rf build
