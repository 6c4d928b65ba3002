"""The gateway in front of real vLLM. In the order they stand here: the last test kills a worker."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway import OUT_WITHIN_SECONDS
from worker import BLOCK_TOKENS, SERVED_NAME

ROOT = Path(__file__).resolve().parents[2]
TURNS, CHATS, AT_ONCE = 10, 6, 3
ANSWER_TOKENS = 40
PREDICTED_WELL = 0.95
GOLDEN_SAME_AT_LEAST = 32

QUESTIONS = [
    "What is a Kubernetes Pod?",
    "How is it started?",
    "What happens when it fails?",
    "Can it hold two containers?",
    "How do they talk to each other?",
    "Where are its logs kept?",
    "How do I delete it?",
    "What is a Deployment?",
    "How does it roll out a change?",
    "And how is that undone?",
]


@dataclass
class Turn:
    worker: str
    predicted: int
    reported: int
    prompt: int
    text: str


def parse_decision(header: str) -> tuple[str, int]:
    """`fit 127.0.0.1:8000 cached=64/96 scores=…`: the worker, and the tokens expected in its cache."""
    worker, cached = re.match(r"\S+ (\S+) cached=(\d+)/", header).groups()
    return worker, int(cached)


def ask(client, messages) -> Turn:
    raw = client.chat.completions.with_raw_response.create(model=SERVED_NAME, messages=messages, max_tokens=ANSWER_TOKENS, temperature=0)
    worker, predicted = parse_decision(raw.headers["x-forespeak-decision"])
    answer = raw.parse()
    details = answer.usage.prompt_tokens_details
    reported = (details.cached_tokens if details else None) or 0
    return Turn(worker, predicted, reported, answer.usage.prompt_tokens, answer.choices[0].message.content)


def chat(client, subject: str) -> list[Turn]:
    """A chat of ten turns, each of which sends all that was said before."""
    messages, turns = [{"role": "system", "content": f"You explain {subject} to a newcomer."}], []
    for question in QUESTIONS[:TURNS]:
        messages.append({"role": "user", "content": question})
        turns.append(ask(client, messages))
        messages.append({"role": "assistant", "content": turns[-1].text})
    return turns


def test_every_metric_name_that_is_read_exists(workers):
    names = (ROOT / "crates/fleet/src/observe/names.rs").read_text()
    listed = names[names.index("const VLLM: &[Name]") : names.index("const SGLANG: &[Name]")]
    # Rank 0 is today's name; the others are of older versions.
    current = re.findall(r'name\(\s*"([a-z_]+)",\s*Quantity::\w+,\s*0,?\s*\)', listed)
    assert len(current) > 20
    pages = [worker.get("/metrics") for worker in workers]
    shown = [set(re.findall(r"^vllm:(\w+)", page, re.M)) for page in pages]
    plain = {name for name in current if not name.startswith("spec_decode")}
    assert plain - shown[0] == set()
    assert set(current) - shown[1] == set(), "with speculation"
    assert all("process_start_time_seconds" in page for page in pages)


def test_both_workers_write_what_llama_cpp_writes(workers):
    """So that an answer may be continued on either, and a request may be sent to either."""
    from openai import OpenAI

    for worker in workers:
        client = OpenAI(base_url=f"{worker.url}/v1", api_key="unused", max_retries=0, timeout=300)
        for run in json.loads((ROOT / "models/goldens/greedy-target.json").read_text()):
            length = min(GOLDEN_SAME_AT_LEAST, len(run["ids"]))
            answer = client.completions.create(
                model=SERVED_NAME, prompt=run["prompt_ids"], max_tokens=length, temperature=0, extra_body={"return_token_ids": True}
            )
            assert answer.choices[0].token_ids[:length] == run["ids"][:length], run["prompt"]


def test_a_growing_chat_stays_where_its_prefix_is(client, gateway):
    turns = chat(client, "Kubernetes")
    assert len({turn.worker for turn in turns}) == 1, ([turn.worker for turn in turns], gateway.moves())
    cached = [turn.reported for turn in turns]
    assert cached == sorted(cached) and cached[-1] > cached[1] > 0, cached
    # What one turn computed, the next one finds: all but the block that was not full.
    for before, after in zip(turns, turns[1:]):
        assert after.reported >= before.prompt - BLOCK_TOKENS, (before, after)


def test_cached_tokens_are_what_was_predicted(client, gateway):
    subjects = ["storage", "networking", "security", "scheduling", "upgrades", "monitoring"][:CHATS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        turns = [turn for turns in pool.map(lambda subject: chat(client, subject), subjects) for turn in turns]
    near = [abs(turn.predicted - turn.reported) <= BLOCK_TOKENS for turn in turns]
    off = [(turn.predicted, turn.reported, turn.prompt) for turn, good in zip(turns, near) if not good]
    print(f"predicted within a block: {sum(near)} of {len(near)}; others (predicted, reported, prompt): {off}")
    print("workers:", [(w["name"], w["predicted_within_a_block"], w["kv_events_missing"]) for w in gateway.workers()])
    assert sum(near) >= PREDICTED_WELL * len(near), off
    assert not any(worker["kv_events_missing"] for worker in gateway.workers())


class Stream(threading.Thread):
    """A streamed answer that is being read, and what became of it."""

    def __init__(self, client, number: int):
        super().__init__()
        self.client, self.number = client, number
        self.text, self.finished, self.error, self.worker = "", None, None, None

    @property
    def begun(self) -> bool:
        return bool(self.text) or self.finished is not None

    def run(self) -> None:
        story = " ".join(f"Rule {i} of group {self.number} names a port and a protocol." for i in range(25))
        messages = [{"role": "user", "content": f"{story}\n\nWhat is a Service?"}]
        try:
            raw = self.client.chat.completions.with_raw_response.create(
                model=SERVED_NAME, messages=messages, max_tokens=ANSWER_TOKENS, temperature=0, stream=True
            )
            self.worker, _ = parse_decision(raw.headers["x-forespeak-decision"])
            for chunk in raw.parse():
                for choice in chunk.choices:
                    self.text += choice.delta.content or ""
                    self.finished = choice.finish_reason or self.finished
        except Exception as error:  # noqa: BLE001: whatever it is, it is this stream's outcome
            self.error = error


def test_killing_a_worker_loses_no_request_that_had_not_begun(client, gateway, workers):
    streams = [Stream(client, number) for number in range(16)]
    for stream in streams:
        stream.start()
    deadline = time.monotonic() + 120
    victim = None
    while victim is None:
        assert time.monotonic() < deadline, "nothing was streamed"
        victim = next((s.worker for s in streams if s.begun and s.finished is None), None)
        if all(s.finished or s.error for s in streams):
            pytest.fail("all were answered before a worker could be killed")
        time.sleep(0.002)
    begun = [stream.begun for stream in streams]
    next(worker for worker in workers if worker.name == victim).kill()
    killed = time.monotonic()
    while gateway.condition(victim) == "healthy":
        time.sleep(0.02)
    out_after = time.monotonic() - killed
    for stream in streams:
        stream.join(180)
        assert not stream.is_alive()

    waiting = [stream for stream, had in zip(streams, begun) if not had]
    broken = [stream for stream, had in zip(streams, begun) if had and stream.error]
    print(f"{len(streams)} streams, {len(waiting)} had not begun when {victim} was killed, {len(broken)} of the others broke off")
    print(f"it was out after {out_after:.2f} s")
    assert waiting, "all had begun: nothing was shown"
    lost = [(stream.number, stream.error) for stream in waiting if stream.error or not stream.finished]
    assert lost == []

    assert out_after < OUT_WITHIN_SECONDS
    # The books are closed before the last word is heard: nothing has to be waited for.
    held = {worker["name"]: worker["ledger_tokens"] for worker in gateway.workers() if worker["ledger_tokens"]}
    assert held == {}
