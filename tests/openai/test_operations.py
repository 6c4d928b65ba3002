"""What operators and their tools see."""

import subprocess
import time

import msgpack
import zmq
from conftest import start

VLLM_METRICS = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:cache_config_info",
]


def test_metrics_carry_vllm_names(client, model, server):
    client.completions.create(model=model, prompt="hello", max_tokens=4)
    text = server.ask("/metrics")[1]
    missing = [name for name in VLLM_METRICS if f"\n{name}" not in text]
    assert not missing, text


def test_a_hang_up_frees_the_kv_cache(client, model, server):
    def running():
        text = server.ask("/metrics")[1]
        lines = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    stream = client.completions.create(
        model=model, prompt="hello", max_tokens=900, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 5
    while running() > 0:
        assert time.monotonic() < deadline, "still running"


def test_kv_events_are_vllm_events(client, model, server):
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(server.kv_events)
    socket.setsockopt(zmq.RCVTIMEO, 200)
    for attempt in range(100):
        client.completions.create(model=model, prompt=f"{attempt} " * 40, max_tokens=1)
        try:
            _topic, sequence, payload = socket.recv_multipart()
            break
        except zmq.Again:
            continue
    else:
        raise AssertionError("no event arrived")
    assert len(sequence) == 8
    timestamp, events, rank = msgpack.unpackb(payload)
    assert timestamp > 1e9 and rank == 0
    stored = next(event for event in events if event["type"] == "BlockStored")
    assert stored["block_size"] == 16
    assert len(stored["token_ids"]) == 16 * len(stored["block_hashes"])
    assert all(isinstance(value, int) for value in stored["block_hashes"])


def test_sigterm_lets_a_stream_finish_and_a_second_one_does_not():
    server = start("--drain-timeout", "60")
    client = server.client()
    model = client.models.list().data[0].id
    options = {"model": model, "prompt": "hello", "stream": True, "extra_body": {"ignore_eos": True}}
    stream = client.completions.create(max_tokens=200, **options)
    next(iter(stream))
    server.process.terminate()
    last = list(stream)[-1]
    assert last.choices[0].finish_reason == "length"
    assert server.process.wait(timeout=60) == 0

    server = start("--drain-timeout", "600")
    client = server.client()
    stream = client.completions.create(max_tokens=900, **options)
    next(iter(stream))
    server.process.terminate()
    while not any("asked to stop" in line for line in server.lines):
        time.sleep(0.01)
    server.process.terminate()
    server.process.wait(timeout=10)


def test_help_teaches(server):
    binary = server.process.args[0]
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True).stdout
    for word in ["--model", "--kv-cache-memory", "--api-key-file", "Examples:"]:
        assert word in text
