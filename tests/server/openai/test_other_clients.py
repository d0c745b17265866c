"""Other clients of OpenAI's API: LangChain's ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pydantic import BaseModel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own imports
    langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

WEATHER = {
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def chat(url: str, model: str, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        model=model, base_url=f"{url}/v1", api_key="any", timeout=DEADLINE_S, max_retries=0, **options
    )


def test_a_chat_is_answered(url):
    answer = chat(url, "parrot", temperature=0.5).invoke([("system", "Be kind."), ("user", "hello big world")])
    assert answer.content == "hello big world"
    assert answer.usage_metadata["output_tokens"] == 3


def test_a_stream_has_all_pieces_and_usage(url):
    pieces = [*chat(url, "parrot", stream_usage=True).stream("hello big world")]
    assert "".join(piece.content for piece in pieces) == "hello big world"
    assert [piece.content for piece in pieces if piece.content] == ["hello", " big", " world"]
    assert sum(piece.usage_metadata["total_tokens"] for piece in pieces if piece.usage_metadata) == 6


def test_tools_are_called(url):
    calls = chat(url, "caller").bind_tools([WEATHER]).invoke("?").tool_calls
    assert [(call["name"], call["args"]) for call in calls] == [
        ("weather", {"city": "Ulm"}),
        ("weather", {"city": "Bonn"}),
    ]


def test_streamed_calls_of_tools_are_put_together(url):
    whole = None
    for piece in chat(url, "caller").bind_tools([WEATHER]).stream("?"):
        whole = piece if whole is None else whole + piece
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [
        ("weather", {"city": "Ulm"}),
        ("weather", {"city": "Bonn"}),
    ]


def test_a_structured_answer_is_asked_for_by_its_schema(url):
    class Told(BaseModel):
        choice: int
        response_format: dict[str, Any]

    for method, kind in ("json_schema", "json_schema"), ("json_mode", "json_object"):
        answer = chat(url, "told").with_structured_output(Told, method=method).invoke("?")
        assert (answer.choice, answer.response_format["type"]) == (0, kind)


def test_many_chats_at_once_have_their_own_answers(url):
    questions = [f"question {number}" for number in range(20)]
    assert [answer.content for answer in chat(url, "parrot").batch(questions)] == questions


def test_documents_are_embedded(url):
    embeddings = langchain_openai.OpenAIEmbeddings(
        model="embed", base_url=f"{url}/v1", api_key="any", check_embedding_ctx_length=False
    )
    assert [vector[0] for vector in embeddings.embed_documents(["one", "four"])] == [3.0, 4.0]
