# `make demo` runs the main job, `make test` passes the tests. Both make their own environment in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs lock clean

demo: $(VENV)/ready
	$(BIN)/python playbooks/demo.py

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

check: $(VENV)/ready
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: $(VENV)/ready
	$(BIN)/python docs/build_site.py build/docs

# After a change of the dependencies: what a fresh environment resolves them to becomes the lock.
lock:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable . $$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"])')
	(head -1 requirements-dev.lock; $(BIN)/python -m pip freeze --exclude-editable) > lock.new && mv lock.new requirements-dev.lock

$(VENV)/ready: pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) .demo build
