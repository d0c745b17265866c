"""An agent: a model that calls tools, which are typed models of the same server.

The loop gets the tools over MCP, as agents of other programs would, and calls them there. The language model is a few
rules, so that the example needs none. It needs the extras `llm`, `mcp` and `rest`, and `pip install openai`.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Literal

import openai
from mcp.client.client import Client

from pytriton import Triton
from pytriton.llm import ChatModel, ChatRequest, ToolCall
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))
PLACES = {"Bonn": 4.0, "Ulm": 9.5, "Kiel": 6.5}
City = Literal["Bonn", "Ulm", "Kiel"]


def temperature(city: City) -> float:
    """How warm it is in a city now, in degrees Celsius."""
    return PLACES[city]


def warmer(first: float, second: float) -> bool:
    """Whether the first temperature is higher than the second."""
    return first > second


def planner(request: ChatRequest) -> Iterator[str | ToolCall]:
    """Ask for what is missing, then answer; a real model would decide that itself."""
    question = next(message["content"] for message in request.messages if message["role"] == "user")
    first, second = (city for city in PLACES if city in question)
    results = [json.loads(message["content"])["result"] for message in request.messages if message["role"] == "tool"]
    if not results:
        yield ToolCall("temperature", {"city": first})
        yield ToolCall("temperature", {"city": second})
    elif len(results) == 2:
        yield ToolCall("warmer", {"first": results[0], "second": results[1]})
    else:
        yield from f"It is {'warmer' if results[2] else 'not warmer'} in {first} than in {second}.".partition(" ")


async def answer(question: str) -> str:
    """The loop: ask the model, call the tools that it wants, and ask again with their results."""
    async with (
        Client(f"http://localhost:{PORT}/mcp") as tools,
        openai.AsyncOpenAI(base_url=f"http://localhost:{PORT}/v1", api_key="any") as client,
    ):
        offered = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in (await tools.list_tools()).tools
        ]
        print("tools:", ", ".join(sorted(tool["function"]["name"] for tool in offered)))
        messages = [{"role": "user", "content": question}]
        while True:
            found = await client.chat.completions.create(model="planner", messages=messages, tools=offered)
            message = found.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = await tools.call_tool(call.function.name, json.loads(call.function.arguments))
                print(f"{call.function.name}({call.function.arguments}) = {result.structured_content['result']}")
                content = json.dumps(result.structured_content)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def main() -> None:
    with Triton(rest=RestConfig(port=PORT, mcp=True)) as triton:
        triton.bind(temperature)
        triton.bind(warmer)
        triton.bind(ChatModel(planner))
        print(asyncio.run(answer("Is it warmer in Bonn than in Ulm?")))


if __name__ == "__main__":
    main()
