# `make demo` runs the main job, `make test` passes the tests. Both make their own environment in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lock clean

demo: $(VENV)/ready
	$(BIN)/python playbooks/demo.py

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

check: $(VENV)/ready
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

lock: $(VENV)/ready
	$(BIN)/python -m pip freeze --exclude-editable | grep -v '^noetl-stream' > requirements-dev.lock

$(VENV)/ready: pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) .demo
