"""Embeddings through the openai package."""

from __future__ import annotations

import asyncio

import numpy as np
import openai
import pytest

from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy


def test_texts_are_embedded(client):
    answer = client.embeddings.create(model="embed", input=["one", "four more"], encoding_format="float")
    assert [each.index for each in answer.data] == [0, 1]
    assert [each.embedding[0] for each in answer.data] == [3.0, 9.0]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (3, 3)


def test_base64_is_what_the_package_asks_for(client):
    assert client.embeddings.create(model="embed", input="three").data[0].embedding[0] == 5.0
    raw = client.embeddings.with_raw_response.create(model="embed", input="three", encoding_format="base64")
    assert isinstance(raw.http_response.json()["data"][0]["embedding"], str)


def test_embeddings_are_cut_to_dimensions_and_have_length_1(client):
    found = client.embeddings.create(model="embed", input="text", dimensions=1).data[0].embedding
    assert found == [1.0]
    whole = np.array(client.embeddings.create(model="embed", input="text").data[0].embedding)
    cut = client.embeddings.create(model="embed", input="text", dimensions=3).data[0].embedding
    np.testing.assert_allclose(cut, whole[:3] / np.linalg.norm(whole[:3]), rtol=1e-6)
    with pytest.raises(openai.BadRequestError, match="the model has 4"):
        client.embeddings.create(model="embed", input="text", dimensions=5)


def test_tokens_are_for_models_that_take_them(client):
    found = client.embeddings.create(model="embed-tokens", input=[[1, 2], [3]])
    assert [each.embedding for each in found.data] == [[3.0], [3.0]]
    assert client.embeddings.create(model="embed-tokens", input=[4, 5]).data[0].embedding == [9.0]
    with pytest.raises(openai.BadRequestError, match="takes text, not tokens"):
        client.embeddings.create(model="embed", input=[1, 2])


def test_more_inputs_than_a_batch_are_embedded(client):
    found = client.embeddings.create(model="embed", input=["x" * (number + 1) for number in range(50)])
    assert [each.embedding[0] for each in found.data] == [float(number + 1) for number in range(50)]


def test_the_server_merges_texts_of_requests(url):
    async def ask() -> list[float]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", timeout=DEADLINE_S) as client:
            calls = [client.embeddings.create(model="embed", input="text") for _ in range(64)]
            return [answer.data[0].embedding[1] for answer in await asyncio.gather(*calls)]

    assert max(asyncio.run(ask())) > 1


def test_a_chat_model_embeds_nothing(client):
    with pytest.raises(openai.NotFoundError, match="none for embeddings"):
        client.embeddings.create(model="parrot", input="a")
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model="embed", input="")
