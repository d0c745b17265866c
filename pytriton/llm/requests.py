"""Requests as OpenAI's API has them: what the front checks, and what functions get.

A field that is not listed here is kept, in ``model_extra``. Values are not converted: ``"1"`` is no number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from typing_extensions import NotRequired, Self, TypedDict

__all__ = ["ChatRequest", "CompletionRequest", "EmbeddingRequest", "Message", "Tool", "text_of"]

MOST_CHOICES = 128
MOST_STOPS, LONGEST_STOP = 16, 1000
MOST_INPUTS = 2048
FORMS = f"a text, a list of tokens, or a list of either with up to {MOST_INPUTS} of them; none may be empty"
OPEN = ConfigDict(extra="allow")

Token = Annotated[int, Field(ge=0, lt=2**63)]
Limit = Annotated[int, Field(ge=0, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Stop = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]


def _in_one_of(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check texts or tokens; the errors of all forms that they might have had would be hard to read."""
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError(FORMS) from error


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Part(TypedDict):
    """A part of a message: text, an image, audio, a file. ``type`` says which; others are as OpenAI's API has them."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    type: str


class Message(TypedDict):
    """A message. Others than these members are kept."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: NotRequired[str | list[Part] | None]
    name: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]] | None]
    tool_call_id: NotRequired[str | None]


class Function(TypedDict):
    """The function of a tool; ``parameters`` is a JSON schema."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


class Tool(TypedDict):
    """A tool."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    type: str
    function: NotRequired[Function]


class StreamOptions(BaseModel):
    """Of a stream.

    Attributes:
        include_usage: Whether the last event has the number of tokens.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    include_usage: bool | None = None


class _Request(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    _index: int = PrivateAttr(0)

    model: str
    user: str | None = None


class Sampling(_Request):
    """How an answer is chosen.

    Attributes:
        n: How many answers the client wants; the function is called once for each, and ``choice`` counts them.
        max_tokens: The most tokens of an answer; ``max_completion_tokens`` is the same.
        stop: The answer ends before the first of these. The model does that, whatever the function yields.
        stream: Whether the client reads pieces; functions may ignore it.
    """

    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = 1
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Limit | None = None
    stop: Annotated[
        Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None,
        BeforeValidator(_listed, json_schema_input_type=Stop | list[Stop] | None),
    ] = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @property
    def choice(self) -> int:
        """Which of ``n`` answers this one is, counted from 0."""
        return self._index

    @property
    def sampling(self) -> dict[str, Any]:
        """The parameters of sampling that the client gave, by name; the seed differs between the answers."""
        names = ("temperature", "top_p", "max_tokens", "stop", "frequency_penalty", "presence_penalty", "logit_bias")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return given if self.seed is None else {**given, "seed": self.seed + self._index}

    @property
    def stream_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def for_choice(self, index: int) -> Self:
        """This request, as the one for one of its answers."""
        self._index = index
        return self


class ChatRequest(Sampling):
    """A request for the next message of a chat.

    Attributes:
        messages: Of the chat; contents may be parts, such as images, which are passed on as they are.
        tools: That the answer may call.
        tool_choice: ``"none"``, ``"auto"``, ``"required"``, or an object that names one.
        response_format: Such as ``{"type": "json_object"}``.
        logprobs: Whether the client wants the log probabilities of :class:`pytriton.llm.Token`.
        top_logprobs: How many of the most likely tokens.
    """

    _prompt: str = PrivateAttr("")

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Limit | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        return self

    @property
    def prompt(self) -> str:
        """The messages as the model's chat template renders them; empty without a template."""
        return self._prompt

    def with_prompt(self, prompt: str) -> Self:
        """This request, with a prompt."""
        self._prompt = prompt
        return self


class CompletionRequest(Sampling):
    """A request to continue a text.

    Attributes:
        prompt: The text, or tokens. Of a request with several, the function gets one at a time.
        suffix: What comes after the answer.
        echo: Whether the answer begins with the prompt; the front adds it.
        logprobs: How many of the most likely tokens the client wants; None for no log probabilities.
        best_of: Must be ``n``, if it is given.
    """

    prompt: str | list[Token] | list[str] | list[Annotated[list[Token], Field(min_length=1)]]
    suffix: str | None = None
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: int | None = None

    @model_validator(mode="after")
    def _one_of_n(self) -> Self:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise ValueError("best_of that differs from n is not supported")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """All prompts."""
        prompt: Any = self.prompt
        is_one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
        return [prompt] if is_one else prompt


class EmbeddingRequest(_Request):
    """A request for embeddings.

    Attributes:
        input: A text or a list of tokens, or several.
        dimensions: The length that the embeddings are cut to.
        encoding_format: As lists of numbers, or as base64 of FP32.
    """

    input: Annotated[
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Token], Field(min_length=1)]
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_INPUTS)]
        | Annotated[list[Annotated[list[Token], Field(min_length=1)]], Field(min_length=1, max_length=MOST_INPUTS)],
        WrapValidator(_in_one_of),
    ]
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = "float"

    @property
    def inputs(self) -> list[str | list[int]]:
        """All inputs."""
        given: Any = self.input
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


def text_of(message: Message) -> str:
    """The text of a message, without its other parts."""
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if part["type"] in ("text", "input_text"))
