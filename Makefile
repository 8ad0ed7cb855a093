# What one does here, each a target that first sets up what it needs in .venv. Nothing else is touched.
#
#   make run        the agent at work, against a model that is played
#   make test       the tests that show behaviour  ARGS="-k words" is handed to pytest
#   make test-all   these, real servers (about 750 MB, once), the provers and every mutant
#   make check      lint, format, types, the rules of the house, each also alone: ruff, mypy, basedpyright, house
#   make diagrams   the pictures, drawn again from the table
#   make notebooks  the notebooks of examples/, executed again
#   make screenshots the pictures of docs/console.md, taken anew in Chromium
#   make behaviours the page of behaviours, written again from their list and tests
#   make bench      how long a step takes          ARGS is handed on
#   make bench-served  what a thousand readers add to the delay of a server's notices, and what holds it up
#   make prove      the promises, in every state that a small world can reach
#   make torture    the promises, with processes killed at every moment   ARGS is handed on
#   make soak       a long day in one process, of which nothing may be left   ARGS is handed on
#   make hosts      kills workers of every host, and prints how soon others go on   ARGS is handed on
#   make fuzz       every parser, given malformed input, and shell commands against the rules   ARGS is handed on
#   make mutants    the mistakes that a machine can make, and the share of them that tests find
#   make scenarios  the stories of tests/scenarios, recorded anew
#   make golden     the journals of the present version, written again
#   make lock       requirements.lock again, from the newest of everything
#   make audit      known faults of the versions in requirements.lock, where a database of them can be reached
#   make wheel      dist/*.whl, which pip installs into any environment
#   make clean      forget everything that was made here, the environment too
#
# It needs Python 3.11 or later, and the network once, for the packages.

.DEFAULT_GOAL := test
.PHONY: run test test-all mutants scenarios check basedpyright ruff mypy house diagrams screenshots notebooks behaviours bench bench-served prove torture soak hosts fuzz golden lock audit wheel clean

ARGS ?=
JOB ?= Look over this repository and write a report to REPORT.md

BIN := .venv/bin
# Folders that hold no package: they import turnwheel as any program does.
OUTSIDE := $(wildcard tests examples benchmarks)

EDITABLE := --quiet --disable-pip-version-check --config-settings editable_mode=strict --editable

