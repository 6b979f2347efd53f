# make run | test | test-all | test-sweep | lint | bench | clean: builds in build, tools in .venv.
VENV ?= .venv
PY := $(VENV)/bin/python
export PYTHON ?= python3
BIN := $(CURDIR)/$(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE := $(BIN)/cmake
CONFIGURE := $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
	-DPython_EXECUTABLE=$(abspath $(PY))
CTEST := $(BIN)/ctest --output-on-failure -j $(JOBS)
PYTEST := TT_ABI_DUMP=build/release/tt_abi_dump $(PY) -m pytest
ENV_STAMP := $(VENV)/.env-ready
MODELS_STAMP := $(VENV)/.models-ready
INSTALL_STAMP := $(VENV)/.torchtpu-installed

ACCEL := TORCH_TPU_PLUGIN=$(CURDIR)/build/release/libtt_accel_plugin.so $(PYTEST)
ACCEL_TESTS := $(addprefix tests/python/test_, \
	autograd.py device.py errors.py exchange.py lists.py modes.py ops.py random.py views.py)

.PHONY: build run test test-c test-sanitized test-tsan test-python test-accel test-accel-all \
	test-all test-sweep lint format bench docs clean

build: build/release $(INSTALL_STAMP)
	$(CMAKE) --build build/release -j $(JOBS)

$(ENV_STAMP): scripts/requirements.txt scripts/setup_env.sh scripts/check_env.py
	scripts/setup_env.sh $(VENV)
	@touch $@

# Registers the package and its entry point; the module itself is built in place.
$(INSTALL_STAMP): pyproject.toml | $(ENV_STAMP)
	$(PY) -m pip install -q --no-build-isolation --no-deps -e . \
		-C wheel.cmake=false -C editable.mode=inplace
	@touch $@

# Without them (no network) the tests that need them are skipped and say so.
$(MODELS_STAMP): scripts/requirements-models.txt | $(ENV_STAMP)
	@$(PY) -m pip install -q --retries 1 -r $< && touch $@ || \
		echo "$< could not be installed: its tests will be skipped" >&2

build/release: | $(ENV_STAMP)
	$(CONFIGURE) -B $@ -DTT_BUILD_GLUE=ON -DTT_INPLACE=ON || { rm -rf $@; exit 1; }

build/asan: | $(ENV_STAMP)
	$(CONFIGURE) -B $@ -DTT_SANITIZE=address,undefined -DTT_BUILD_BENCH=OFF || { rm -rf $@; exit 1; }

build/tsan: | $(ENV_STAMP)
	$(CONFIGURE) -B $@ -DTT_SANITIZE=thread -DTT_BUILD_BENCH=OFF || { rm -rf $@; exit 1; }

run: build
	$(PY) examples/train_gpt.py --device tpu

test: test-c test-sanitized test-tsan test-python

test-c: build
	cd build/release && $(CTEST)

test-sanitized: build/asan
	$(CMAKE) --build build/asan -j $(JOBS)
	cd build/asan && $(CTEST)

test-tsan: build/tsan
	$(CMAKE) --build build/tsan -j $(JOBS)
	cd build/tsan && $(CTEST) -E "hlo_run|view|_cpu|accel"  # on the plugin, which has no TSan

test-python: build
	$(PYTEST) -m "not slow and not sweep"

# On a plugin that behaves like an accelerator (tests/accel_plugin).
test-accel: build
	TT_ACCEL_SEED=1 $(ACCEL) $(ACCEL_TESTS) -m "not slow and not sweep"

test-accel-all: build
	for seed in 1 2 3; do TT_ACCEL_SEED=$$seed $(ACCEL) tests/python -m "not sweep" || exit 1; done

test-all: test-c test-sanitized test-tsan build $(MODELS_STAMP)
	$(PYTEST) -m "not sweep"
	TORCH_TPU_EAGER_MODE=fused $(PYTEST) tests/upstream -m "not sweep"

# PyTorch's op_db and binary functions in every form: hours.
test-sweep: build
	$(PYTEST) tests/upstream -m sweep

lint: build
	scripts/lint.sh $(BIN) build/release $(JOBS)

format: | $(ENV_STAMP)
	git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' | xargs $(BIN)/clang-format -i
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: build
	@plugin=$$($(PY) -c "import lammps_jax_pjrt_cpu as p; print(p.PLUGIN_PATH)"); \
	for program in build/release/bench/*; do $$program "$$plugin" || exit 1; done

docs: build
	$(PY) -m torch_tpu ops --markdown > docs/ops.md

clean:
	rm -rf build torch_tpu/_C*.so torch_tpu/_build_info.py
