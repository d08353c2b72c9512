# The interface of the kit. `make` alone lists what there is.
PY := .venv/bin/python
.DEFAULT_GOAL := help
# Modules of clusters set these for another Python.
unexport PYTHONPATH PYTHONHOME
.PHONY: help lab test test-fast cluster-test two-hosts gpu labs notebooks slides site links handout browser bench doctor reset clean set-up horovod r mpi-libraries
.PHONY: update audit canary compatibility faults tensorflow lock hub bench-room soak coverage containers stick

help:           ## this list
	@echo "From π to ZeRO. make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

lab: set-up     ## create the environment if need be, check the machine, open JupyterLab at notebook 00
	@$(PY) tools/lab.py

test: set-up    ## what CI runs: lint, tests, labs in step, every notebook, faults, slides
	@$(PY) tools/check.py

test-fast: set-up ## lint, labs in step and the package tests that start no ranks: two minutes
	@$(PY) tools/check.py bytecode lint labs fast

cluster-test: set-up ## ranks on several hosts: makes two hosts and a Slurm on this machine (root, Linux), tests, removes them
	@$(PY) tools/check.py hosts

faults: set-up  ## every named fault of tests/helpers/faults.toml, injected for real; writes docs/faults.md (about a quarter of an hour)
	@$(PY) -m pi2zero built --wait
	@$(PY) -m pytest -q -p tests.helpers.fault_page -n2 --dist=loadfile --no-loadscope-reorder tests --ignore=tests/several_hosts

two-hosts: set-up ## JupyterLab at notebook 12, amid two hosts and a Slurm made on this machine (root, Linux)
	@$(PY) tools/two_hosts.py

gpu:            ## on a GPU node: try every GPU path in ten minutes, write what came of it into docs/gpu/ (PYTHON=... any with torch)
	@python="$(PYTHON)"; [ -n "$$python" ] || { [ -x $(PY) ] && python=$(PY) || python=python3; }; exec "$$python" tools/gpu.py

labs: set-up    ## generate labs/ from solutions/
	@$(PY) tools/labs.py

update:         ## take the corrections that the origin has, and keep every line that you have written
	@$(call with_python,tools/update.py)

