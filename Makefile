# What a change needs, in the environment that .ci/setup makes (.venv). `make check` before each commit, the rest before a merge.
VENV ?= .venv
PYTHON := $(VENV)/bin/python
.PHONY: help style types check test generated image docs site bench

help:
	@echo "make check   format, style, types, rooms and a sample of the unit tests: less than a minute"
	@echo "make test    what CI runs after these: all tests but the long ones"
	@echo "make generated   write the files and tables that are made from declarations elsewhere"
	@echo "make image   build the image and run compose's services from it (as root)"
	@echo "make docs    run the examples of all documents (as root)"
	@echo "make site    build the documents as a site in build/site"
	@echo "make bench   a short benchmark of a cluster on this machine"

$(PYTHON):
	.ci/setup $(VENV)

style: | $(PYTHON)
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .

types: | $(PYTHON)
	$(VENV)/bin/mypy

check: style types | $(PYTHON)
	$(PYTHON) -m pytest -q -n auto tests/packaging/test_layers.py tests/packaging/test_documents.py \
		tests/packaging/test_generated.py \
		tests/unit/raft tests/unit/groups tests/unit/tree tests/paper -m "not long and not processes"

test: | $(PYTHON)
	VENV=$(VENV) .ci/test

generated: | $(PYTHON)
	$(PYTHON) -m tests.packaging.generated

image docs: | $(PYTHON)
	VENV=$(VENV) .ci/long --only $(if $(filter image,$@),images,documents)

site: | $(PYTHON)
	VENV=$(VENV) .ci/site

bench: | $(PYTHON)
	$(VENV)/bin/zraft-bench local --servers 3
