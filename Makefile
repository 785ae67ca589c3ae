# Each target makes its own .venv on first use, and again when the dependencies change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint test-slow
demo: $(INSTALLED)
	$(BIN)/python -m experiments demo

# What runs on Ray has the machine for itself: its trials take turns on the cores there are.
test: lint
	$(BIN)/python -m pytest -n auto --ignore tests/runtime
	$(BIN)/python -m pytest tests/runtime

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
