"""What `forespeak render vllm` prints is understood by vLLM itself: its parser and its configuration take every flag."""

import json
import os
import shlex
import subprocess

import pytest
from vllm.config import KVEventsConfig, KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

PLACES = [
    [],
    ["--no-kv-events"],
    ["--kv-store", "memory:2GiB"],
    ["--kv-store", "memory:2GiB", "--kv-store", "dir:/tmp/kv"],
    ["--kv-store", "lmcache://127.0.0.1:5555"],
    ["--kv-store", "mooncake:/etc/mooncake.json"],
]


def render(*arguments):
    command = [os.environ["FORESPEAK_BINARY"], "render", "vllm", "--model", "org/model", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("places", PLACES, ids=" ".join)
def test_vllm_takes_every_flag(places):
    rendered = json.loads(render(*places, "--json"))
    program, verb, model, *flags = rendered["command"]
    assert (program, verb, model) == ("vllm", "serve", "org/model")
    # A shell reads the other form as the same words.
    shell = render(*places).replace("\\\n", " ")  # shlex does not know lines that go on
    words = [word for word in shlex.split(shell) if "=" not in word or word.startswith("{")]
    assert words == rendered["command"]

    parser = make_arg_parser(FlexibleArgumentParser())
    parsed = parser.parse_args(flags)
    assert parsed.enable_prefix_caching
    assert parsed.prefix_caching_hash_algo == "sha256_cbor"

    events = parsed.kv_events_config
    if "--no-kv-events" in places:
        assert events is None
    else:
        assert isinstance(events, KVEventsConfig) and events.enable_kv_cache_events and events.publisher == "zmq"

    transfer = parsed.kv_transfer_config
    if "--kv-store" not in places:
        assert transfer is None
        return
    assert isinstance(transfer, KVTransferConfig) and transfer.kv_load_failure_policy == "recompute"
    assert transfer.kv_connector in KVConnectorFactory._registry
    spec = transfer.kv_connector_extra_config.get("spec_name")
    assert spec is None or spec in OffloadingSpecFactory._registry
