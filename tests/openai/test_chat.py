"""Chats through the official client."""

MESSAGES = [{"role": "user", "content": "Tell me a story about a dog."}]


def ask(client, model, **options):
    options.setdefault("max_tokens", 16)
    options.setdefault("messages", MESSAGES)
    return client.chat.completions.create(model=model, **options)


def streamed_text(stream, index=0):
    return "".join(
        choice.delta.content or ""
        for chunk in stream
        for choice in chunk.choices
        if choice.index == index
    )


def test_a_chat_is_answered(client, model):
    answer = ask(client, model)
    assert answer.object == "chat.completion"
    assert answer.model == model
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 16
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_gives_the_same_text(client, model):
    whole = ask(client, model, temperature=0).choices[0].message.content
    stream = ask(client, model, temperature=0, stream=True)
    assert streamed_text(stream) == whole


def test_a_stream_starts_with_the_role_and_ends_with_a_reason_and_the_usage(client, model):
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-2].choices[0].finish_reason in ("stop", "length")
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_same_seed_gives_the_same_text_and_another_seed_another(client, model):
    def texts(seed):
        answer = ask(client, model, seed=seed, n=2, temperature=1.0, max_tokens=24)
        return [choice.message.content for choice in answer.choices]

    assert texts(7) == texts(7)
    assert texts(7) != texts(8)


def test_n_answers(client, model):
    answer = ask(client, model, n=3, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    stream = list(ask(client, model, n=3, seed=1, stream=True))
    for choice in answer.choices:
        assert streamed_text(stream, choice.index) == choice.message.content


def test_logprobs(client, model):
    answer = ask(client, model, logprobs=True, top_logprobs=5, temperature=0)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 5
        best = [alternative.logprob for alternative in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert token.token == token.top_logprobs[0].token
    shown = b"".join(bytes(token.bytes) for token in content).decode(errors="replace")
    assert answer.choices[0].message.content.strip() in shown


def test_a_stop_string_is_not_part_of_the_answer(client, model):
    whole = ask(client, model, temperature=0, max_tokens=32).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    answer = ask(client, model, temperature=0, max_tokens=32, stop=stop).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.message.content == whole[: whole.index(stop)]


def test_the_prefix_cache_is_reported(client, model):
    messages = [{"role": "user", "content": "A long beginning that is asked for twice. " * 8}]
    ask(client, model, messages=messages)
    usage = ask(client, model, messages=messages).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


def test_vllm_extensions_pass(client, model):
    answer = ask(
        client,
        model,
        max_tokens=6,
        extra_body={
            "top_k": 5,
            "min_p": 0.01,
            "repetition_penalty": 1.1,
            "min_tokens": 6,
            "ignore_eos": True,
            "cache_salt": "tests",
            "priority": -1,
            "return_token_ids": True,
        },
    )
    assert answer.usage.completion_tokens == 6
    assert len(answer.choices[0].token_ids) == 6
