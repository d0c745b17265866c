"""Requests as OpenAI's API has them: what the app checks, and what functions get.

A field that is not listed here is kept, in ``model_extra``. Values are not converted: ``"1"`` is no number.

What a body may hold is bounded before its values are looked at, and the check of a list ends with its first wrong
element: a body of some kilobytes cannot make gigabytes of values or of errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, from_json
from typing_extensions import NotRequired, Self, TypedDict

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.signature.json_texts import size_of

__all__ = [
    "MOST_CHOICES",
    "ChatRequest",
    "CompletionRequest",
    "EmbeddingRequest",
    "Message",
    "RequestTooLargeError",
    "Tool",
    "WrongRequestError",
    "read_json",
    "read_request",
    "text_of",
]

MOST_CONTAINERS, MOST_VALUES = 100_000, 1_000_000  # of a body: lists and objects, and all values
SMALL_BYTES = 2**15  # of a body that cannot have so many that they matter
MOST_PROBLEMS = 10
MOST_BIASES = 4096
LONGEST_NAME = 60  # characters of a name in an error

MOST_CHOICES = 128
MOST_STOPS, LONGEST_STOP = 16, 1000
MOST_INPUTS = 2048
MOST_CHAT_LOGPROBS, MOST_LOGPROBS = 20, 5
TEXT_TYPES = ("text", "input_text", "output_text")
INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "audio", "refusal")
UNION_TAGS = {"str", "int", "float", "bool"}  # of pydantic's places, beside names of fields and indices
PROMPT_FORMS = "a text, a list of tokens, or a list of either"
INPUT_FORMS = f"{PROMPT_FORMS} with up to {MOST_INPUTS} of them; none may be empty"
OPEN = ConfigDict(extra="allow")

Token = Annotated[int, Field(ge=0, lt=2**63)]
Limit = Annotated[int, Field(ge=0, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Stop = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]


def _in_one_of(forms: str) -> WrapValidator:
    """Checks texts or tokens; the errors of all forms that they might have had would be hard to read."""

    def checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:
            raise ValueError(forms) from None

    return WrapValidator(checked)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _with_few_members(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise ValueError(f"an object with at most {MOST_BIASES} members, not {len(value)}")
    return value


def _refuse_member(name: str, message: str) -> NoReturn:
    """Say that a member of an object is wrong, from a validator of the object."""
    error = InitErrorDetails(type=PydanticCustomError("member", message), loc=(name,), input=None)
    raise ValidationError.from_exception_data("", [error])


class Part(TypedDict):
    """A part of a message: text, an image, audio, a file. ``type`` says which; others are as OpenAI's API has them."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    type: Literal[
        "text", "image_url", "input_audio", "file", "refusal", "input_text", "output_text", "input_image", "input_file",
        "image", "audio", "video", "audio_url", "video_url",
    ]  # fmt: skip


def _with_text(part: Part) -> Part:
    if part["type"] in TEXT_TYPES and not isinstance(part.get("text"), str):
        _refuse_member("text", f"a part of type {part['type']} needs a text")
    return part


