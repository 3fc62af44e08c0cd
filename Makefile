# Two commands do everything: `make demo` (install, fetch the model, train, report) and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help install demo full test lint format bench bench-quick bench-rewards bench-redteam clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    install, fetch the model, run the main job: table and report in runs/demo"
	@echo "make full    the same, larger: runs/full"
	@echo "make test    the test suite"
	@echo "make bench   measure against TRL's GRPOTrainer (half an hour to an hour and a half); make bench-quick in ten minutes"
	@echo "make bench-rewards    verifications a second, beside other libraries' (two minutes)"
	@echo "make bench-redteam    the red team beside other tools, on rewards known to be broken or sound (ten minutes)"
	@echo "make lint    style and formatting"
	@echo "make format  put the formatting right"
	@echo "make clean   remove the virtual environment"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "earnest needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/train.stamp: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing (some minutes) ..."
	$(PIP) install -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/dev.stamp: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing (some minutes) ..."
	$(PIP) install -c constraints.txt -e '.[train,dev]'
	@touch $@

install: $(VENV)/train.stamp

demo: $(VENV)/train.stamp
	$(BIN)/earnest run triage --config presets/demo.toml --out runs/demo --overwrite

full: $(VENV)/train.stamp
	$(BIN)/earnest run triage --config presets/full.toml --out runs/full --overwrite

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n auto --dist worksteal

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/run.py

bench-quick: $(VENV)/dev.stamp
	$(BIN)/python bench/run.py --quick

bench-rewards: $(VENV)/dev.stamp
	$(BIN)/python bench/rewards.py

bench-redteam: $(VENV)/dev.stamp
	$(PIP) install --no-deps --upgrade --target $(VENV)/redteam-tools reward-doctor==0.2.0 rl-envdoctor==0.1.0 gradecheck==0.1.0
	$(BIN)/python bench/redteam.py --tools $(VENV)/redteam-tools

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)
