"""Completions through the official client."""

import json

PROMPT = "Once upon a time"


def test_a_text_is_continued(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=8)
    assert answer.object == "text_completion"
    assert 0 < answer.usage.completion_tokens <= 8


def test_a_batch_is_answered_as_each_prompt_alone(client, model):
    def complete(prompt):
        answer = client.completions.create(
            model=model, prompt=prompt, max_tokens=12, temperature=0
        )
        return [choice.text for choice in answer.choices]

    prompts = [PROMPT, "The cat", "A very small house"]
    assert complete(prompts) == [complete(prompt)[0] for prompt in prompts]


def test_tokens_are_a_prompt_too(client, model, server):
    ids = json.loads(server.ask("/tokenize", {"prompt": PROMPT})[1])["tokens"]
    text = json.loads(server.ask("/detokenize", {"tokens": ids})[1])["prompt"]
    assert PROMPT in text
    options = {"model": model, "max_tokens": 8, "temperature": 0}
    by_text = client.completions.create(prompt=PROMPT, **options).choices[0].text
    by_ids = client.completions.create(prompt=ids, **options).choices[0].text
    assert by_text == by_ids


def test_an_echo_carries_logprobs_of_the_prompt(client, model):
    answer = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=2, echo=True, logprobs=2, temperature=0
    )
    choice = answer.choices[0]
    assert choice.text.startswith(PROMPT)
    logprobs = choice.logprobs
    count = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == count
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])


def test_a_stream_gives_the_same_text(client, model):
    options = {"model": model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**options).choices[0].text
    stream = client.completions.create(**options, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole
