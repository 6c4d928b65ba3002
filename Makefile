# `make` alone lists what there is to do.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help setup setup-tests serve build test test-rust test-openai test-vllm test-chaos lint bench-engine bench-kernels bench-routing bench-rivals bench-streams bench-cache bench-blocks bench-speculation clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## check for, and as root install, what building needs
	@scripts/setup

setup-tests: ## the same, and what tests and benchmarks need
	@scripts/setup tests

serve: setup ## build, then answer OpenAI requests on 127.0.0.1:8080 (ARGS="--model PATH" for another model)
	cargo run --release --locked -- serve $(ARGS)

build: setup
	cargo build --release --locked

test: test-rust test-openai ## every test that needs no GPU and no other server

test-rust: setup-tests ## unit, integration and documentation tests
	cargo test --workspace --locked

test-openai: setup-tests build ## the official OpenAI client against the running binary
	scripts/test-openai

test-vllm: setup-tests build ## the gateway in front of two real vLLM servers on this machine (5.6 GB of Python, once)
	scripts/test-vllm

lint: setup ## formatting, clippy with warnings denied, dependency policy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/deny

test-chaos: setup-tests ## the gateway under random faults for five minutes; prints the seed that repeats them
	FORESPEAK_CHAOS_SECONDS=$${FORESPEAK_CHAOS_SECONDS:-300} cargo test --workspace --locked --test chaos -- --nocapture

bench-engine: setup-tests build ## the engine against llama.cpp on the same files, in the same run
	scripts/bench/engine

bench-cache: setup-tests ## answers from the response cache over HTTP, from memory and from Redis (needs wrk)
	scripts/bench/cache

bench-blocks: setup-tests ## the first token of a prompt that only another engine has seen, loaded against computed
	scripts/bench/blocks $(ARGS)

bench-speculation: setup-tests ## what speculation is worth under each law and depth, on easy and on hopeless texts
	scripts/bench/speculation $(ARGS)

bench-kernels: setup ## matrix products against the memory roof
	cargo bench -p forespeak-kernels --locked

bench-routing: setup-tests ## policies on mock workers: Mooncake's traces (FORESPEAK_TRACES names their folder), growing chats
	scripts/bench/routing

bench-rivals: setup-tests ## what the gateway costs, against three other routers in front of the same workers
	scripts/bench/rivals

bench-streams: setup-tests ## ten thousand slow streams at once
	scripts/bench/streams

clean: ## remove build outputs
	cargo clean
