//! What `--help` shows at its end: commands that work as they stand.

pub(super) const SERVE: &str = "Examples:
  forespeak serve
      the bundled model on http://127.0.0.1:8080
  forespeak serve --model llama-3.2-1b-q8_0.gguf --max-model-len 8192
      a GGUF file; tokenizer and chat template come out of it
  forespeak serve --model ./Qwen3-0.6B --quantize q8_0 --served-model-name qwen
      a Hugging Face folder, its weights halved while loading
  forespeak serve --listen 0.0.0.0:8080 --api-key-file keys.txt
      open to the network, for those who have a key
  forespeak serve --kv-cache-memory 2GiB --kv-dtype int8
      more conversations in the same memory
  forespeak serve --model target.gguf --draft small.gguf
      the small model guesses ahead, the other one verifies: the same text, sooner
  forespeak serve --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
      a gateway in front of two vLLM servers; model names are learnt from them
  forespeak serve --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000 \\
      --tokenizer ./Llama-3.1-8B --worker-kv-events tcp://{host}:5557 --worker-kv-replay tcp://{host}:5558
      the same, knowing token by token what each of them has cached
  forespeak serve --config forespeak.toml
      several pools, tenants, limits: `forespeak check --example` prints a file to begin with";

pub(super) const EXPLAIN: &str = "Examples:
  forespeak explain request.json --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
      every worker with the terms of its score, the chosen one, and one sentence
  forespeak explain request.json --config forespeak.toml --tenant acme --json
      the same for programs, as one of the tenants";

pub(super) const CHECK: &str = "Examples:
  forespeak check --config forespeak.toml
      the file, and every worker in it
  forespeak check --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
      two workers, without a file
  forespeak check --model target.gguf --draft small.gguf
      whether the one can draft for the other
  forespeak check --schema > forespeak.schema.json
      for editors that complete and check TOML
  forespeak check --example > forespeak.toml
      a file to begin with, its keys explained

Ends with status 0 if nothing failed, 1 otherwise; warnings do not count.";

pub(super) const ENGINE: &str = "Examples:
  forespeak engine --model model.gguf --listen 0.0.0.0:8000
      a worker; a gateway finds its load in /metrics
  forespeak engine --model model.gguf --kv-events-endpoint tcp://0.0.0.0:5557
      and tells which prefixes it holds, in vLLM's encoding
  forespeak engine --model model.gguf --kv-store memory:4GiB --kv-store redis://10.0.0.9:6379?size=8GiB
      and loads prefixes that it, or another worker, has computed before";

pub(super) const BENCH: &str = "Examples:
  forespeak bench --requests 500 --concurrency 16
      a closed loop of sixteen clients
  forespeak bench --rate 4 --requests 1000 --prompt-tokens 2000 --shared-tokens 1500
      a Poisson process; groups of prompts share three quarters of their tokens
  forespeak bench --workload chats --rate 0.5 --duration 120 --json figures.json
      growing chats over shared documents
  forespeak bench --workload mooncake --trace conversation_trace.jsonl --speed 2 --token-ids
      recorded traffic, twice as fast";

pub(super) const RENDER_VLLM: &str = "Examples:
  forespeak render vllm --model meta-llama/Llama-3.1-8B-Instruct
      prefix caching and KV events; the gateway listens with --worker-kv-events tcp://{host}:5557 and
      --worker-kv-replay tcp://{host}:5558
  forespeak render vllm --model M --kv-store memory:64GiB --kv-store dir:/mnt/kv
      and vLLM's own offloading: to host memory, from there to a folder that servers share
  forespeak render vllm --model M --kv-store lmcache://10.0.0.9:5555
      and LMCache's server; mooncake:/etc/mooncake.json is a Mooncake store
  forespeak render vllm --model M --kv-store memory:64GiB --json
      the same for manifests: {\"command\": [...], \"env\": {...}}

Flags are those of vLLM 0.32.";
