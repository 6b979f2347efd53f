# make run | run-distributed | test | test-all | lint | bench | clean: builds in build, tools .venv.
VENV ?= .venv
PY := $(VENV)/bin/python
export PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE  # modules are installed without bytecode: scripts/setup_env.sh
BIN := $(CURDIR)/$(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE := $(BIN)/cmake
CONFIGURE := $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
	-DPython_EXECUTABLE=$(abspath $(PY)) -DTT_CMOCKA_DIR=$(CURDIR)/build/cmocka
CTEST := $(BIN)/ctest --output-on-failure -j $(JOBS)
# A process per core, to 8; a file's tests stay in one, in their order, as they share what it
# compiled. PYTEST_JOBS=0 runs all in one process.
PYTEST_JOBS ?= $(JOBS)
PYTEST := TT_ABI_DUMP=build/release/tt_abi_dump $(PY) -m pytest -n $(PYTEST_JOBS) \
	--maxprocesses 8 --dist loadfile
QUICK := -m "not slow and not sweep"
ENV_STAMP := $(VENV)/.env-ready
MODELS_STAMP := $(VENV)/.models-ready
INSTALL_STAMP := $(VENV)/.torchtpu-installed
BENCH_VENV ?= .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.env-ready

ACCEL := TORCH_TPU_PLUGIN=$(CURDIR)/build/release/libtt_accel_plugin.so $(PYTEST)
ACCEL_TESTS := $(addprefix tests/python/test_, \
	device.py errors.py exchange.py graphs.py streams.py)

# Not those that count programs: fewer sizes are known to stay as they are.
LIVING_TESTS := $(addprefix tests/python/test_, \
	autograd.py bits.py conj.py creation.py fft.py functorch.py fuzz.py layers.py layouts.py \
	linalg.py lists.py modules.py nested.py numbers.py ops.py others.py products.py quantised.py \
	random.py reductions.py sparse.py special.py strides.py unsigned.py views.py vision.py)

.PHONY: build run run-distributed test test-c test-sanitized test-tsan test-python test-accel \
	test-accel-all test-all test-sweep soak ecosystem lint format bench bench-env bench-models \
	bench-step report coverage coverage-all docs clean

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

# After build/release, which fetches cmocka where it is not installed.
build/asan: | build/release
	$(CONFIGURE) -B $@ -DTT_SANITIZE=address,undefined -DTT_BUILD_BENCH=OFF || { rm -rf $@; exit 1; }

build/tsan: | build/release
	$(CONFIGURE) -B $@ -DTT_SANITIZE=thread -DTT_BUILD_BENCH=OFF || { rm -rf $@; exit 1; }

# Counters of lines and branches in core/: of the C tests, and of the Python tests.
COVERAGE := -DCMAKE_BUILD_TYPE=Debug -DTT_BUILD_BENCH=OFF -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
	-DCMAKE_MODULE_LINKER_FLAGS=--coverage -DCMAKE_C_FLAGS="-O1 --coverage -fprofile-update=atomic"

build/coverage: | $(ENV_STAMP)
	$(CONFIGURE) -B $@ $(COVERAGE) || { rm -rf $@; exit 1; }

build/coverage-glue: | $(ENV_STAMP)
	$(CONFIGURE) -B $@ $(COVERAGE) -DTT_BUILD_TESTS=OFF -DTT_BUILD_GLUE=ON || { rm -rf $@; exit 1; }

run: build
	$(PY) examples/train_gpt.py --device tpu

# By two processes, and by one: out/train_distributed.png. ARGS="--steps 200" adds options.
run-distributed: build
	$(BIN)/torchrun --nproc-per-node=2 examples/train_distributed.py $(ARGS)

# Python's tests, which take longest, come first: with -j 2 the others run beside them in turn.
# What ASan runs is not run without it as well.
test: QUICK_C = -R "$(UNSEEN)"
test: test-python test-accel test-sanitized test-c test-tsan

test-c: build
	cd build/release && $(QUICK_CASES) $(CTEST) $(QUICK_C)

# Without most of what compiles for minutes in the CPU plugin, which no sanitizer sees into, without
# test_reclaim under ASan, which takes a minute there (TSan runs it), and without injected failures
# of a single thread under TSan; not so in `make test-all`. What runs in the plugin never runs under
# TSan, which it is not made for.
QUICK_CASES := TT_CASES=48
UNSEEN := hlo_run|streams_cpu|template_cpu|capture_cpu|nested_cpu
QUICK_ASAN := -E "$(UNSEEN)|reclaim"
QUICK_TSAN := |stream_failures
UNSEEN_TSAN := hlo_run|view
test-sanitized: build/asan
	$(CMAKE) --build build/asan -j $(JOBS)
	cd build/asan && $(QUICK_CASES) $(CTEST) $(QUICK_ASAN)

test-tsan: build/tsan
	$(CMAKE) --build build/tsan -j $(JOBS)
	cd build/tsan && $(QUICK_CASES) $(CTEST) -E "$(UNSEEN_TSAN)|_cpu|accel$(QUICK_TSAN)"

# Lines and branches of core/ that the C tests run, by room: make coverage [MIN=90] [WORST=20]
REPORT = $(PY) scripts/coverage.py $(if $(MIN),--min $(MIN)) $(if $(WORST),--worst $(WORST))
coverage: build/coverage
	$(CMAKE) --build build/coverage -j $(JOBS)
	find build/coverage -name '*.gcda' -delete
	cd build/coverage && $(CTEST)
	$(REPORT) build/coverage

# The quick Python tests as well (TESTS names others), on a package of their own beside the build.
coverage-all: build/coverage-glue
	$(CMAKE) --build $< -j $(JOBS)
	rm -rf $</package && find $< -name '*.gcda' -delete
	mkdir $</package && cp -r torch_tpu $</package && rm -f $</package/torch_tpu/_C*.so
	$(CMAKE) --install $< --prefix $</package
	cp scripts/coverage_site.py $</package/sitecustomize.py
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$</package \
		$(PY) -m pytest $(or $(TESTS),$(QUICK))
	$(MAKE) coverage REPORT='$(REPORT) $<'

# In Strict where a test chooses no mode: beside Fused, the default, chunks are compiled, for which
# continuous integration has no time. test-accel and test-all run in Fused.
test-python: build
	TORCH_TPU_EAGER_MODE=strict $(PYTEST) $(QUICK)

# On a plugin that behaves like an accelerator (tests/accel_plugin).
test-accel: build
	TT_ACCEL_SEED=1 $(ACCEL) $(ACCEL_TESTS) $(QUICK)

# With 500 random programs a seed; the 10,000 of the slow tests run on the CPU plugin.
test-accel-all: build
	for seed in 1 2 3; do \
	  TT_ACCEL_SEED=$$seed TT_FUZZ_PROGRAMS=500 TT_FUZZ_SEED=$${seed}000000 $(ACCEL) tests/python \
	    -m "not sweep" -k "not test_many_random_programs" || exit 1; \
	done

test-all: QUICK_CASES :=
test-all: QUICK_ASAN :=
test-all: QUICK_TSAN :=
test-all: test-c test-sanitized test-tsan test-accel-all build $(MODELS_STAMP)
	$(PYTEST) -m "not sweep"
	TORCH_TPU_EAGER_MODE=strict $(PYTEST) tests/upstream -m "not sweep"
	TORCH_TPU_GROWING=off $(PYTEST) tests/python/test_growing.py tests/python/test_operands.py
	$(PYTEST) --living -m "not sweep" $(LIVING_TESTS)
	for dim in first last; do \
	  TORCH_TPU_GROWING=$$dim $(PYTEST) -m "not sweep" tests/python/test_fuzz.py || exit 1; \
	done
	$(PYTEST) --tier kernels -m "not sweep" tests/python/test_ops.py \
	  $(addprefix tests/python/test_,lengths.py training_lengths.py growing.py)
	$(PYTEST) --tier kernels --living -m "not sweep" tests/python/test_ops.py
	for tier in operators pieces kernels chunks; do \
	  $(PYTEST) --tier $$tier -m "not sweep" \
	    tests/python/test_fuzz.py tests/python/test_layers.py || exit 1; \
	done

# PyTorch's op_db and binary functions in every form: hours.
test-sweep: build
	$(PYTEST) tests/upstream -m sweep

# Eight threads for ten minutes (tests/python/test_soak.py).
soak: build
	TT_SOAK_SECONDS=600 $(PYTEST) -n 0 -s tests/python/test_soak.py

# Sets up anew what clang-tidy compiles, apart from a build that may be running.
lint: | $(ENV_STAMP)
	@$(CONFIGURE) -B build/lint -DTT_BUILD_TESTS=OFF >/dev/null
	scripts/lint.sh $(BIN) build/lint $(JOBS)

format: | $(ENV_STAMP)
	git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' | xargs $(BIN)/clang-format -i
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: build
	@plugin=$$($(PY) -c "import lammps_jax_pjrt_cpu as p; print(p.PLUGIN_PATH)"); \
	for program in build/release/bench/*; do $$program "$$plugin" || exit 1; done

# Models of transformers and diffusers, first and later steps, by each runner; by another backend as
# well where PEER=DIR PEER_PATH=PATH name one (bench/models.py), and then with eager attention, as
# its fused attention runs on TPUs only. ARGS="--cases gpt2 --rounds 1" adds options.
bench-models: build $(MODELS_STAMP)
	$(PY) bench/models.py --json build/models.json --chart build/models.png \
	  $(if $(PEER),--peer $(PEER) --peer-path $(PEER_PATH) --attention eager) $(ARGS)

# JAX, in an environment of its own; only the comparisons ask for it.
bench-env: $(BENCH_STAMP)
$(BENCH_STAMP): scripts/requirements-bench.txt scripts/setup_env.sh scripts/check_env.py
	scripts/setup_env.sh $(BENCH_VENV) $<
	@touch $@

# One training step by JAX on our plugin, by JAX on its own client, as a captured graph, by the CPU.
bench-step: build bench-env
	$(PY) bench/step_model.py build/step
	$(BENCH_VENV)/bin/python bench/step_jax.py build/step --client plugin
	$(BENCH_VENV)/bin/python bench/step_jax.py build/step --client jaxlib
	$(PY) bench/step_graph.py

# Real libraries, each in an environment of its own (.venv-eco): make ecosystem [LIBRARIES="peft"]
ecosystem: build
	$(PY) tests/ecosystem/run.py $(LIBRARIES)

report: | $(ENV_STAMP)
	$(PY) bench/report.py

docs: build
	$(PY) -m torch_tpu ops --markdown --counts bench/op_db.json > docs/ops.md

clean:
	rm -rf build torch_tpu/_C*.so torch_tpu/_build_info.py
