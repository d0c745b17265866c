"""Chats in GGUF files: `make test-gguf` runs this, which builds llama.cpp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openai
import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.saved import load
from tests.server.command import Command, run
from tests.server.conftest import LOCALHOST
from tests.server.ports import reserved_ports

for module in ("gguf", "llama_cpp"):
    pytest.importorskip(module, reason=f"{module} is not installed: make test-gguf installs it")
import gguf  # noqa: E402
import llama_cpp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

WIDTH, HEADS, INNER, CONTEXT = 32, 4, 64, 256
LETTERS = [f"\N{LOWER ONE EIGHTH BLOCK}{letter}" for letter in "abcdefgh"] + [*"abcdefgh,"]
WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)
QUESTION = [{"role": "user", "content": "abc, def"}]


def write(path: Path, *, template: str | None = TEMPLATE) -> Path:
    """A network of random weights that answers with letters."""
    random = np.random.default_rng(5)
    file = gguf.GGUFWriter(str(path), "llama")
    file.add_name("letters")
    file.add_context_length(CONTEXT)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(len(WORDS))
    file.add_tokenizer_model("llama")
    file.add_token_list(WORDS)
    file.add_token_scores([-float(number) for number in range(len(WORDS))])
    file.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(LETTERS)])
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    if template is not None:
        file.add_chat_template(template)
    output = np.zeros((len(WORDS), WIDTH), np.float32)
    output[-len(LETTERS) :] = random.normal(0, 1, (len(LETTERS), WIDTH))
    tensors = {
        "token_embd": random.normal(0, 1, (len(WORDS), WIDTH)),
        "output": output,
        "output_norm": np.ones(WIDTH),
        "blk.0.attn_norm": np.ones(WIDTH),
        "blk.0.ffn_norm": np.ones(WIDTH),
        **{f"blk.0.attn_{name}": random.normal(0, 0.3, (WIDTH, WIDTH)) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}": random.normal(0, 0.3, (INNER, WIDTH)) for name in ("gate", "up")},
        "blk.0.ffn_down": random.normal(0, 0.3, (WIDTH, INNER)),
    }
    for name, array in tensors.items():
        file.add_tensor(f"{name}.weight", array.astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gguf") / "letters.gguf")


@pytest.fixture(scope="module")
def network(letters):
    return llama_cpp.Llama(str(letters), n_ctx=CONTEXT, verbose=False)


@pytest.fixture(scope="module")
def client(letters, tmp_path_factory):
    with reserved_ports(4) as (http, grpc, metrics, app):
        ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", f"--rest-port={app}"]
        home = tmp_path_factory.mktemp("home")
        command = Command(home, "serve", f"talk={letters}", *ports, f"--address={LOCALHOST}")
        try:
            command.wait_for("Press CTRL+C")
            with openai.OpenAI(base_url=f"http://{LOCALHOST}:{app}/v1", api_key="any", max_retries=0) as client:
                yield client
            assert command.end() == 0
        finally:
            command.kill()


def test_a_file_is_served_as_a_chat_that_answers_as_its_library(client, network):
    expected = network.create_chat_completion(QUESTION, temperature=0, max_tokens=20)
    found = client.chat.completions.create(model="talk", messages=QUESTION, temperature=0, max_tokens=20)
    assert found.choices[0].message.content == expected["choices"][0]["message"]["content"] != ""
    assert found.choices[0].finish_reason == expected["choices"][0]["finish_reason"] == "length"
    assert found.usage.model_dump(exclude_none=True) == expected["usage"]


def test_streams_have_the_same_text_and_are_cut_at_stop_sequences(client, network):
    given = {"messages": QUESTION, "temperature": 0, "max_tokens": 20}
    expected = network.create_chat_completion(**given)["choices"][0]["message"]["content"]

    def text(**options):
        events = client.chat.completions.create(model="talk", stream=True, **given, **options)
        return "".join(event.choices[0].delta.content or "" for event in events)

    assert text() == expected
    stop = expected[5:7]
    assert text(stop=[stop]) == expected.partition(stop)[0]


def test_answers_that_are_asked_for_at_once_do_not_mix(client, network):
    given = {"messages": QUESTION, "temperature": 1.0, "max_tokens": 30}
    expected = {
        network.create_chat_completion(**given, seed=seed)["choices"][0]["message"]["content"] for seed in (1, 2, 3)
    }
    found = client.chat.completions.create(model="talk", **given, n=3, seed=1)
    assert {each.message.content for each in found.choices} == expected


def test_what_does_not_fit_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="exceed context window of 256"):
        client.chat.completions.create(model="talk", messages=[{"role": "user", "content": "a " * 300}])
    with pytest.raises(openai.BadRequestError, match="no tools"):
        client.chat.completions.create(
            model="talk", messages=[*QUESTION, {"role": "tool", "content": "a", "tool_call_id": "1"}]
        )


def test_a_report_says_what_the_file_is(letters):
    done = run("inspect", str(letters))
    assert "GGUF llama" in done.stdout
    assert "a chat for OpenAI's API, with contexts of up to 256 tokens" in done.stdout


def test_files_without_chat_template_and_damaged_ones_are_refused(letters, tmp_path):
    with pytest.raises(PyTritonValidationError, match="without chat template"):
        load(write(tmp_path / "base.gguf", template=None))
    data = letters.read_bytes()
    for size in (4, 30, 200, len(data) // 2, len(data) - 10):
        path = tmp_path / "cut.gguf"
        path.write_bytes(data[:size])
        with pytest.raises(PyTritonValidationError, match=r"damaged|cannot be read"):
            load(path)
