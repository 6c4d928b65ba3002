"""Time to the first token with blocks of another engine, against computing them. Prints Markdown.

For each store and round, two fresh engines: the first reads a new prompt (computing it), the second reads the same prompt
(loading it). A third engine without a store computes it, too: the reference. All three must answer the same text.
"""

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

BINARY = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "forespeak")
BOUND = 0.4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    def __init__(self, model, *arguments):
        command = [BINARY, "engine", "--listen", "127.0.0.1:0", "--drafter", "off", *arguments]
        if model:
            command += ["--model", model]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, RUST_LOG="warn"))
        for line in self.process.stdout:
            if line.split() and line.split()[0] == "address":
                self.host = line.split()[1].removeprefix("http://")
                return
        raise SystemExit(f"{' '.join(command)} did not start")

    def ask(self, prompt):
        """Seconds to the first token, and the text."""
        link = http.client.HTTPConnection(self.host)
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True, "ignore_eos": True}
        data = json.dumps(body)
        link.connect()
        began = time.perf_counter()
        link.request("POST", "/v1/completions", data, {"content-type": "application/json"})
        answer = link.getresponse()
        first, text = None, []
        for line in answer:
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                if choices and first is None:
                    first = time.perf_counter() - began
                text += [choice["text"] for choice in choices]
        assert first is not None, "no token came"
        return first, "".join(text)

    def metric(self, name):
        link = http.client.HTTPConnection(self.host)
        link.request("GET", "/metrics")
        lines = link.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def settle(engine):
    """Waits until the writing thread has nothing left to write."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        now = engine.metric("forespeak:kv_store_blocks_stored_total")
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.02)
    return last


def measure(model, store, prompts):
    """For each prompt: computed without a store, computed with it, loaded by another engine."""
    warm = [5, 6, 7] * 40
    plain, first, second = Engine(model), Engine(model, "--kv-store", store), Engine(model, "--kv-store", store)
    try:
        for engine in (plain, first, second):
            engine.ask(warm)
        rows = []
        for prompt in prompts:
            computed, text = plain.ask(prompt)
            written, same = first.ask(prompt)
            settle(first)
            before = second.metric("forespeak:kv_store_blocks_loaded_total")
            loaded, again = second.ask(prompt)
            blocks = second.metric("forespeak:kv_store_blocks_loaded_total") - before
            assert text == same == again, "another text"
            rows.append((computed, written, loaded, blocks))
        return rows
    finally:
        for engine in (plain, first, second):
            engine.stop()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--tokens", type=int, default=1800)
    options.add_argument("--model", action="append", default=[], help="a GGUF file beside the bundled model")
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    chance = random.Random(options.seed)
    worst = 0.0
    print(f"{options.tokens} tokens, median of {options.rounds} prompts\n")
    print("| model | store | computed | computed and stored | loaded | ratio | blocks loaded |")
    print("|---|---|---|---|---|---|---|")
    for model in [None, *options.model]:
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            redis = subprocess.Popen(
                ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder],
                stdout=subprocess.DEVNULL)
            try:
                while True:
                    with socket.socket() as probe:
                        if probe.connect_ex(("127.0.0.1", port)) == 0:
                            break
                    time.sleep(0.02)
                stores = {"folder": f"dir:{folder}/blocks?size=8GiB", "Redis": f"redis://127.0.0.1:{port}?size=4GiB"}
                for name, store in stores.items():
                    prompts = [[chance.randrange(300, 3000) for _ in range(options.tokens)] for _ in range(options.rounds)]
                    rows = measure(model, store, prompts)
                    computed, written, loaded, blocks = (statistics.median(column) for column in zip(*rows))
                    ratio = statistics.median(row[2] / row[0] for row in rows)
                    worst = max(worst, ratio)
                    title = Path(model).stem if model else "bundled"
                    print(f"| {title} | {name} | {computed * 1e3:.0f} ms | {written * 1e3:.0f} ms | {loaded * 1e3:.0f} ms "
                          f"| {ratio:.2f} | {blocks:.0f} |", flush=True)
            finally:
                redis.kill()
                redis.wait()
    print(f"\nworst ratio {worst:.2f}, at most {BOUND}: {'yes' if worst <= BOUND else 'NO'}")


main()