# An editable install in strict mode links the files that are there when it is made. So it is made again
# whenever a file comes or goes, or what is to be installed changes: the stamp is named after both.
ROOMS := apps diagrams display effects engine performers projections settings states testing
FILES := $(sort $(wildcard *.py *.pyi $(foreach room,$(ROOMS),$(room)/*.py $(room)/*.pyi $(room)/*/*.py $(room)/*/*/*.py) apps/console/page/* performers/stores/postgres/*.sql))
WANTED := $(shell printf '%s\n' $(FILES) | cat - pyproject.toml requirements.lock | cksum)
# What the command line needs, what the tests need, and what all other targets do: each has the one before.
RUNNING := .venv/running-$(firstword $(WANTED))
TESTING := .venv/testing-$(firstword $(WANTED))
INSTALLED := .venv/installed-$(firstword $(WANTED))
# Those of another state of the files, too.
STAMPS := .venv/running-* .venv/testing-* .venv/installed-*

run: $(RUNNING)
	$(BIN)/turnwheel run --stand-in --allow write:path=REPORT.md "$(JOB)"

# Tests start hundreds of programs: each would compile all of turnwheel again.
unexport PYTHONDONTWRITEBYTECODE

# Three processes for two cores, unless ARGS says otherwise: many tests wait for other processes.
PROCESSES := $(shell expr 3 \* $$(getconf _NPROCESSORS_ONLN) / 2)

# Tests that ARGS asks for beside the usual ones may need everything.
BESIDE := $(filter -m%,$(ARGS))

test: $(if $(BESIDE),$(INSTALLED),$(TESTING))
	$(BIN)/python -m pytest -q -n $(PROCESSES) $(ARGS)

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -q -n $(PROCESSES) -m "" $(ARGS)
	$(MAKE) mutants

# ARGS says where, and how many: `make mutants ARGS="--sample 300 states"`.
mutants: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

scenarios: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python tests/scenarios/record.py
	PYTHONPATH=tests $(BIN)/python tests/states/test_stories.py

# Each keeps one core busy for a minute or two: `make -j2 check` is twice as quick.
check: basedpyright ruff mypy house

basedpyright: $(INSTALLED)
	$(BIN)/basedpyright

ruff: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(INSTALLED)
	$(BIN)/mypy -p turnwheel
	$(BIN)/mypy $(filter-out tests,$(OUTSIDE))
	cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml .

house: $(INSTALLED)
	$(BIN)/python -m pytest -q tests/house

diagrams: $(INSTALLED)
	$(BIN)/python -m turnwheel.diagrams

notebooks: $(INSTALLED)
	$(BIN)/python tests/docs/notebooks.py

screenshots: $(INSTALLED)
	$(BIN)/python tests/apps/console/screenshots.py docs/console

behaviours: $(INSTALLED)
	$(BIN)/python tests/behaviour/page.py

# The yardstick is a loop as one writes it after `pip install httpx`: it gets an environment with that alone.
bench: $(INSTALLED) .cache/floor/installed
	$(BIN)/python -m benchmarks.run --floor .cache/floor/bin/python $(ARGS)

bench-served: $(INSTALLED)
	$(BIN)/python -m benchmarks.served $(ARGS)
	$(BIN)/python -m benchmarks.stalls

.cache/floor/installed: requirements.lock
	rm -rf .cache/floor
	$(BIN)/python -m venv .cache/floor
	.cache/floor/bin/python -m pip install --quiet --disable-pip-version-check httpx --constraint requirements.lock
	touch $@

prove: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m provers.model_check $(ARGS)

torture: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m provers.crash $(ARGS)

soak: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m provers.soak $(ARGS)

hosts: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m hosts $(ARGS)

# Recorded answers of providers lie beside some checkouts; where they do not, what tests/provers/streams.py makes does.
WIRE ?= $(wildcard ../shared/wire)

fuzz: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m provers.fuzzing $(if $(WIRE),--seeds $(WIRE)) $(ARGS)
	PYTHONPATH=tests $(BIN)/python -m provers.command_lines

golden: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python tests/golden/make.py $(ARGS)

lock: $(BIN)/python
	rm -rf $(STAMPS) build
	$(BIN)/python -m pip install $(EDITABLE) '.[cli,dev]' --upgrade --upgrade-strategy eager
	{ echo "# The versions make installs; written by make lock."; \
		$(BIN)/python -m pip freeze --exclude-editable; } > requirements.lock

# In an environment of its own: it has forty packages. It fails where the database does not know the versions.
audit:
	python3 -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	.venv-audit/bin/pip-audit --requirement requirements.lock --disable-pip --no-deps --strict --progress-spinner off

# setuptools collects files in build/lib and packs all it finds there, also files deleted since the last wheel.
wheel: $(BIN)/python
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	rm -rf build/lib build/bdist.*
	@ls dist/*.whl

clean:
	rm -rf .venv .venv-audit .cache build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNNING): $(BIN)/python
	rm -rf $(STAMPS) build
	$(BIN)/python -m pip install $(EDITABLE) '.[cli]' --constraint requirements.lock
	touch $@

$(TESTING): $(BIN)/python
	rm -rf $(STAMPS) build
	$(BIN)/python -m pip install $(EDITABLE) '.[cli,test]' --constraint requirements.lock
	touch $(RUNNING) $@

$(INSTALLED): $(BIN)/python
	rm -rf $(STAMPS) build
	$(BIN)/python -m pip install $(EDITABLE) '.[cli,dev]' --constraint requirements.lock
	touch $(RUNNING) $(TESTING) $@

$(BIN)/python:
	@for python in python3 python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "turnwheel needs Python 3.11 or later, and neither python3 nor python3.11 to python3.14 is one:" \
			"install one and put it on the PATH" >&2; exit 1; \
	fi; \
	echo "$$found -m venv .venv"; \
	$$found -m venv .venv || { rm -rf .venv; \
		echo "$$found cannot make an environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
