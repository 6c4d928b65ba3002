"""Rate and latency of cache hits over HTTP. Started by scripts/bench/cache; prints Markdown."""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import harness

BINARY = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "forespeak")
CHAT = {"messages": [{"role": "user", "content": "What is a Kubernetes Pod?"}], "temperature": 0, "max_tokens": 24}


def start(*arguments):
    """A server on a free port, and its address."""
    environment = dict(os.environ, FORESPEAK_CACHE_SECRET="bench", RUST_LOG="warn")
    server = subprocess.Popen(
        [BINARY, "serve", "--listen", "127.0.0.1:0", *([] if "--worker" in arguments else ["--threads", "1"]), *arguments],
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


class Redis:
    """A server of our own, to be asked what it did, and to be killed, paused and restarted."""

    def __init__(self, folder):
        self.port = free_port()
        self.folder = folder
        self.process = None
        self.restart()

    def restart(self):
        self.process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no",
             "--dir", self.folder], stdout=subprocess.DEVNULL)

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def info(self, section):
        """What it says of itself, as numbers and texts."""
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            link.sendall(f"INFO {section}\r\n".encode())
            reader = link.makefile("rb")
            text = reader.read(int(reader.readline()[1:])).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def gets_and_hits(self):
        gets = self.info("commandstats").get("cmdstat_get", "calls=0,").split("calls=")[1].split(",")[0]
        return int(gets), int(self.info("stats")["keyspace_hits"])


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
    requests = int(re.search(r"(\d+) requests in", text).group(1))
    quantile = {name: milliseconds(value) for name, value in re.findall(r"^\s+(50|99)%\s+(\S+)$", text, re.MULTILINE)}
    return requests, rate, quantile["50"], quantile["99"]


def row(name, address, body, options, folder, redis=None):
    until_hit(address, body)
    bytes_of_answer = len(ask(address, body)[1])
    before = redis.gets_and_hits() if redis else (0, 0)
    requests, rate, half, most = load(address, body, options, folder)
    asked = "-"
    if redis:
        gets, hits = (after - first for after, first in zip(redis.gets_and_hits(), before))
        asked = f"{gets / requests:.3f}, {hits / requests:.3f}"
        assert gets >= requests and hits >= requests, f"{requests} answers, but Redis counts {gets} GETs and {hits} hits"
    print(f"| {name} | {bytes_of_answer:,} | {rate:,.0f} | {half:.2f} | {most:.2f} | {asked} |", flush=True)


def quantile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else float("nan")


def clients(address, seconds, count=4):
    """Closed loops of chats of which most were asked before; milliseconds of each, and how many were not answered rightly."""
    host, port = address.removeprefix("http://").rsplit(":", 1)
    took, failed, end = [], [], time.monotonic() + seconds

    def one(client):
        link = http.client.HTTPConnection(host, int(port), timeout=10)
        number = client
        while time.monotonic() < end:
            number += count
            body = json.dumps(dict(CHAT, model="mock", messages=[{"role": "user", "content": f"question {number % 200}"}]))
            started = time.perf_counter()
            try:
                link.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                answer = link.getresponse()
                text = answer.read()
                if answer.status != 200 or not json.loads(text)["choices"][0]["message"]["content"]:
                    failed.append(text)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failed.append(error)
                link.close()
            took.append((time.perf_counter() - started) * 1000)

    threads = [threading.Thread(target=one, args=[client]) for client in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(took), failed


def disturb(options):
    """Redis killed, restarted, paused and resumed under load, in front of a worker that answers at once: what that adds."""
    print("\n| Redis | requests | not answered | p50 ms | p99 ms | longest ms |\n|---|---:|---:|---:|---:|---:|", flush=True)
    with harness.mocks("--constant") as workers, tempfile.TemporaryDirectory() as folder:
        worker = ["--worker", workers[0]["url"]]

        def phase(name, address, before=lambda: None):
            trouble = threading.Timer(options.seconds / 4, before)
            trouble.start()
            took, failed = clients(address, options.seconds)
            trouble.join()
            print(f"| {name} | {len(took):,} | {len(failed)} | {quantile(took, .5):.2f} | {quantile(took, .99):.2f} | {took[-1]:.2f} |", flush=True)
            assert not failed, failed[0]
            return took

        server, address = start("--cache", "off", *worker)
        try:
            phase("no cache at all", address)
        finally:
            server.terminate()
            server.wait()
        redis = Redis(folder)
        server, address = start("--cache", redis.address, "--cache-memory", "0", *worker)
        try:
            normal = quantile(phase("well", address), .99)
            for name, act in [("killed", redis.kill), ("restarted", redis.restart), ("paused", redis.pause), ("resumed", redis.resume)]:
                took = phase(f"{name} after a quarter of the time", address, act)
                added = quantile(took, .99) - normal
                assert added < 20, f"{name}: p99 {added:.1f} ms over that of a Redis that is well"
            gets, hits = redis.gets_and_hits()
            assert hits > 0, "it was not used again"
            print(f"\nUsed again by itself: {hits:,} hits of {gets:,} GETs at the Redis that was restarted.")
        finally:
            server.terminate()
            server.wait()
            redis.resume()
            redis.kill()


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
    parser.add_argument("--disturb", action="store_true", help="only: what a Redis that is killed or paused adds to requests")
    options = parser.parse_args()
    if options.disturb:
        disturb(options)
        return
    streamed = dict(CHAT, stream=True)
    print("| hit from | bytes | requests/s | p50 ms | p99 ms | Redis's own GETs, hits a request |\n|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        server, address = start("--cache", "memory")
        try:
            row("memory", address, CHAT, options, folder)
            row("memory, streamed", address, streamed, options, folder)
        finally:
            server.terminate()
            server.wait()
        redis = Redis(folder)
        try:
            server, address = start("--cache", redis.address, "--cache-memory", "0")
            row("Redis", address, CHAT, options, folder, redis)
            row("Redis, streamed", address, streamed, options, folder, redis)
        finally:
            server.terminate()
            server.wait()
            redis.kill()
    if not options.no_scan:
        scan(options)


if __name__ == "__main__":
    main()
