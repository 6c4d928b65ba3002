"""What the gateway's benchmarks share: processes that end with the script, ports, clocks, the load generator."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
FORESPEAK = TARGET / "forespeak"
MOCK = TARGET / "examples/mock_vllm"
TICKS = os.sysconf("SC_CLK_TCK")
# Threads of the gateway: 0 is its default.
THREADS = int(os.environ.get("FORESPEAK_BENCH_THREADS", 0))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(command, log, env=None, **options):
    """A process and its children, which are gone when the block ends."""
    with open(log, "wb") as out:
        started = subprocess.Popen(
            [str(word) for word in command], stdout=options.pop("stdout", out), stderr=out, start_new_session=True,
            env={**os.environ, **(env or {})}, **options)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@contextlib.contextmanager
def mocks(*arguments):
    """Mock workers; gives what they say about themselves."""
    with tempfile.NamedTemporaryFile() as log:
        with process([MOCK, *arguments], log.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
            line = started.stdout.readline()
            if not line:
                raise SystemExit(f"the mock workers did not start: {Path(log.name).read_text()}")
            yield json.loads(line)["workers"]


def get(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read()


def wait_ready(url, started, log, seconds=60, path="/v1/models"):
    """Waits until a server lists its models."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if started.poll() is not None:
            raise SystemExit(f"it ended with {started.returncode}: {Path(log).read_text()[-2000:]}")
        with contextlib.suppress(OSError, ValueError):
            get(url + path)
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} was not ready within {seconds} s: {Path(log).read_text()[-2000:]}")


def tree(pid):
    """A process and everything under it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def cpu_seconds(pid):
    """Processor time that a process and its children have used."""
    total = 0
    for member in set(tree(pid)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident_bytes(pid):
    """Memory that a process and its children hold."""
    total = 0
    for member in set(tree(pid)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * 4096
    return total


def bench(url, *arguments):
    """Runs the load generator; gives its figures."""
    with tempfile.NamedTemporaryFile(suffix=".json") as figures:
        command = [FORESPEAK, "bench", "--url", url, "--model", "mock", "--json", figures.name, *arguments]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(figures.name).read_text())


def spread(values):
    """The median and the range of several runs."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[0], ordered[-1]


def forespeak(port, workers, folder, policy="fit", tokenizer=None, scrape_every="500ms", first_lines=""):
    """Writes a configuration for these workers; gives the command that serves it."""
    lines = [
        'salt_secret = { file = "salt" }', first_lines,
        f'[server]\nlisten = "127.0.0.1:{port}"\nthreads = {THREADS}',
        # Routers are compared as routers; none of the others keeps answers.
        '[cache]\nstore = "off"',
        f'[[pools]]\nname = "main"\npolicy = "{policy}"\nscrape_every = "{scrape_every}"',
    ]
    for worker in workers:
        lines.append(f'[[pools.workers]]\nurl = "{worker["url"]}"')
        if worker.get("events"):
            lines.append(f'events = {{ endpoint = "{worker["events"]}", replay = "{worker["replay"]}" }}')
    lines.append('[[models]]\nname = "mock"\npool = "main"')
    if tokenizer:
        lines.append(f'tokenizer = "{tokenizer}"')
    lines.append('[[tenants]]\nname = "bench"\nanonymous = true')
    (folder / "salt").write_text("0123456789abcdef0123456789abcdef")
    config = folder / "forespeak.toml"
    config.write_text("\n".join(lines) + "\n")
    return [FORESPEAK, "serve", "--config", config]
