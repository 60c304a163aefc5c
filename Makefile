# SPDX-License-Identifier: Apache-2.0
# What people type. The work is done by scripts/, each of which can be run by itself.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help venv build check test test-fast test-engines soak storm demo demo-cluster bench bench-cluster explore late fuzz plugin release test-install clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1@\2/p' Makefile | column -t -s @

venv: .venv/.complete ## the virtual environment .venv with the pinned dependencies

.venv/.complete: requirements.txt requirements-dev.txt pyproject.toml scripts/install/venv
	@scripts/install/venv

build: ## the hook, the porter and the simulated driver
	@echo "==> Build the hook, the porter and the simulated driver"
	@$(MAKE) -s -C hook
	@$(MAKE) -s -C porter
	@$(MAKE) -s -C tests/fakes

check: venv build ## formatters, linters, types, layers, sizes
	@scripts/check

test: venv check ## check, then all tests, on real Docker Engines as well
	@scripts/test

test-fast: venv build ## tests that need no Engine and no browser and take at most 90 s together
	@scripts/test-fast

test-engines: venv check ## the tests on Docker Engines, with cgroup v2 alone, and on those of Debian 13 (26.1) and sid (28.5)
	@scripts/test-engines

soak: venv check ## 500 containers come and go while the plugin's processes are killed; nothing must be left
	@CONVGPU_SOAK=500 scripts/test -n 0 -s tests/lifecycle/test_soak.py

demo: venv build ## containers compete for one GPU; one waits and goes on
	@scripts/demo

demo-cluster: venv build ## jobs on a Slurm of four nodes: a gang starts whole, a short job overtakes a long one
	@scripts/slurm demo

bench: venv build ## the benchmarks
	@scripts/bench

bench-cluster: venv build ## those on a Slurm of four nodes: policies, 2,000 random requests, 200 kills; an hour
	@scripts/slurm bench

explore: venv ## more random histories of the scheduler than `make test` plays, with other seeds each time; an hour
	@scripts/explore

late: venv build ## the scheduler's and the plugin's tests on a machine that is slow at random: finds races; four minutes
	@scripts/explore late

storm: venv build ## kill at every step of moves of memory, 1,000 times; nothing must be lost
	@CONVGPU_ENGINE_KILLS=10 .venv/bin/pytest -q tests/lifecycle/moves
	@PYTHONPATH=tests/storm:tests/hook:tests/fakes:scheduler .venv/bin/python tests/storm/run.py

fuzz: venv ## feed all readers of sockets and pages 10,000,000 inputs of nonsense each (1/16 pages at the scheduler)
	@scripts/fuzz

plugin: venv ## build the managed plugin, create it in the Engine, enable it
	@scripts/plugin

release: venv build ## what is published: wheel, sdist, Debian package, plugin; REGISTRY=HOST/PATH pushes the plugin
	@scripts/release/all

test-install: venv build ## install the packages on bare Debian 12 and 13 and Ubuntu 24.04, and remove them again
	@scripts/release/try-installation

clean: ## remove what was built here (.venv and what the Engine keeps stay)
	@echo "==> Remove build products"
	@rm -rf build .cache/context hook/build porter/build tests/fakes/build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
