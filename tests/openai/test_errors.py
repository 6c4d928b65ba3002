"""Refusals, as the official client reports them."""

import json

import openai
import pytest

MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_bad_value_is_named(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, temperature=9)
    assert caught.value.param == "temperature"
    assert "at most 2" in caught.value.message


def test_what_is_not_supported_is_refused(client, model):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, tools=[tool])
    assert caught.value.param == "tools"


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="word " * 3000)
    assert caught.value.code == "context_length_exceeded"
    assert "1024" in caught.value.message


def test_a_schema_that_cannot_be_enforced_is_refused(client, model):
    schema = {"type": "nonsense"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        )
    assert caught.value.param == "response_format"


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-unknown", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-unknown")


def test_a_key_is_asked_for(locked_server):
    with pytest.raises(openai.AuthenticationError):
        locked_server.client(api_key="wrong-key").models.list()
    assert locked_server.client(api_key="right-key").models.list().data
    assert locked_server.ask("/health")[0] == 200


def test_an_oversized_body_is_refused(server):
    status, body = server.ask("/v1/completions", b" " * (9 << 20))
    assert status == 413
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
