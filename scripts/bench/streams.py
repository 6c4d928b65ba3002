#!/usr/bin/env python3
"""Ten thousand slow streams at once through the gateway: no error, and what each of them costs in memory.

Half of the clients speak HTTP/1.1 with a connection each, half HTTP/2 with a hundred streams on a connection. Towards the
workers every stream has a connection of its own.
"""
import argparse
import concurrent.futures
import resource
import tempfile
import threading
import time
from pathlib import Path

import harness
from harness import free_port

# Sockets a stream at the gateway: one to the worker, and one to every second client; and some to spare.
FILES_PER_STREAM = 1.5
SPARE_FILES = 1000


class Watch(threading.Thread):
    """Samples a process's memory until told to stop."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.stopping = pid, 0, threading.Event()

    def run(self):
        while not self.stopping.wait(0.25):
            self.peak = max(self.peak, harness.resident_bytes(self.pid))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=30)
    parser.add_argument("--pause", type=int, default=2_000, help="milliseconds between chunks")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = int(FILES_PER_STREAM * options.streams) + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SystemExit(f"{needed} open files are needed, {hard} allowed; raise the hard limit")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    slow = ["--constant", "--count", 2, "--chunks", options.chunks, "--pause", options.pause]
    with tempfile.TemporaryDirectory() as folder, harness.mocks(*slow) as workers:
        port, log = free_port(), Path(folder) / "log"
        with harness.process(harness.forespeak(port, workers, Path(folder)), log) as started:
            url = f"http://127.0.0.1:{port}"
            harness.wait_ready(url, started, log)
            harness.bench(url, "--requests", 100, "--concurrency", 100, "--prompt-tokens", 50, "--output-tokens", options.chunks)
            idle, used = harness.resident_bytes(started.pid), harness.cpu_seconds(started.pid)
            watch = Watch(started.pid)
            watch.start()
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor() as clients:
                half = options.streams // 2
                load = lambda *more: harness.bench(url, "--requests", half, "--concurrency", half, "--prompt-tokens", 50,
                                                   "--output-tokens", options.chunks, *more)
                halves = [run.result() for run in [clients.submit(load), clients.submit(load, "--http2")]]
            lasted = time.monotonic() - begin
            watch.stopping.set()
            used = harness.cpu_seconds(started.pid) - used
    per_stream = (watch.peak - idle) / options.streams
    total = lambda name: sum(half[name] for half in halves)
    worst = lambda name: max(half[name]["p99"] for half in halves)
    print(f"{total('completed')} of {options.streams} streams of {options.chunks} chunks, {options.pause} ms apart, at once: "
          f"{total('failed')} failed {[half['outcomes'] for half in halves]}")
    print(f"memory {idle / 2**20:.0f} MB idle, {watch.peak / 2**20:.0f} MB at most: {per_stream / 1024:.1f} KiB a stream")
    print(f"gateway {used:.1f} s of CPU in {lasted:.0f} s; TTFT p99 {worst('ttft_ms'):.0f} ms, ITL p99 {worst('itl_ms'):.0f} ms")
    if total("failed"):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
