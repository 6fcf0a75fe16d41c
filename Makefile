# Two commands do everything: `make demo` and `make test`. Both build the virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A file of tests stays in one process, which makes its models once; tests/conftest.py puts the longest files first.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test check faults style docs stories bench bench-long bench-gpu clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/encodery demo
	@echo '`. $(BIN)/activate` puts `encodery` on your path.'

test: $(VENV)/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy -n 2
	$(PYTEST) -m 'not fault'

check: $(VENV)/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy -n 2
	$(PYTEST) -m 'not slow and not real and not fault'

# Kills, torn writes, full disks, flipped bits, hostile folders, mutated configs and command lines: "test -> n of m".
faults: $(VENV)/installed
	$(PYTEST) -m fault tests/faults --fault-counts runs/faults.json

style: $(VENV)/installed
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# The pages that are made from the code: all settings, and which tests prove which statement.
docs: $(VENV)/installed
	$(BIN)/encodery config --reference > docs/configuration.md
	$(BIN)/python docs/fill_facts.py

# The commands of docs/results.md. All but the first three need ENCODERY_DATA; finished runs are not repeated.
stories: $(VENV)/installed
	$(BIN)/python stories/kill_twenty.py --out runs/stories/kill
	$(BIN)/python stories/sweep_kill.py --steps 40
	$(BIN)/python stories/faults_trainer.py
	$(BIN)/python stories/glue_minilm.py --threads 1
	$(BIN)/python stories/spans_minilm.py --only ner,pos,squad
	$(BIN)/python stories/spans_minilm.py --offsets
	$(BIN)/python stories/pretrain_compare.py --objectives mlm,electra,amos \
		--once amos-no-reversal,amos-fixed-mixture --steps 10000
	$(BIN)/python stories/methods_minilm.py
	$(BIN)/python stories/selection_mnli.py --steps 150
	$(BIN)/python stories/gradts_minilm.py

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
