# Two commands do everything: `make demo` and `make test`. Both build the virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A file of tests stays in one process, which makes its models once; tests/conftest.py puts the longest files first.
SPREAD := --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/pytest -n 2 $(SPREAD)
# What has a target of its own below is no part of the ordinary tests.
ORDINARY := not fault and not accelerator and not engine and not journey

.PHONY: demo test check faults accelerator engines journeys style docs encoders site stories bench bench-long bench-gpu clean

# pip's messages as one moving line.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PROGRESS := while IFS= read -r line; do printf '\r%-100.100s' "$$line"; done; printf '\r%-100s\r' ''

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

# What the demo needs: encodery and what it imports.
$(VENV)/lean: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo 'Installing encodery into $(VENV): about 400 MB to download with a CPU build of torch, about 3 GB where pip chooses one for CUDA.'
	@$(BIN)/pip install --constraint constraints.txt --editable . | { $(PROGRESS); }
	@touch $@

# The tools of the tests too.
$(VENV)/installed: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo 'Installing encodery and the tools of its tests into $(VENV): about 250 MB more than for the demo.'
	@$(BIN)/pip install --constraint constraints.txt --editable '.[dev]' | { $(PROGRESS); }
	@touch $@ $(VENV)/lean

demo: $(VENV)/lean
	$(BIN)/encodery demo
	@echo '`. $(BIN)/activate` puts `encodery` on your path.'

# Where Python is told to keep no bytecode, pytest would rewrite all files of tests in every worker and every time.
test check accelerator: export PYTHONDONTWRITEBYTECODE =

# One worker more than cores: a sixth of the time went into waiting for processes that tests start.
test: $(VENV)/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	$(BIN)/pytest -n 3 $(SPREAD) -m '$(ORDINARY)'

check: $(VENV)/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	$(PYTEST) -m 'not slow and not real and $(ORDINARY)'

# Kills, torn writes, full disks, flipped bits, hostile folders, mutated configs and command lines: "test -> n of m".
faults: $(VENV)/installed
	$(PYTEST) -m fault tests/faults --fault-counts runs/faults.json

# What would run on a GPU, on the pretend one: whole runs, what a host waits for, `make bench-gpu`. It needs g++.
accelerator: $(VENV)/installed
	$(PYTEST) -m accelerator

# Real engines on this machine, started and ended by the tests: Slurm, Ray and torchrun on two hosts made of namespaces (as
# root), a stand-in hub, emulators of S3 and GS, trackers. What cannot be had here is skipped, in capitals;
# ENCODERY_ENGINES=1 makes that a failure. At most twelve minutes on two idle cores; on a busy machine the tests wait longer.
# What is not done after the seconds given below is interrupted, ends its servers, and has failed.
LIMITED := limited() { timeout --foreground --signal=INT --kill-after=120 "$$@"; code=$$?; case $$code in 124|137) \
	echo "ENGINES: NOT DONE AFTER $$1 SECONDS, INTERRUPTED" >&2;; esac; return $$code; }
engines: $(VENV)/engines $(VENV)/stores/installed
	$(LIMITED); stores=0; \
	limited 900 $(VENV)/stores/bin/python -m pytest -m engine -rs tests/engines/test_stores.py || stores=$$?; \
	limited 3600 $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder -m engine -rs tests/engines \
		--ignore=tests/engines/test_stores.py && exit $$stores

$(VENV)/engines: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,mlflow,trackio,wandb]' || \
		echo 'NO TRACKERS: not all of their packages could be installed; their tests will be skipped'
	touch $@

# A layer on top of the environment: the client of S3 does not allow all that constraints.txt has.
$(VENV)/stores/installed: $(VENV)/installed tests/engines/stores.txt
	$(BIN)/python -m venv $(VENV)/stores
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
		"$$($(VENV)/stores/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	$(VENV)/stores/bin/pip install --quiet --constraint tests/engines/stores.txt \
		s3fs gcsfs 'moto[server,s3]' gcp-storage-emulator || \
		echo 'NO STORES: not all of their packages could be installed; their tests will be skipped'
	touch $@

# Own data as people have them: each from a raw file to a scored model and a page, in three commands.
journeys: $(VENV)/installed
	$(BIN)/pytest -n 2 -m journey tests/journeys

style: $(VENV)/installed
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# The pages that are made from the code: all settings, all modules, and which tests prove which statement.
docs: $(VENV)/installed
	$(BIN)/encodery config --reference > docs/configuration.md
	$(BIN)/python docs/fill_facts.py
	$(BIN)/python docs/fill_modules.py

# The same pages as a site with search, in build/site; a link or an anchor that leads nowhere is an error.
site: $(VENV)/installed
	rm -rf build/site build/site-pages && mkdir -p build/site-pages
	cp -r docs notebooks CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE build/site-pages/
	rm build/site-pages/docs/*.py && cp README.md build/site-pages/index.md
	$(BIN)/mkdocs build --strict --quiet

# The table of docs/encoders.md, from a walk over tiny models of every encoder family (about two minutes).
encoders: $(VENV)/installed
	$(BIN)/python docs/fill_encoders.py

# The commands of docs/results.md and docs/data-selection.md. All but the first three need ENCODERY_DATA; finished runs are not repeated.
MINILM := "$$ENCODERY_DATA/models/all-MiniLM-L6-v2-fp16"
stories: $(VENV)/installed
	$(BIN)/python stories/kill_twenty.py --out runs/stories/kill
	$(BIN)/python stories/sweep_kill.py --steps 40
	$(BIN)/python stories/faults_trainer.py
	$(BIN)/encodery sweep run stories/glue.yaml --model.name $(MINILM) -o runs/stories/glue
	$(BIN)/python stories/glue_trainer.py
	$(BIN)/python stories/squad_questions.py stories/questions
	$(BIN)/encodery sweep run stories/squad.yaml --model.name $(MINILM) -o runs/stories/squad
	$(BIN)/python stories/words_minilm.py
	$(BIN)/python stories/words_minilm.py --offsets
	$(BIN)/python stories/pretraining/embeddings_only.py embeddings-only
	$(BIN)/encodery sweep run stories/petit.yaml -o runs/stories/petit
	$(BIN)/python stories/pretrain_compare.py --objectives mlm,electra,amos \
		--once amos-no-reversal,amos-fixed-mixture --steps 10000
	$(BIN)/python stories/methods_minilm.py
	$(BIN)/encodery sweep run stories/freelb_grid.yaml --model.name $(MINILM) -o runs/stories/freelb-grid
	$(BIN)/encodery sweep run stories/freelb.yaml --model.name $(MINILM) -o runs/stories/freelb
	@echo 'Data on MNLI: the steps in the head of stories/data_mnli.yaml'
	$(BIN)/python stories/clean_reviews.py
	@echo 'Choosing tasks: the steps in the head of stories/tasks_gradts.yaml'

# Timings, as ratios against a peer in the same run; they go to bench/results. All of them run on the CPU.
bench: $(VENV)/installed
	$(BIN)/python bench/run.py --short

bench-long: $(VENV)/installed
	$(BIN)/python bench/run.py --long

# For a machine with GPUs; what comes out is worth sending back.
bench-gpu: $(VENV)/installed
	$(BIN)/python bench/gpu.py

clean:
	rm -rf $(VENV) build dist *.egg-info