notebooks: set-up ## run all notebooks and solutions on fresh kernels and store their outputs
	@$(PY) tools/notebooks.py notebooks/*.ipynb solutions/*.ipynb
	@$(PY) site/pictures.py # the README's

slides: set-up  ## build the decks: HTML that needs no network, and PDF if there is a Chromium
	@$(PY) slides/build.py

site: set-up    ## build the site: notebooks, labs and slides as pages that need no network (a minute)
	@$(PY) site/build.py

links: set-up   ## ask for every address that the site leads to; says so where there is no network
	@$(PY) site/links.py

browser: set-up ## open every notebook in JupyterLab in a headless Chromium, run it, keep pictures in build/screens/
	@$(PY) -m pytest -q tests/browser

bench: set-up   ## measure, write the pages in benchmarks/ and the one page of all, name what got worse (leave the machine alone)
	@$(PY) benchmarks/pages.py --aside
	@$(PY) benchmarks/bench_start.py --rounds 2
	@$(PY) benchmarks/bench.py
	@$(PY) benchmarks/bench_limits.py
	@$(PY) benchmarks/bench_cells.py
	@$(PY) benchmarks/bench_collectives.py
	@$(PY) benchmarks/bench_training.py
	@$(PY) benchmarks/bench_zero.py --rounds 2
	@$(PY) benchmarks/bench_plan.py --rounds 2 --steps 2
	@$(PY) benchmarks/bench_parallel.py --rounds 3
	@$(PY) benchmarks/bench_summaries.py --rounds 2 --seeds 1 --minutes
	@$(PY) benchmarks/pages.py --compare

soak: set-up    ## 200 rounds of start, break, go on, stop: does anything grow? (a quarter of an hour); writes benchmarks/soak.md
	@$(PY) benchmarks/pages.py --aside
	@$(PY) benchmarks/bench_soak.py
	@$(PY) benchmarks/pages.py --compare

hub: set-up     ## a room of people on this node: JupyterHub (root); CONFIG=slurm: each person in a Slurm job
	@$(PY) tools/hub.py $(or $(CONFIG),one_node) $(ARGS)

bench-room: set-up ## ten simulated attendees at once in notebook 02, by the hub (root, 10 minutes); writes benchmarks/room.md
	@$(PY) tools/hub.py install
	@$(PY) benchmarks/bench_room.py

handout: set-up ## the kit as one file for attendees, without the labs' solutions: build/pi2zero-handout.zip
	@$(PY) tools/handout.py

stick: set-up   ## all that a room without a network needs, for a USB stick: build/stick (FOLDER=... writes there)
	@$(PY) tools/stick.py $(if $(FOLDER),"$(FOLDER)")

containers: set-up ## run the containers' recipes in a bare Debian 12 (root, mmdebstrap, 25 minutes)
	@for recipe in docker apptainer devcontainer binder; do $(PY) tools/bare_tree.py $$recipe || exit 1; done

doctor: set-up  ## what this machine has, what is missing, and what to do about it
	@$(PY) -m pi2zero doctor

horovod: set-up ## try again to compile Horovod and DeepSpeed's operators, if that failed beside `make lab`
	@$(PY) -m pi2zero built --again --wait

lock: set-up    ## write requirements.lock, the pins of requirements.txt with their hashes
	@$(PY) tools/lock.py

coverage: set-up ## lines and branches of the package that its tests run, in ranks, too (an hour); build/coverage/report.txt
	@$(PY) tools/covered.py

audit: set-up   ## licences into docs/licences.md, a bill of materials into build/sbom.json, known vulnerabilities (network)
	@$(PY) tools/audit.py

compatibility: set-up ## for which Pythons and platforms the pins have wheels; writes docs/compatibility.md (network)
	@$(PY) tools/compatibility.py

canary: set-up  ## the kit with the newest versions that PyPI serves, in a clone of its own: what breaks (ten minutes, network)
	@$(PY) tools/canary.py

r: set-up       ## optional: R with Rmpi, and its kernel in JupyterLab, for notebook A1 (Debian as root; half a minute)
	@$(PY) tools/r.py

mpi-libraries: set-up ## optional: the tests of notebooks 02, 03, 05 under Open MPI 4 and MPICH, for docs/mpi_libraries.md (an hour)
	@$(PY) tools/mpi_libraries.py

tensorflow:     ## optional: .venv-tensorflow, for scripts/train_tensorflow.py (about ten minutes, once)
	@$(call with_python,tools/setup_tensorflow.py)

reset: set-up   ## end what the kit has started from this clone on this host, and nothing else
	@$(PY) -m pi2zero reset

clean:          ## remove what can be made again: .venv, built slides, caches (what `make update` has kept of yours stays)
	@if $(PY) -c 'import pi2zero' 2>/dev/null; then $(PY) -m pi2zero reset; $(PY) -m pi2zero built --stop; fi
	@rm -rf .venv .venv-tensorflow .venv-mpich .venv-openmpi4 .venv-site slides/build site/build .pytest_cache .ruff_cache src/*.egg-info course/src/*.egg-info course/build
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name before_update -exec rm -rf {} +; fi
	@find . -name __pycache__ -prune -exec rm -rf {} +

# Quick when .venv is there already. PYTHON=/path/to/python3.11 chooses the interpreter. SITE=1 builds on a site's torch and MPI.
set-up:
	@$(call with_python,tools/setup.py)

with_python = for python in "$(PYTHON)" python3.11 python3; do \
	  if command -v "$$python" >/dev/null 2>&1; then PYTHON="$(PYTHON)" SITE="$(SITE)" SITE_PYTHONPATH="$(PYTHONPATH)" exec "$$python" $(1); fi; done; \
	echo "set-up stopped: there is no python3 on the PATH." >&2; \
	echo "What to do: install Python 3.11 (Debian 12: apt-get install python3.11 python3.11-venv), then run make again." >&2; exit 1
