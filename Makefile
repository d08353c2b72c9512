# The interface of the kit. `make` alone lists what learners and instructors need.
PY := .venv/bin/python
.DEFAULT_GOAL := help
# Modules of clusters set these for another Python.
unexport PYTHONPATH PYTHONHOME
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

# The lines of a section's targets, up to the next line that begins with ##@
list = awk -F ':.*\#\# ' '$(1) /^\#\#@/ {print "\n" substr($$0, 5)} /^[a-z-]+:.*\#\# / {printf "  %-14s %s\n", $$1, $$2}' Makefile

help:
	@echo "From π to ZeRO. make TARGET, where TARGET is one of:"
	@$(call list,/^\#\#@ For maintainers/ {exit})
	@echo; echo "make help-all lists what maintainers need, too."

help-all:
	@echo "From π to ZeRO. make TARGET, where TARGET is one of:"
	@$(call list)

##@ For learners

lab: set-up     ## create the environment if needed, check the machine, open JupyterLab at notebook 00
	@$(PY) tools/lab.py

doctor: set-up  ## what this machine has, what is missing, and what to do about it
	@$(PY) -m pi2zero doctor $(ARGS)

update:         ## take the corrections that the origin has, and keep every line that you have written
	@$(call with_python,tools/update.py)

reset: set-up   ## end what the kit has started from this clone on this host, and nothing else
	@$(PY) -m pi2zero reset

horovod: set-up ## compile Horovod and DeepSpeed's operators again, if that failed during `make lab`
	@$(PY) -m pi2zero build --again --wait

r: set-up       ## optional: R, Rmpi and R's kernel for notebook A1 (Debian as root; half a minute)
	@$(PY) tools/r.py

two-hosts: set-up ## JupyterLab at notebook 12, with two hosts and a Slurm made on this machine (root, Linux)
	@$(PY) tools/two_hosts.py

gpu:            ## on a GPU node: test every GPU path in ten minutes (PYTHON=... any with torch)
	@python="$(PYTHON)"; [ -n "$$python" ] || { [ -x $(PY) ] && python=$(PY) || python=python3; }; exec "$$python" tools/gpu.py

##@ For instructors

test: set-up    ## lint, the tests of the core, and the notebooks of the short way compared (15 to 19 minutes)
	@$(PY) tools/check.py test

slides: set-up  ## build the decks: HTML that needs no network, and PDF if there is a Chromium
	@$(PY) slides/build.py

site: set-up    ## build the site: notebooks, labs and slides as pages that need no network (a minute)
	@$(PY) site/build.py

hub: set-up     ## a JupyterHub for a room of people on this node (root); CONFIG=slurm: each in a Slurm job
	@$(PY) tools/hub.py $(or $(CONFIG),one_node) $(ARGS)

handout:        ## the kit as one file for attendees, without the labs' solutions: build/pi2zero-handout.zip
	@mkdir -p build
	@git archive --worktree-attributes --prefix=pi2zero/ --output=build/pi2zero-handout.zip HEAD
	@echo "build/pi2zero-handout.zip: the last commit without solutions. Unpack it, then: make lab"

clean:          ## remove what can be made again: .venv, built slides, caches
	@if $(PY) -c 'import pi2zero' 2>/dev/null; then $(PY) -m pi2zero reset; $(PY) -m pi2zero build --stop; fi
	@rm -rf .venv .venv-mpich .venv-openmpi4 .venv-site slides/build site/build .pytest_cache .ruff_cache src/*.egg-info course/src/*.egg-info course/build
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name before_update -exec rm -rf {} +; fi
	@find . -name __pycache__ -prune -exec rm -rf {} +

##@ For maintainers

test-all: set-up ## all tests and notebooks, several hosts, Slurm and browsers included (80 minutes)
	@$(PY) tools/check.py all

test-rest: set-up ## what `make test-all` runs and `make test` does not
	@$(PY) tools/check.py rest $(STEPS)

test-fast: set-up ## the tests that start no ranks (two minutes)
	@$(PY) -m pytest -q -n3 --dist=loadfile -m "not long" tests

cluster-test: set-up ## ranks on several hosts: makes two hosts and a Slurm here (root, Linux), tests, removes them
	@$(PY) tools/check.py all built hosts

labs: set-up    ## generate labs/ from solutions/
	@$(PY) tools/labs.py

notebooks: set-up ## run all notebooks and solutions on fresh kernels and store their outputs
	@$(PY) tools/notebooks.py notebooks/*.ipynb solutions/*.ipynb
	@$(PY) site/pictures.py # the README's

links: set-up   ## ask for every address that the site leads to; says so where there is no network
	@$(PY) site/links.py

browser: set-up ## open and run notebooks in a headless Chromium; pictures in build/screens/
	@$(PY) -m pytest -q tests/browser

screencast: set-up ## record the film of README and site again, in a headless Chromium (five minutes)
	@PI2ZERO_SCREENCAST=docs/pictures/screencast.gif $(PY) -m pytest -q -m nightly tests/browser/test_screencast.py

bench: set-up   ## measure (35 minutes, idle machine), write the pages in benchmarks/, name what got worse
	@$(PY) benchmarks/pages.py --save
	@$(PY) benchmarks/bench_start.py --rounds 2
	@$(PY) benchmarks/bench.py
	@$(PY) benchmarks/bench_cells.py
	@$(PY) benchmarks/bench_collectives.py
	@$(PY) benchmarks/bench_training.py
	@$(PY) benchmarks/bench_zero.py --rounds 2
	@$(PY) benchmarks/bench_plan.py --rounds 2 --steps 2
	@$(PY) benchmarks/bench_summaries.py --rounds 2 --seeds 1 --minutes
	@$(PY) benchmarks/pages.py --compare

soak: set-up    ## 200 rounds of start, break, continue, stop: does anything grow? (15 minutes)
	@$(PY) benchmarks/pages.py --save
	@$(PY) benchmarks/bench_soak.py
	@$(PY) benchmarks/pages.py --compare

bench-room: set-up ## ten simulated attendees at once in notebook 02, by the hub (root, 10 minutes)
	@$(PY) tools/hub.py install
	@$(PY) benchmarks/bench_room.py

lock: set-up    ## write the locks from the ranges of pyproject.toml; UPGRADE=--upgrade takes the newest
	@$(PY) tools/lock.py $(UPGRADE)

audit: set-up   ## licences, a bill of materials, known vulnerabilities of the pins (network)
	@mkdir -p build
	@.venv/bin/uv tool run pip-licenses --python $(PY) --from=mixed --format=markdown --output-file=build/licences.md
	@.venv/bin/uv tool run --from cyclonedx-bom cyclonedx-py environment --output-file build/sbom.json $(PY)
	@cat requirements.lock hub/requirements.lock site/requirements.lock > build/pins.txt
	@.venv/bin/uv tool run pip-audit --disable-pip --no-deps -r build/pins.txt

coverage: set-up ## lines and branches that the tests run, also in ranks (an hour)
	@$(PY) -m coverage erase
	@$(PY) -m coverage run tools/check.py all tests
	@$(PY) -m coverage combine -q && $(PY) -m coverage report

mpi-libraries: set-up ## notebooks 02, 03, 05 under Open MPI 4 and MPICH, for reports/mpi_libraries.md (an hour)
	@for library in openmpi4 mpich; do $(PY) tools/mpi_libraries.py $$library --horovod --test; done

# Quick when .venv is there already. PYTHON=/path/to/python3.11 chooses the interpreter. SITE=1 builds on a site's torch and MPI.
set-up:
	@$(call with_python,tools/setup.py)

PYTHONS := $(or $(PYTHON),$(if $(SITE),python3,python3.11 python3.12 python3.13 python3.14 python3))
with_python = for python in $(PYTHONS); do \
	  if "$$python" -c "" 2>/dev/null; then PYTHON="$(PYTHON)" SITE="$(SITE)" SITE_PYTHONPATH="$(PYTHONPATH)" exec "$$python" $(1); fi; done; \
	echo "set-up stopped: none of these runs: $(PYTHONS)." >&2; \
	echo "What to do: install Python 3.11 to 3.14 (Debian: apt-get install python3 python3-venv), then run make again." >&2; exit 1
