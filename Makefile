# The two commands: `make experiment` and `make test`. Everything else is CMake (CMakePresets.json).

PROFILE ?= quick
ifeq ($(PROFILE),quick)
  CONFIG := configs/gqa-quick.yaml
else ifeq ($(PROFILE),full)
  CONFIG := configs/gqa.yaml
else
  $(error PROFILE=$(PROFILE) is unknown: give quick or full)
endif
OUT ?= runs/gqa-$(PROFILE)
# Asked when the program is built: the first GPU that it can use.
DEVICE ?= $(shell build/headroom --version | grep -q '[0-9] GPU' && echo cuda || echo cpu)

.PHONY: help experiment test build clean

help:
	@echo "make experiment   trains one GPT per n_kv_head, prints the table, writes $(OUT)/report.html"
	@echo "                  PROFILE=quick (default; within 15 minutes on 2 cores) or full (the published setting)"
	@echo "                  CORPUS=file   your own UTF-8 text      OUT=folder   where the results go"
	@echo "                  DEVICE=cpu    on the CPU all the same; by default on a GPU where there is one (docs/gpu.md)"
	@echo "                  a sweep that was stopped goes on; a finished one is printed again"
	@echo "make test         builds and runs every test"
	@echo "make build        builds the program, build/headroom"
	@echo "make clean        removes the build (results under runs/ stay)"
	@echo "Each installs with apt what is missing (scripts/setup.sh)."

experiment: build
	@corpus="$$(scripts/corpus.sh)" && \
	build/headroom sweep $(CONFIG) --set data.corpus="$$corpus" --out $(OUT) --device $(DEVICE) --resume

build:
	@scripts/setup.sh build
	@cmake --preset program >/dev/null
	@cmake --build --preset program

test:
	@scripts/setup.sh test
	@cmake --preset test >/dev/null
	@cmake --build --preset test
	@ctest --preset test --parallel $$(nproc)

clean:
	rm -rf build build-sanitize build-clang build-cuda build-ci
