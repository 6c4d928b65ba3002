"""Rate and latency of cache hits over HTTP. Started by scripts/bench/cache; prints Markdown."""

import argparse
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

BINARY = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "forespeak")
CHAT = {"messages": [{"role": "user", "content": "What is a Kubernetes Pod?"}], "temperature": 0, "max_tokens": 24}


def start(*arguments):
    """A server on a free port, and its address."""
    environment = dict(os.environ, FORESPEAK_CACHE_SECRET="bench", RUST_LOG="warn")
    server = subprocess.Popen(
        [BINARY, "serve", "--listen", "127.0.0.1:0", "--threads", "1", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )
    for line in server.stdout:
        if line.split() and line.split()[0] == "address":
            return server, line.split()[1]
    raise SystemExit("the server did not start")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(address, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/v1/chat/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.headers["x-cache"], answer.read()


def until_hit(address, body):
    deadline = time.monotonic() + 20
    while ask(address, body)[0] != "HIT":
        if time.monotonic() > deadline:
            raise SystemExit("the answer was never kept")
        time.sleep(0.05)


def metric(address, name):
    with urllib.request.urlopen(f"{address}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name):
                return float(line.rsplit(" ", 1)[1])
    raise SystemExit(f"no metric {name}")


def resident(server):
    with open(f"/proc/{server.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def load(address, body, options, folder):
    script = os.path.join(folder, "post.lua")
    with open(script, "w") as out:
        out.write(f"wrk.method = 'POST'\nwrk.body = {json.dumps(json.dumps(body))}\n")
        out.write("wrk.headers['content-type'] = 'application/json'\n")
    command = ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency", "-s", script,
               f"{address}/v1/chat/completions"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(text)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    quantile = {name: milliseconds(value) for name, value in re.findall(r"^\s+(50|99)%\s+(\S+)$", text, re.MULTILINE)}
    return rate, quantile["50"], quantile["99"]


def row(name, address, body, options, folder):
    until_hit(address, body)
    bytes_of_answer = len(ask(address, body)[1])
    rate, half, most = load(address, body, options, folder)
    print(f"| {name} | {bytes_of_answer:,} | {rate:,.0f} | {half:.2f} | {most:.2f} |", flush=True)


def scan(options):
    """Ten times as many answers as there is room for."""
    room = 1 << 20
    server, address = start("--cache-memory", str(room))
    try:
        ask(address, CHAT)
        before = resident(server)
        stored, number = 0, 0
        while stored < 10 * room:
            body = dict(CHAT, max_tokens=1, messages=[{"role": "user", "content": f"number {number}"}])
            ask(address, body)
            number += 1
            if number % 500 == 0:
                # What an entry takes besides its bytes counts, too.
                stored = metric(address, "forespeak_cache_stored_bytes_total") + 320 * number
        held = metric(address, "forespeak_cache_bytes")
        print(f"\nScan: {number:,} answers of together {stored / room:.0f} MiB into 1 MiB: {held / room:.2f} MiB held, "
              f"{metric(address, 'forespeak_cache_evictions_total'):,.0f} evictions, resident memory "
              f"{before:.0f} -> {resident(server):.0f} MiB")
        assert held <= room, "the cache holds more than it may"
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--no-scan", action="store_true")
    options = parser.parse_args()
    streamed = dict(CHAT, stream=True)
    print("| hit from | bytes | requests/s | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        server, address = start("--cache", "memory")
        try:
            row("memory", address, CHAT, options, folder)
            row("memory, streamed", address, streamed, options, folder)
        finally:
            server.terminate()
            server.wait()
        port = str(free_port())
        redis = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            server, address = start("--cache", f"redis://127.0.0.1:{port}", "--cache-memory", "1")  # too little for any answer
            row("Redis", address, CHAT, options, folder)
            row("Redis, streamed", address, streamed, options, folder)
        finally:
            server.terminate()
            server.wait()
            redis.terminate()
            redis.wait()
    if not options.no_scan:
        scan(options)


if __name__ == "__main__":
    main()
