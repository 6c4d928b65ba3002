"""Starts the binary on a free port and hands out clients for it."""

import json
import os
import re
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass

import pytest
from openai import OpenAI

START_TIMEOUT_SECONDS = 120


@dataclass
class Server:
    process: subprocess.Popen
    address: str
    kv_events: str | None
    lines: list[str]

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def ask(self, path: str, body: bytes | dict | None = None) -> tuple[int, str]:
        """Status and body of a route the client library does not know. With a body it is a POST."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def client(self, **options) -> OpenAI:
        options.setdefault("api_key", "unused")
        return OpenAI(base_url=f"{self.url}/v1", max_retries=0, **options)


def start(*arguments: str) -> Server:
    """Starts a server and waits until it says where it listens."""
    command = [os.environ["FORESPEAK_BINARY"], "serve", "--listen", "127.0.0.1:0"]
    command += ["--max-model-len", "1024", "--kv-cache-memory", "256MiB"]
    if model := os.environ.get("FORESPEAK_TEST_MODEL"):
        command += ["--model", model]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: list[str] = []
    listening = threading.Event()
    found: dict[str, str] = {}

    def read() -> None:
        for line in process.stdout:
            lines.append(line)
            if events := re.search(r"KV events\s+(\S+)", line):
                found["kv_events"] = events[1]
            if address := re.search(r"address\s+http://(\S+)", line):
                found["address"] = address[1]
                listening.set()
        listening.set()

    threading.Thread(target=read, daemon=True).start()
    if not listening.wait(START_TIMEOUT_SECONDS) or "address" not in found:
        process.kill()
        pytest.fail("the server did not start:\n" + "".join(lines))
    return Server(process, found["address"], found.get("kv_events"), lines)


def stop(server: Server) -> int:
    server.process.terminate()
    return server.process.wait(timeout=60)


@pytest.fixture(scope="session")
def server():
    running = start("--kv-events-endpoint", "tcp://127.0.0.1:0")
    yield running
    assert stop(running) == 0, "".join(running.lines)


@pytest.fixture(scope="session")
def client(server) -> OpenAI:
    return server.client()


@pytest.fixture(scope="session")
def model(client) -> str:
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def locked_server():
    """A server that asks for a key."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as keys:
        keys.write("right-key\n")
        keys.flush()
        running = start("--api-key-file", keys.name)
    yield running
    stop(running)
