# Everything sets itself up: `make demo` and `make test` work in a fresh clone with Python 3.10-3.12.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help demo test docs results lint dist lock clean

help:
	@echo "make demo   train a deep Wishart process and a deep GP on a bundled dataset, print the table"
	@echo "make test   run the test suite"
	@echo "make docs   build the documentation into docs/_build/html, its pictures included, and check its links and pages"
	@echo "make results  make docs/results.md anew from the rows in results/"
	@echo "make lint   ruff and mypy"
	@echo "make dist   build the wheel"
	@echo "make lock   renew requirements.lock from pyproject.toml (needs uv)"

# uv takes a fifth of pip's time; where it cannot be had, pip installs the same files
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 12) else \
	"got Python %d.%d, needs 3.10 to 3.12: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) uv && $(RUN) -m uv pip install --quiet --require-hashes -r requirements.lock \
		|| $(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(INSTALLED)
	$(RUN) scripts/run_uci.py

test: $(INSTALLED)
	$(RUN) -m pytest -n 2 --dist loadgroup

docs: $(INSTALLED)
	$(RUN) -m sphinx -W --keep-going -b html docs docs/_build/html
	$(RUN) docs/check_links.py docs/_build/html
	$(RUN) docs/check_pages.py docs/_build/html

results: $(INSTALLED)
	$(RUN) scripts/make_report.py results/*.csv --markdown docs/results.md

lint: $(INSTALLED)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

dist: $(INSTALLED)
	rm -rf dist build
	$(RUN) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

lock:
	uv lock --quiet
	uv export --quiet --frozen --no-emit-project --no-header --extra test --extra docs --extra parquet \
		--format requirements-txt > requirements.lock
	rm uv.lock

clean:
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/examples
