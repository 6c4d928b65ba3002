"""The binary in front of the workers, with a configuration that names where each publishes its KV events."""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field

from worker import BLOCK_TOKENS, MAX_MODEL_LEN, SERVED_NAME, Worker

START_TIMEOUT_SECONDS = 120
OUT_WITHIN_SECONDS = 2


def configuration(workers: list[Worker], tokenizer: str) -> str:
    lines = ['[server]', 'listen = "127.0.0.1:0"', '[admin]', 'listen = "127.0.0.1:0"']
    lines += ['[[pools]]', 'name = "main"', f"block_tokens = {BLOCK_TOKENS}"]
    for worker in workers:
        events = worker.event_endpoints()
        lines += ['[[pools.workers]]', f'url = "{worker.url}"']
        lines += [f'events = {{ endpoint = "{events["endpoint"]}", replay = "{events["replay_endpoint"]}" }}']
    lines += ['[[models]]', f'name = "{SERVED_NAME}"', 'pool = "main"', f'tokenizer = "{tokenizer}"', f"max_model_len = {MAX_MODEL_LEN}"]
    lines += ['[[tenants]]', 'name = "tests"', 'anonymous = true', 'trusted = true']
    return "\n".join(lines) + "\n"


@dataclass
class Gateway:
    process: subprocess.Popen
    folder: tempfile.TemporaryDirectory
    lines: list[str] = field(default_factory=list)
    address: str = ""
    admin: str = ""

    def operator(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def workers(self) -> list[dict]:
        return [worker for pool in self.operator("/admin/workers")["pools"] for worker in pool["workers"]]

    def condition(self, name: str) -> str:
        return next(worker["condition"] for worker in self.workers() if worker["name"] == name)

    def moves(self) -> list[str]:
        """Decisions that sent a request away from the worker that held most of it, with their reasons."""
        recent = self.operator("/admin/decisions?limit=100")
        return [line for line in map(json.dumps, recent.get("decisions", recent)) if "elief" in line]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.folder.cleanup()


def start(workers: list[Worker], tokenizer: str) -> Gateway:
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "forespeak.toml")
    with open(path, "w") as file:
        file.write(configuration(workers, tokenizer))
    command = [os.environ["FORESPEAK_BINARY"], "serve", "--config", path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    gateway, listening = Gateway(process, folder), threading.Event()

    def read() -> None:
        for line in process.stdout:
            gateway.lines.append(line)
            if admin := re.search(r"admin\s+http://(\S+)", line):
                gateway.admin = admin[1]
            if address := re.search(r"address\s+http://(\S+)", line):
                gateway.address = address[1]
                listening.set()
        listening.set()

    threading.Thread(target=read, daemon=True).start()
    if not listening.wait(START_TIMEOUT_SECONDS) or not gateway.address:
        gateway.stop()
        raise AssertionError("the gateway did not start:\n" + "".join(gateway.lines))
    return gateway