class Message(TypedDict):
    """A message. Others than these members are kept."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: NotRequired[
        str | Annotated[list[Annotated[Part, AfterValidator(_with_text)]], Field(fail_fast=True)] | None
    ]
    name: NotRequired[str | None]
    tool_calls: NotRequired[Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None]
    tool_call_id: NotRequired[str | None]


def _with_content(message: Message) -> Message:
    if message.get("content") is not None and message.get("content") != []:
        return message
    role = message["role"]
    if role == "function" or (role == "assistant" and any(message.get(name) for name in INSTEAD_OF_CONTENT)):
        return message
    but = f", or one of {', '.join(INSTEAD_OF_CONTENT)}" if role == "assistant" else ""
    _refuse_member("content", f"a message of the role {role} needs a content{but}")


class ResponseFormat(TypedDict):
    """The form of an answer."""

    __pydantic_config__ = OPEN  # type: ignore[misc]
    type: str
    json_schema: NotRequired[dict[str, Any]]


def _with_schema(given: ResponseFormat) -> ResponseFormat:
    if given["type"] == "json_schema" and "json_schema" not in given:
        _refuse_member("json_schema", "a format of type json_schema needs a json_schema")
    return given


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
        Annotated[list[Stop], Field(max_length=MOST_STOPS, fail_fast=True)] | None,
        BeforeValidator(_listed, json_schema_input_type=Stop | list[Stop] | None),
    ] = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_with_few_members)] | None
    ) = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _of_a_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream", True):
            raise ValueError("stream_options are for requests with stream: true")
        return value

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

    messages: Annotated[list[Annotated[Message, AfterValidator(_with_content)]], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Limit | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[ResponseFormat, AfterValidator(_with_schema)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_CHAT_LOGPROBS)] | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _of_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and not info.data.get("logprobs", True):
            raise ValueError("top_logprobs are for requests with logprobs: true")
        return value

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
        echo: Whether the answer begins with the prompt; the app adds it.
        logprobs: How many of the most likely tokens the client wants; None for no log probabilities.
        best_of: Must be ``n``, if it is given.
    """

    prompt: Annotated[
        str
        | Annotated[list[Token], Field(fail_fast=True)]
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[Annotated[list[Token], Field(min_length=1, fail_fast=True)]], Field(fail_fast=True)],
        _in_one_of(PROMPT_FORMS),
    ]
    suffix: str | None = None
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
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
        | Annotated[list[Token], Field(min_length=1, fail_fast=True)]
        | Annotated[
            list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)
        ]
        | Annotated[
            list[Annotated[list[Token], Field(min_length=1, fail_fast=True)]],
            Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True),
        ],
        _in_one_of(INPUT_FORMS),
    ]
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = "float"

    @property
    def inputs(self) -> list[str | list[int]]:
        """All inputs."""
        given: Any = self.input
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


class WrongRequestError(PyTritonRequestError, ValueError):
    """A body is no request of its kind. The request fails with INVALID_ARG.

    Attributes:
        problems: The first of each field, at most ten: the place and what is wrong there. None for a body that is no
            JSON.
    """

    def __init__(self, message: str, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__(message, ErrorCode.INVALID_ARG)
        self.problems = problems


class RequestTooLargeError(WrongRequestError):
    """A body has more values than a request may have."""


R = TypeVar("R", bound=BaseModel)


def read_request(kind: type[R], body: bytes) -> R:
    """The request of a body.

    Args:
        kind: One of the classes of this module.
        body: JSON.

    Raises:
        WrongRequestError: It is no JSON, or no such request.
        RequestTooLargeError: It has more than 100,000 lists and objects, or more than 1,000,000 values.
    """
    value = read_json(body)
    if not isinstance(value, dict):
        raise WrongRequestError("the body: Input should be an object", [((), "Input should be an object")])
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        found = [*_problems_of(error)][:MOST_PROBLEMS]
        text = "; ".join(f"{'.'.join(map(str, path)) or 'the body'}: {message}" for path, message in found)
        raise WrongRequestError(text, found) from None  # whose cause would keep the body


def read_json(text: bytes) -> Any:
    """The value of a JSON text; raises as :func:`read_request`."""
    if len(text) > SMALL_BYTES:
        size = size_of(text)
        for noun, count, most in (
            ("lists and objects", size.containers, MOST_CONTAINERS),
            ("values", size.values, MOST_VALUES),
        ):
            if count > most:
                raise RequestTooLargeError(f"the body has {count} {noun}, and may have {most}", [])
    try:
        return from_json(text)
    except ValueError as error:
        raise WrongRequestError(f"the body is no JSON: {error!s:.200}", []) from None


def _problems_of(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The place and the message of one error of each field, of those of a union the one that is deepest in it."""
    fields: dict[tuple[str | int, ...], tuple[tuple[str | int, ...], str]] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path = tuple(
            part if isinstance(part, int) else part[:LONGEST_NAME]
            for part in each["loc"]
            if isinstance(part, int) or (part.isidentifier() and part not in UNION_TAGS)
        )
        known = fields.get(path[:3])
        if known is None or len(path) > len(known[0]):
            fields[path[:3]] = path, each["msg"].removeprefix("Value error, ")
    yield from fields.values()


def text_of(message: Message) -> str:
    """The text of a message, without its other parts."""
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if part["type"] in TEXT_TYPES)
