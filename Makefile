# `make help` lists the targets. All of them but help need nothing but Python 3.11+ and a C toolchain.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOME_DIR := data
MODELS := $(HOME_DIR)/models/.fetched

DATASET ?= vibrent
METHOD ?= gti
METHODS ?= mean_sft,lc_rec,gti
SEEDS ?= 1
CRON ?= 0 3 * * 0
PORT ?= 5000

# every variable that is given becomes an option; those that are not leave the command's own defaults
COMMON := --dataset "$(DATASET)" $(if $(PROFILE),--profile "$(PROFILE)") $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") \
  $(if $(LIMIT_USERS),--set data.max_users=$(LIMIT_USERS)) $(if $(LIMIT_ITEMS),--set data.max_items=$(LIMIT_ITEMS)) $(SET)
ONE := $(COMMON) --method "$(METHOD)" $(if $(SEED),--seed $(SEED))
REAL := $(if $(filter 1 true yes,$(REQUIRE_REAL)),--require-real)
SCHEDULED := $(if $(filter 0 false no,$(REQUIRE_REAL)),--allow-standin)
# the tiny LM needs no pretrained model
NEEDS := $(VENV)/.installed $(if $(filter tiny,$(PROFILE)),,$(MODELS))
export PREFECT_HOME ?= $(CURDIR)/$(HOME_DIR)/prefect
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: help
help: ## this list
	@echo "usage: make TARGET [VARIABLE=value ...]"
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'
	@echo "variables: DATASET=$(DATASET) METHOD=$(METHOD) PROFILE=(cpu, paper with a GPU; tiny) SEED= DATA_DIR= LIMIT_USERS="
	@echo "  LIMIT_ITEMS= REQUIRE_REAL=1 METHODS=$(METHODS) SEEDS=$(SEEDS) CRON='$(CRON)' SET='--set a.b=c'"

.PHONY: setup
setup: $(VENV)/.installed $(MODELS) ## environment and pretrained models (other targets do this by themselves)

$(VENV)/.installed: pyproject.toml configs/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11 ..."; exit 1; }
	@echo "set-up 1 of 4: virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	@echo "set-up 2 of 4: torch (the largest part)"
	@$(BIN)/python -m pip install --disable-pip-version-check torch==2.13.0
	@echo "set-up 3 of 4: everything else, at the versions of configs/constraints.txt"
	@$(BIN)/uv pip install --python $(BIN)/python --constraint configs/constraints.txt --editable '.[dev,implicit,peft]' || { \
	  echo "uv could not install; pip does it, which takes some minutes"; \
	  $(BIN)/python -m pip install --disable-pip-version-check --constraint configs/constraints.txt --editable '.[dev,implicit,peft]'; }
	@touch $@

$(MODELS): $(VENV)/.installed
	@echo "set-up 4 of 4: two small pretrained models (about 180 MB, once)"
	@$(BIN)/gti models fetch --home $(HOME_DIR)
	@touch $@

.PHONY: pipeline
pipeline: $(NEEDS) ## text to recommendations with metrics, for DATASET and METHOD
	@$(BIN)/gti run $(ONE) $(REAL)

.PHONY: compare
compare: $(NEEDS) ## METHODS x SEEDS in one table, shared stages once; BASELINES=content_knn,sasrec stand beside them; DATASET=jobs is a search task
	@$(BIN)/gti compare $(COMMON) --methods "$(METHODS)" --seeds $(SEEDS) $(if $(BASELINES),--baselines "$(BASELINES)") $(REAL)

.PHONY: baselines
baselines: $(NEEDS) ## popularity to SASRec in one table; NAMES=popular,sasrec for some; WITH_ARM=gti adds that arm
	@$(BIN)/gti baselines $(COMMON) $(if $(NAMES),--names "$(NAMES)") $(if $(WITH_ARM),--with-arm "$(WITH_ARM)") $(REAL)

.PHONY: report
report: ## opens the newest report or comparison in a browser, and says where it is
	@page=$$(ls -t $(HOME_DIR)/reports/*/*/report.html $(HOME_DIR)/reports/*/*/comparison.html 2>/dev/null | head -n 1 || true); \
	test -n "$$page" || { echo "no report yet: make pipeline or make compare writes one"; exit 1; }; \
	echo "$(CURDIR)/$$page"; \
	opener=$$(command -v xdg-open || command -v open || true); \
	test -z "$$opener" || "$$opener" "$$page" >/dev/null 2>&1 || echo "no browser could be started: open it in yours"

.PHONY: data-check
data-check: $(VENV)/.installed ## exact counts of a data set's rows: read, kept, rejected by reason
	@$(BIN)/gti data check --dataset "$(DATASET)" $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(REAL) $(SET)

.PHONY: ui
ui: $(VENV)/.installed ## MLflow's UI on http://127.0.0.1:PORT (takes half a minute to start)
	@mkdir -p $(HOME_DIR)/mlflow/artifacts
	@echo "MLflow on http://127.0.0.1:$(PORT) (Ctrl-C stops it)"
	@MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow server --host 127.0.0.1 --port $(PORT) --workers 1 \
	  --backend-store-uri "sqlite:///$(CURDIR)/$(HOME_DIR)/mlflow/mlflow.db" \
	  --default-artifact-root "file://$(CURDIR)/$(HOME_DIR)/mlflow/artifacts"

.PHONY: server
server: $(VENV)/.installed ## Prefect's server and UI on http://127.0.0.1:4200, for schedules
	@mkdir -p $(PREFECT_HOME)
	@$(BIN)/prefect server start --host 127.0.0.1 --port 4200

.PHONY: schedule
schedule: $(NEEDS) ## serves the pipeline on CRON, one run at a time; needs `make server`; REQUIRE_REAL=0 allows the stand-in
	@PREFECT_API_URL=$${PREFECT_API_URL:-http://127.0.0.1:4200/api} $(BIN)/gti schedule $(ONE) --cron "$(CRON)" $(SCHEDULED)

.PHONY: test
test: $(VENV)/.installed $(MODELS) ## the test suite
	@$(BIN)/pytest -n 2 --dist loadscope

.PHONY: test-schedule
test-schedule: $(VENV)/.installed ## a real Prefect server starts a run by its schedule (about two minutes)
	@$(BIN)/pytest tests/schedule

.PHONY: bench
bench: $(VENV)/.installed $(MODELS) ## speed and memory beside plain references (under 20 minutes); BENCH=decode for one
	@$(BIN)/python tests/benchmarks/suite.py $(if $(BENCH),--only "$(BENCH)")

.PHONY: lint
lint: $(VENV)/.installed ## ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.installed ## ruff's formatter and safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: clean
clean: ## removes generated artifacts, runs and reports; keeps raw data, models and the environment
	rm -rf $(addprefix $(HOME_DIR)/,artifacts work reports mlflow prefect)
