"""Two real vLLM instances with the bundled pair, and the gateway in front of them."""

import os
import signal
import time

import pytest
from openai import OpenAI

import gateway as front
from worker import Worker

SETTLE_SECONDS = 60


def pytest_configure():
    """Whoever ends the run early ends the servers, too: pytest tears down its fixtures on an interrupt, not on SIGTERM."""
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)


@pytest.fixture(scope="session")
def workers():
    """The first serves the target alone, the second speculates with the draft: other speeds and metrics, the same text."""
    target, draft = os.environ["FORESPEAK_HF_TARGET"], os.environ["FORESPEAK_HF_DRAFT"]
    started = []
    try:
        for speculating in (None, draft):
            started.append(Worker(target, speculating))
        for worker in started:
            worker.wait()
            print(f"vLLM on {worker.name} answered after {worker.seconds_to_start:.0f} s")
        yield started
    finally:
        for worker in started:
            worker.stop()


@pytest.fixture(scope="session")
def gateway(workers):
    running = front.start(workers, os.environ["FORESPEAK_HF_TARGET"])
    try:
        deadline = time.monotonic() + SETTLE_SECONDS
        # Both were probed, scraped and are heard.
        while not all(w["condition"] == "healthy" and w["metrics_age"] is not None for w in running.workers()):
            assert time.monotonic() < deadline, running.workers()
            time.sleep(0.2)
        yield running
    finally:
        running.stop()
        print("".join(line for line in running.lines if " WARN " in line or " ERROR " in line))


@pytest.fixture(scope="session")
def client(gateway) -> OpenAI:
    return OpenAI(base_url=f"http://{gateway.address}/v1", api_key="unused", max_retries=0, timeout=180)
