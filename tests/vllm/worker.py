"""A real vLLM on two cores: what it must be told to be small, to start soon and to answer like its neighbour."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SERVED_NAME = "forespeak"
# vLLM's attention on a CPU wants blocks of a multiple of 32 tokens.
BLOCK_TOKENS = 32
MAX_MODEL_LEN = 2048
KV_BYTES = 128 * 1024 * 1024
DRAFT_TOKENS = 3
# Two of them import torch at the same time, on two cores that may have other work.
START_TIMEOUT_SECONDS = 600
STOP_TIMEOUT_SECONDS = 30

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # The worker runs in the engine's process: two Python processes an instance instead of three.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Nothing is compiled at the first request.
    "TORCHDYNAMO_DISABLE": "1",
    # Threads that wait for each other by spinning are a disaster where cores are shared.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Where `tcp://*:0` of the KV events binds.
    "VLLM_HOST_IP": "127.0.0.1",
}


def reserve_port() -> socket.socket:
    """A port that nobody else gets while this socket lives; vLLM may bind it, because this one never listens."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class Worker:
    """One instance, in a process group of its own, so that nothing of it is left behind."""

    def __init__(self, target: str, draft: str | None = None):
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.name = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.name}"
        self.log = tempfile.TemporaryFile("w+")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", *self.flags(target, draft)],
            env={**os.environ, **ENVIRONMENT},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def flags(self, target: str, draft: str | None) -> list[str]:
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}
        flags = ["--model", target, "--served-model-name", SERVED_NAME, "--host", "127.0.0.1", "--port", str(self.port)]
        # f32: where two tokens are nearly equal, bf16 would let two instances part.
        flags += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "16"]
        flags += ["--block-size", str(BLOCK_TOKENS), "--kv-cache-memory-bytes", str(KV_BYTES), "--enable-prefix-caching"]
        flags += ["--enable-prompt-tokens-details", "--kv-events-config", json.dumps(events), "--disable-uvicorn-access-log"]
        if draft:
            speculation = {"method": "draft_model", "model": draft, "num_speculative_tokens": DRAFT_TOKENS}
            flags += ["--speculative-config", json.dumps(speculation)]
        return flags

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode()

    def wait(self) -> None:
        """Until it answers."""
        deadline = self.started + START_TIMEOUT_SECONDS
        while True:
            try:
                self.get("/health")
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert self.process.poll() is None and time.monotonic() < deadline, f"vLLM did not start:\n{self.tail()}"
                time.sleep(0.5)
        self.reserved.close()
        self.seconds_to_start = time.monotonic() - self.started

    def event_endpoints(self) -> dict[str, str]:
        """Where it publishes what it caches, and where that can be asked for again."""
        return json.loads(self.get("/kv_event_sources"))["0"]

    def tail(self) -> str:
        self.log.seek(0)
        return self.log.read()[-8000:]

    def kill(self, how: int = signal.SIGKILL) -> None:
        """Sends a signal to all of its processes."""
        try:
            os.killpg(self.process.pid, how)
        except ProcessLookupError:
            pass

    def stop(self) -> None:
        self.kill(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        # Its engine is a process of its own and may outlive it.
        self.kill()
        self.process.wait()
        self.reserved.close()
        self.log.close()
