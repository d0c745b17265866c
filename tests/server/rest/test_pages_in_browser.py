"""The pages in a real browser: Chromium clicks through them."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel, Field
from sklearn.datasets import load_digits
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from pytriton import Pipeline, Step
from pytriton.decorators import batch
from pytriton.llm import ChatModel, ChatRequest, CompletionModel, CompletionRequest, EmbeddingModel
from pytriton.rest import RestConfig, create_app
from pytriton.triton import DEFAULT_PROTECTED_ENDPOINTS, Triton, TritonSecurityConfig
from pytriton.workers import Processes
from tests.server.command import Command
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S
from tests.server.rest.apps import url_of, with_app
from tests.server.rest.kinds import bind_kinds, make_add
from tests.server.rest.ways import mounted
from tests.unit.saved.files import FORMATS
from tests.unit.saved.files import iris as iris_rows

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [name for name in ("playwright", "axe_playwright_python") if find_spec(name) is None]
pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.timeout(180),
]
TOKEN = "the-token-of-operators"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
PAGES = ("", "try", "try/scalars", "try/digit", "try/picture", "try/iris", "try/teller", "try/letters")
PAGES += ("chat/parrot", "batches/scalars", "workers")
AXE = """async () => (await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})).violations.map(
    ({id, nodes}) => [id, ...nodes.map(({html, failureSummary}) => html + " " + failureSummary)])"""
NONE = "\N{EN DASH}"
# The network may change while containers start: the browser drops its connections then, and the page retries.
UNSTABLE = "net::ERR_NETWORK_CHANGED"


class Species(Enum):
    SETOSA = "setosa"
    VIRGINICA = "virginica"


@dataclass
class Rating:
    shares: list[float]
    species: Species


def parrot(request: ChatRequest) -> Iterator[str]:
    """Repeat what was said."""
    for word in str(request.messages[-1]["content"]).split():
        yield f"{word}! "


def teller(request: CompletionRequest) -> Iterator[str]:
    """Say the prompt again and again."""
    for _ in range(request.max_tokens or 3):
        yield f"{request.prompt}; "


def letters(texts: list[str]) -> np.ndarray:
    """Count the letters of texts."""
    return np.array([[text.count(letter) for letter in "abcdefghijkl"] for text in texts], np.float32)


class Flower(BaseModel):
    petal_length: float = Field(ge=0, description="in cm")
    color: Literal["white", "blue"] = "white"
    is_wild: bool = False
    note: str | None = None


def iris(flower: Flower) -> dict[Species, float]:
    """Tell the species of a flower."""
    share = min(flower.petal_length / 10, 1.0)
    return {Species.SETOSA: 1 - share, Species.VIRGINICA: share}


def rated(flower: Flower) -> Rating:
    return Rating([0.25, 0.75], Species.VIRGINICA)


def trim(text: str) -> str:
    return text.strip()


def split(text: str) -> list[str]:
    return text.split()


def join(words: list[str], text: str) -> str:
    return f"{len(words)} words in {text}"


def make_numbered(version: int) -> Callable[[str], str]:
    def numbered(text: str) -> str:
        return f"{text} {version}"

    return numbered


def bind_digit(triton: Triton) -> None:
    digits = load_digits()

    @batch
    def digit(image: np.ndarray) -> dict[str, np.ndarray]:
        distances = ((image.reshape(-1, 1, 64) - digits.data) ** 2).sum(2)
        nearest = digits.target[distances.argsort(1)[:, :5]]
        scores = (nearest[:, :, None] == np.arange(10)).mean(1, dtype=np.float32)
        return {"digit": scores.argmax(1).reshape(-1, 1), "scores": scores}

    triton.bind("digit", digit, example={"image": digits.images[1:2].astype(np.float32)})


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    """A server with a model of each kind, and an app whose figures are for everyone."""
    closed = [each for each in DEFAULT_PROTECTED_ENDPOINTS if each != "statistics"]
    security = TritonSecurityConfig(TOKEN, closed)
    with ExitStack() as stack:
        (port,) = stack.enter_context(reserved_ports(1))
        rest = RestConfig(port=port, address=LOCALHOST)
        config = stack.enter_context(local_config())
        triton = stack.enter_context(Triton(config=config, security_config=security, rest=rest))
        bind_kinds(triton)
        bind_digit(triton)
        for model in (ChatModel(parrot), CompletionModel(teller), EmbeddingModel(letters)):
            triton.bind(model)
        for function in (iris, rated, trim, split, join):
            triton.bind(function)
        first = Step("trim", {"text": "raw"}, {"result": "trimmed"})
        then = Step("split", {"text": "trimmed"}, {"result": "words"}), Step("join", {"text": "trimmed"})
        triton.bind("counted", Pipeline(first, *then))
        triton.bind("add", Processes(make_add, count=1))
        for version in (1, 2):
            triton.bind("numbered", make_numbered(version), model_version=version)
        triton.run()
        yield triton


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Visit:
    """One page of a browser, which notes errors and requests to other hosts.

    Args:
        page: Of Playwright.
        url: Of the app.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        page.set_default_timeout(DEADLINE_S * 1000)
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.errors.append(f"a request to {request.url}")
        if TOKEN in request.url:
            self.errors.append("the token is in a URL")

    def open(self, path: str = "") -> None:
        """Open a page, and wait until it has its figures."""
        self.page.goto(f"{self.url}/#/{path}")
        self.page.reload()
        while self.page.locator("main h1").count() == 0:  # a module was lost, see UNSTABLE
            self.page.wait_for_timeout(1000)
            if self.page.locator("main h1").count() == 0:
                self.page.reload()
        self.page.locator("#state.good").wait_for()

    def run(self, **fields: Any) -> Any:
        """Fill the form in and run the model; returns the place of the answer."""
        for name, value in fields.items():
            self.page.locator(f"[data-input={name}]").fill(value)
        self.page.get_by_role("button", name="Run").click()
        self.page.locator("p.told", has_text="in ").first.wait_for()
        return self.page.locator("#output")

    def give_token(self, token: str) -> None:
        """Type a token."""
        self.page.locator("#token").click()
        self.page.locator("#token-field").fill(token)
        self.page.get_by_role("button", name="Use").click()

    def check(self) -> None:
        """No errors, unless the server was away."""
        assert [error for error in self.errors if UNSTABLE not in error] == []


@pytest.fixture
def visit(triton, browser) -> Iterator[Visit]:
    """A fresh page; at the end there were no errors, and no requests to other hosts."""
    context = browser.new_context(viewport=DESK, reduced_motion="reduce")
    visit = Visit(context.new_page(), url_of(triton._rest))
    yield visit
    context.close()
    visit.check()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_in_light_and_dark_and_fits_a_phone(visit, path):
    visit.open(path)
    axe = Path(str(find_spec("axe_playwright_python").submodule_search_locations[0]), "axe.min.js").read_text()
    visit.page.evaluate(f"() => {{ {axe} }}")
    assert visit.page.evaluate(AXE) == []
    visit.page.emulate_media(color_scheme="dark")
    visit.page.set_viewport_size(PHONE)
    assert visit.page.evaluate(AXE) == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_colours_are_switched_and_kept(visit):
    visit.open()
    before = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    button = visit.page.get_by_role("button", name="Colours")
    button.click()
    button.click()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    visit.page.reload()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_function_with_numbers_texts_choices_and_booleans_is_called(visit):
    visit.open("try/scalars")
    visit.page.locator("[data-input=side]").select_option("right")
    visit.page.locator("[data-input=flag]").check()
    output = visit.run(text="two words", number="2.5", count="4")
    assert output.locator("[data-output=score]").inner_text().split() == ["score", "10"]
    assert output.locator("[data-output=words] li").all_inner_texts() == ["right", "True", "two", "words"]
    visit.page.get_by_text("JSON", exact=True).click()
    assert '"score": 10' in output.locator("pre").inner_text()


def test_a_value_that_does_not_fit_is_explained(visit):
    visit.open("try/scalars")
    visit.page.locator("[data-input=text]").fill("a")
    visit.page.locator("[data-input=count]").fill("99")
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator("main [role=alert]", has_text="at most 10").wait_for()
    assert visit.page.evaluate("document.activeElement.dataset.input") == "count"
    visit.errors = [error for error in visit.errors if "422" not in error]  # the browser's own message


def test_a_record_has_a_field_for_each_member_and_bars_have_the_names_of_an_enumeration(visit):
    visit.open("try/iris")
    visit.page.locator("[data-input='flower.petal_length']").fill("-1")
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator("main [role=alert] li", has_text="flower.petal_length: expected").wait_for()
    assert visit.page.evaluate("document.activeElement.dataset.input") == "flower.petal_length"
    visit.page.locator("[data-input='flower.petal_length']").fill("7.5")
    visit.page.locator("[data-input='flower.color']").select_option("blue")
    visit.page.locator("[data-input='flower.is_wild']").check()
    bars = visit.run().locator(".bars tr")
    assert [each.split() for each in bars.all_inner_texts()] == [["virginica", "75.0", "%"], ["setosa", "25.0", "%"]]
    sent = visit.page.locator(".calls pre").inner_text()
    assert '{"flower":{"petal_length":7.5,"color":"blue","is_wild":true}}' in sent
    visit.open("try/rated")
    bars = visit.run().locator("[data-output=shares] .bars tr")
    assert [each.split() for each in bars.all_inner_texts()] == [["virginica", "75.0", "%"], ["setosa", "25.0", "%"]]
    visit.errors = [error for error in visit.errors if "422" not in error]


def test_each_error_has_a_line_and_an_old_answer_goes(visit):
    visit.open("try/scalars")
    visit.run(text="a").locator("[data-output=score]").wait_for()
    visit.page.route("**/predict/scalars", lambda route: route.continue_(post_data='{"count": 99, "number": "x"}'))
    visit.page.get_by_role("button", name="Run").click()
    lines = visit.page.locator("main [role=alert] li")
    lines.nth(2).wait_for()
    assert sorted(each.partition(":")[0] for each in lines.all_inner_texts()) == ["count", "number", "text"]
    assert visit.page.locator("#output").inner_text() == "No answer."
    visit.errors = [error for error in visit.errors if "422" not in error]


def test_a_link_has_the_inputs_of_a_call_and_the_calls_of_the_visit_are_listed(visit):
    visit.open("try/scalars")
    visit.run(text="a & b", count="3").locator("[data-output=score]").wait_for()
    row = visit.page.locator(".history tbody tr").first
    assert "a & b" in row.locator("[data-label=Inputs]").inner_text()
    link = row.locator("a").get_attribute("href")
    assert link == "#/try/scalars?text=a+%26+b&number=0.5&count=3&side=%22left%22&flag=false"
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name="Copy link").click()
    visit.page.get_by_role("button", name="Copied").wait_for()
    assert visit.page.evaluate("navigator.clipboard.readText()") == f"{visit.url}/{link}"
    visit.page.goto(f"{visit.url}/#/try/scalars?text=two%20words&count=7")
    assert visit.page.locator("[data-input=text]").input_value() == "two words"
    assert visit.page.locator("[data-input=count]").input_value() == "7"
    assert visit.page.locator(".history tbody tr").count() == 1
    visit.page.goto(f"{visit.url}/#/try/iris?flower=%7B%22petal_length%22%3A2%7D")
    assert visit.page.locator("[data-input='flower.petal_length']").input_value() == "2"


def test_a_file_may_be_dropped(visit):
    drop = """(element, [name, type, text]) => {
        const data = new DataTransfer();
        data.items.add(new File([text], name, {type}));
        element.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
    }"""
    visit.open("try/data")
    visit.page.locator(".drop").evaluate(drop, ["data.bin", "", "four"])
    assert "4 bytes" in visit.run().inner_text()
    visit.open("try/doubled")
    visit.page.locator("[data-input=x]").evaluate(drop, ["x.csv", "text/csv", "3,4"])
    visit.page.wait_for_function("document.querySelector('[data-input=x]').value === '3,4'")
    assert visit.run().locator("td").all_inner_texts() == ["6", "8"]


def test_a_model_that_does_not_exist_is_told_apart_from_one_that_is_not_ready(visit):
    visit.open("try/scalar")
    visit.page.get_by_text("there is no model 'scalar': did you mean 'scalars'? The server has ").wait_for()
    visit.open("try/x")
    assert "did you mean" not in visit.page.get_by_text("there is no model 'x': The server has ").inner_text()


def test_a_chat_model_leads_to_its_chat_and_the_api_is_linked(visit):
    visit.open()
    visit.page.locator("tr[data-model=parrot] a").click()
    visit.page.wait_for_url("**/#/chat/parrot")
    visit.page.get_by_role("link", name="API").click()
    visit.page.locator("#routes .opblock").first.wait_for()
    visit.page.get_by_role("link", name="Dashboard").click()
    visit.page.wait_for_url(f"{visit.url}/")


def test_the_page_of_the_api_has_one_line_for_each_error_and_the_colours_of_the_dashboard(visit):
    visit.page.emulate_media(color_scheme="dark")
    visit.page.goto(f"{visit.url}/docs#/scalars/predict_scalars")
    visit.page.locator(".opblock.is-open .response[data-code='200'] .model-example").wait_for()
    assert visit.page.locator(".response[data-code='422']").is_visible()
    assert (
        not visit.page.locator(".response:not([data-code='200']) .model-example")
        .and_(visit.page.locator(":visible"))
        .count()
    )
    dark = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    visit.page.evaluate("localStorage.setItem('theme', 'light')")
    visit.page.reload()
    assert visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != dark
    visit.errors = [error for error in visit.errors if "deep link" not in error]  # Swagger UI's own


def test_one_high_value_does_not_set_the_axis_of_a_chart_and_is_marked(visit):
    visit.open()
    shown = visit.page.evaluate("""async () => {
        const { LineChart } = await import(`${document.documentElement.dataset.root}/pages/static/chart.js`);
        const chart = new LineChart("Test");
        document.querySelector("main").append(chart.element);
        const now = Date.now() / 1000;
        const time = Array.from({ length: 60 }, (_, index) => now - 60 + index);
        const values = time.map((_, index) => (index === 30 ? 3000 : 10));
        await new Promise((resolve) => setTimeout(resolve, 100));
        chart.update([{ label: "a", time, values }, { label: "b", time: [now - 50], values: [5] }], 900);
        const texts = (selector) => [...chart.element.querySelectorAll(selector)].map((each) => each.textContent);
        return [texts(".tick.end").at(-1), texts(".outlier")[0], texts(".point").length, texts(".above")[0]];
    }""")
    assert float(shown[0]) < 20
    assert shown[1].startswith("a: 3,000 at ")
    assert shown[2:] == [1, "▲ 1 above, up to 3,000"]


def test_records_lists_matrices_and_declared_tensors_are_called(visit):
    visit.open("try/records")
    visit.page.locator("[data-input='order.item']").fill("tea")
    visit.page.locator("[data-input='order.tags']").fill('{"hot": 1}')
    output = visit.run()
    assert "tea" in output.inner_text()
    visit.page.get_by_role("button", name="JSON", exact=True).click()
    whole = visit.page.get_by_label("JSON", exact=True).and_(visit.page.locator("textarea"))
    assert json.loads(whole.input_value()) == {"item": "tea", "count": 1, "tags": {"hot": 1}}
    whole.fill('{"item": "milk", "count": 2}')
    visit.run().get_by_text("milk").first.wait_for()
    visit.open("try/lists")
    output = visit.run(words="a\nb", numbers="1, 2;3")
    assert output.locator("li").all_inner_texts() == ["a", "b", "1", "2", "3"]
    visit.open("try/doubled")
    output = visit.run(x="1.5\t2.5\n")
    assert output.locator("td").all_inner_texts() == ["3", "5"]
    visit.open("try/declared")
    numbers = dict.fromkeys(("FP32", "FP16", "INT8", "UINT64"), "1 2")
    output = visit.run(**numbers, BOOL="true, false", BYTES="text")
    assert output.locator("[data-output=BOOL] td").all_inner_texts() == ["true", "false"]


def test_files_and_pictures_are_sent_and_pictures_drawn(visit, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"abc")
    visit.open("try/data")
    visit.page.locator("[data-input=content]").set_input_files(tmp_path / "data.bin")
    assert "3 bytes" in visit.run().inner_text()
    Image.new("RGB", (30, 20)).save(tmp_path / "picture.png")
    visit.open("try/picture")
    visit.page.locator("input[type=file]").set_input_files(tmp_path / "picture.png")
    visit.page.get_by_text("picture.png, 30").wait_for()
    assert visit.run().locator("td, li").all_inner_texts() == ["30", "20"]
    assert "-F image=@'picture.png'" in visit.page.locator(".calls pre").inner_text()
    visit.page.get_by_role("button", name="Clear").click()
    visit.page.locator("#output").evaluate("(element) => element.replaceChildren()")
    visit.run().locator("td, li", has_text="280").first.wait_for()


def test_a_drawn_digit_is_recognised(visit):
    visit.open("try/digit")
    assert visit.run().locator("[data-output=digit]").inner_text().split()[-1] == "1"  # the example
    visit.page.get_by_role("button", name="Clear").click()
    box = visit.page.locator("canvas.pad").bounding_box()
    points = [(0.5 + 0.24 * math.sin(angle / 8), 0.5 - 0.4 * math.cos(angle / 8)) for angle in range(54)]
    where = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    visit.page.mouse.move(*where[0])
    visit.page.mouse.down()
    for each in where[1:]:
        visit.page.mouse.move(*each)
    visit.page.mouse.up()
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator("[data-output=digit] .figure", has_text="0").wait_for()
    assert visit.page.locator("[data-output=scores] th").first.inner_text() == "0"


def test_a_stream_is_shown_as_it_comes(visit):
    visit.open("try/tell")
    output = visit.run(prompt="Once", words="3")
    visit.page.locator("p.told", has_text="3 in").wait_for()
    assert output.inner_text() == "Once 0Once 1Once 2"


def test_a_chat_streams_its_answers(visit):
    visit.open("try")
    visit.page.get_by_role("link", name="parrot").filter(has_text="Repeat what was said.").click()
    visit.page.wait_for_url("**/#/chat/parrot")
    for text in ("two words", "again"):
        visit.page.get_by_label("Message", exact=True).fill(text)
        visit.page.keyboard.press("Enter")
        visit.page.locator(".chat .assistant", has_text=f"{text.split()[-1]}!").wait_for()
        visit.page.get_by_role("button", name="Send").and_(visit.page.locator(":enabled")).wait_for()
    assert visit.page.locator(".chat li").count() == 4
    visit.page.locator("p.told", has_text="First token after").wait_for()
    calls = visit.page.locator(".calls pre").inner_text()
    assert "from openai import OpenAI" in calls
    assert '"content": "two! words! "' in calls  # and not the last answer, which is no part of the call
    assert "again!" not in calls
    visit.page.get_by_role("button", name="New chat").click()
    assert visit.page.locator(".chat li").count() == 0


def test_a_completion_streams_what_follows_a_prompt(visit):
    visit.open("try")
    visit.page.get_by_role("link", name="teller").filter(has_text="Say the prompt again and again.").click()
    visit.page.get_by_label("Prompt").fill("once, ö")
    visit.page.get_by_label("Most tokens").fill("2")
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator("#output p.text", has_text="once, ö; once, ö; ").wait_for()
    visit.page.locator("p.told", has_text="First token after").wait_for()
    assert "client.completions.create(" in visit.page.locator(".calls pre").inner_text()
    visit.page.locator("[data-call=curl]").click()
    assert all(part in _printed("sh", visit) for part in ('"once, ö; "', "data: [DONE]"))


def test_embeddings_are_shown_and_compared(visit):
    visit.open("try/letters")
    visit.page.get_by_label("Texts").fill("a\nbb\naaa\n\n")
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator("#output", has_text="12 dimensions").wait_for()
    assert visit.page.locator("#output li").all_inner_texts()[2] == "3, 0, 0, 0, 0, 0, 0, 0, …"
    assert visit.page.locator("#output td").all_inner_texts() == [*"101", *"010", *"101"]
    visit.page.locator("[data-call=curl]").click()
    assert len(json.loads(_printed("sh", visit))["data"]) == 3
    visit.page.get_by_label("Texts").fill("\n")
    visit.page.get_by_role("button", name="Run").click()
    visit.page.locator(".error", has_text="give a text").wait_for()


def test_the_keyboard_is_enough(visit):
    visit.open("try/tell")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    visit.page.locator("[data-input=prompt]").focus()
    visit.page.keyboard.type("Key")
    for _ in range(9):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.textContent") == "Run":
            break
    visit.page.keyboard.press("Enter")
    visit.page.locator("#output", has_text="Key 0").wait_for()


@pytest.mark.parametrize(("name", "program"), [("curl", "sh"), ("ModelClient", sys.executable)])
def test_the_same_call_can_be_copied_and_run(visit, name, program):
    visit.open("try/scalars")
    visit.page.locator("[data-input=number]").fill("2")
    visit.page.locator("[data-input=text]").fill('it\'s "quoted" ö')
    visit.page.locator(f"[data-call={name}]").click()
    visit.page.locator(".calls pre", has_text="quoted").wait_for()
    assert "unix:" not in visit.page.locator(".calls pre").inner_text()
    printed = _printed(program, visit)
    assert "it's" in printed
    assert "ö" in printed


def _printed(program, visit):
    """What the call that the page shows prints."""
    text = visit.page.locator(".calls pre").inner_text()
    environment = {**os.environ, "NO_PROXY": "*"}
    done = subprocess.run([program, "-c", text], env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_figures_move_under_load(visit, triton):
    import httpx

    visit.open()
    row = visit.page.locator("tr[data-model=lists]")
    row.locator("[data-figure='Requests/s']", has_text="0").wait_for()
    with httpx.Client(trust_env=False, timeout=DEADLINE_S) as client:
        assert client.post(f"{visit.url}/predict/lists", json={"words": 1}).status_code == 422
        visit.page.locator("tr[data-model=lists] [data-figure='Refused/s'].bad").wait_for()
        assert "422: " in visit.page.locator("[data-tile='Refused/s']").get_attribute("title")
        rate = row.locator("[data-figure='Requests/s']")
        for _ in range(600):
            client.post(f"{visit.url}/predict/lists", json={"words": ["a"], "numbers": [1]}).raise_for_status()
            if rate.inner_text() not in ("0", NONE) and "ms" in row.locator("[data-figure=p99]").inner_text():
                break
    assert float(rate.inner_text().replace(",", "")) > 0
    assert "ms" in row.locator("[data-figure=Mean]").inner_text()
    assert row.locator("[data-figure=Workers]").inner_text() in ("1 of 1 thread", NONE)
    visit.open("batches/lists")
    visit.page.locator(".bars tr").first.wait_for()
    for order in ("by length", "by time"):
        visit.page.get_by_role("button", name=order).click()
        visit.page.locator(".waterfall rect.compute:not([width='0'])").first.wait_for()
    visit.page.get_by_role("combobox", name="Model").select_option("scalars")
    visit.page.wait_for_url("**/#/batches/scalars")


def test_a_pipeline_is_drawn_with_the_live_numbers_of_its_requests(visit):
    import httpx

    visit.open()
    graph = visit.page.locator("figure[data-pipeline=counted]")
    with httpx.Client(trust_env=False, timeout=DEADLINE_S) as client:
        client.post(f"{visit.url}/predict/trim", json={"text": "a"}).raise_for_status()
        for _ in range(3):
            client.post(f"{visit.url}/predict/counted", json={"raw": " a b "}).raise_for_status()
    graph.locator(".count", has_text="3").first.wait_for()
    graph.locator("[data-step=trim]", has_text="4 requests").wait_for()
    assert graph.locator(".count").all_text_contents() == ["3"] * 5
    assert sorted(graph.locator(".tensor").all_text_contents()) == ["trimmed", "trimmed", "words"]
    places = [graph.locator(f"[data-step={name}] rect").bounding_box() for name in ("trim", "split", "join")]
    assert all(place["x"] + place["width"] < following["x"] for place, following in pairwise(places))
    graph.get_by_role("link", name="split").click()
    visit.page.wait_for_url("**/#/try/split")


def test_commands_and_the_log_are_refused_without_the_token_and_carried_out_with_it(visit):
    visit.open("workers")
    visit.page.locator("tr[data-worker=add-0] .badge", has_text="ready").wait_for()
    visit.page.get_by_text("The log needs the server's access token").wait_for()
    visit.page.locator("[data-command='Scale add']").click()
    visit.page.get_by_text("This command needs the token.").wait_for()
    visit.page.get_by_role("button", name="Cancel").click()
    visit.give_token("wrong")
    visit.page.get_by_text("This token is not accepted.").wait_for()
    visit.page.locator("#token-field").fill(TOKEN)
    visit.page.get_by_role("button", name="Use").click()
    visit.page.locator("#token", has_text="Operator").wait_for()
    visit.page.get_by_label("Workers of add").fill("2")
    visit.page.locator("[data-command='Scale add']").click()
    visit.page.locator("tr[data-worker=add-1] .badge", has_text="ready").wait_for()
    visit.page.get_by_label("From").select_option("DEBUG")
    texts = visit.page.locator("ol.log li").all_inner_texts()
    assert len(texts) == len({*texts})  # the log is asked for when the token comes, and every two seconds
    visit.page.get_by_label("Search the log").fill("a page commands: scale")
    assert TOKEN not in visit.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    visit.page.reload()
    visit.page.locator("#token", has_text="Token").wait_for()
    visit.page.get_by_text("The log needs the server's access token").wait_for()


def test_workers_restart_with_the_token(visit):
    visit.open("workers")
    visit.give_token(TOKEN)
    visit.page.locator("#token", has_text="Operator").wait_for()
    worker = visit.page.locator("tr[data-worker=add-0]")
    visit.page.locator("[data-command='Restart add']").click()
    visit.page.locator("dialog").get_by_role("button", name="Restart").click()
    worker.locator("[data-label=Restarts]", has_text="1").wait_for()
    worker.locator(".badge", has_text="ready").wait_for()


def test_another_version_is_served_with_the_token(visit):
    from playwright.sync_api import expect

    visit.open("workers")
    shown = visit.page.get_by_label("Version of numbered")
    expect(shown.locator("option")).to_have_text(["as bound", "version 1", "version 2"])
    assert shown.input_value() == ""
    visit.give_token(TOKEN)
    visit.page.locator("#token", has_text="Operator").wait_for()
    for chosen, answer in ("version 1", "a 1"), ("as bound", "a 2"):
        shown.select_option(chosen)
        visit.page.locator("[data-command='Serve numbered']").click()
        visit.page.locator("dialog").get_by_role("button", name="Serve").click()
        visit.page.locator("p.told", has_text="serve numbered: done").wait_for()
        visit.page.goto(f"{visit.url}/#/try/numbered")
        visit.page.locator("[data-input=text]").fill("a")
        visit.page.get_by_role("button", name="Run").click()
        visit.page.locator("#output", has_text=answer).wait_for()
        visit.page.goto(f"{visit.url}/#/workers")
        expect(shown).to_have_value("" if chosen == "as bound" else "1", timeout=DEADLINE_S * 1000)


def test_a_page_for_one_model_is_shown_in_a_frame_of_a_site_that_may_and_has_nothing_for_operators(browser, triton):
    with ExitStack() as stack:
        app_port, site_port, other_port = stack.enter_context(reserved_ports(3))
        config = RestConfig(frames=[f"http://{LOCALHOST}:{site_port}"])
        stack.enter_context(mounted(create_app(triton, config), app_port))
        app = f"http://{LOCALHOST}:{app_port}/models"

        async def page_with_frame(_: Request) -> HTMLResponse:
            url = f"{app}/embed/iris#flower=%7B%22petal_length%22%3A7.5%7D"
            return HTMLResponse(f'<link rel=icon href="data:,"><iframe src="{url}" width=900 height=900></iframe>')

        for port in (site_port, other_port):
            stack.enter_context(mounted(Starlette(routes=[Route("/", page_with_frame)]), port))
        context = stack.enter_context(closing(browser.new_context()))
        page = context.new_page()
        page.set_default_timeout(DEADLINE_S * 1000)
        page.goto(f"http://{LOCALHOST}:{site_port}/models/")
        frame = page.frame_locator("iframe")
        frame.get_by_role("heading", name="Iris").wait_for()
        frame.get_by_role("button", name="Run").click()
        frame.locator(".bars tr", has_text="virginica").wait_for()
        assert frame.locator("nav, .calls, .history, #token, a").count() == 0
        with page.expect_event("console", lambda message: "frame-ancestors" in message.text):
            page.goto(f"http://{LOCALHOST}:{other_port}/models/")
        assert frame.get_by_role("heading", name="Iris").count() == 0
        page.goto(f"{app}/embed/parrot")
        page.get_by_label("Message", exact=True).fill("hello")
        page.keyboard.press("Enter")
        page.locator(".chat .assistant", has_text="hello!").wait_for()
        page.goto(f"{app}/embed/nothing")
        page.get_by_text("This model is not available").wait_for()


def test_a_code_that_was_printed_unlocks_one_visit(visit, triton, capfd):
    console = triton.console()
    console.offers_codes = True
    console.offer_code(visit.url)
    try:
        printed = capfd.readouterr().err
        url = printed.split()[-1]
        assert url.startswith(f"{visit.url}/#/unlock/")
        visit.page.goto(url)
        visit.page.locator("#token", has_text="Operator").wait_for()
        assert visit.page.url == f"{visit.url}/#/"
        following = capfd.readouterr().err.split()[-1]
        assert following != url
        visit.page.goto(f"{visit.url}/#/workers")
        visit.page.locator("ol.log").wait_for()
        visit.page.goto(url)
        visit.page.get_by_text("this code was used before, or is none").wait_for()
    finally:
        console.offers_codes, console._code = False, ""
    visit.errors = [error for error in visit.errors if "403" not in error]


def test_below_a_path_and_with_a_token_the_page_asks_for_it_once(browser, triton):
    with ExitStack() as stack:
        (port,) = stack.enter_context(reserved_ports(1))
        stack.enter_context(mounted(create_app(triton, RestConfig(access_token="of-callers")), port))
        context = browser.new_context()
        visit = Visit(context.new_page(), f"http://{LOCALHOST}:{port}/models")
        visit.page.goto(f"{visit.url}/#/try/tell")
        visit.page.get_by_text("Token needed").wait_for()
        visit.give_token("of-callers")
        visit.page.locator("#state.good").wait_for()
        visit.page.locator("[data-input=prompt]").wait_for()
        visit.run(prompt="Once", words="2")
        visit.page.locator("#output", has_text="Once 1").wait_for()
        assert '-H "Authorization: Bearer $TOKEN"' in visit.page.locator(".calls pre").inner_text()
        context.close()
    assert [error for error in visit.errors if UNSTABLE not in error and "401" not in error] == []


def test_figures_that_are_protected_need_the_token_and_models_are_called_without_it(browser):
    with ExitStack() as stack:
        triton = stack.enter_context(with_app())
        url = url_of(triton._rest)
        visit = Visit(stack.enter_context(closing(browser.new_page())), url)
        for path in ("workers", "batches/shout", ""):
            visit.page.goto(f"{url}/#/{path}")
            visit.page.reload()
            visit.page.locator("#banner", has_text="The figures need the server's access token").wait_for()
        visit.page.get_by_text("“Try it” lists the models").wait_for()
        visit.page.goto(f"{url}/#/try/shout")
        visit.run(text="hello").get_by_text("HELLO", exact=True).wait_for()
        visit.check()
        visit.give_token("wrong")
        visit.page.get_by_text("This token is not accepted.").wait_for()
        visit.page.locator("#token-field").fill(triton.get_access_token())
        visit.page.get_by_role("button", name="Use").click()
        visit.page.locator("#state.good").wait_for()
        visit.page.locator("#token", has_text="Operator").wait_for()


def test_an_app_with_a_port_of_its_own_tells_that_the_server_does_not_answer(browser):
    with (
        local_config(http_frontend="triton") as config,
        with_app(config=config) as triton,
        closing(browser.new_context()) as context,
    ):
        visit = Visit(context.new_page(), url_of(triton._rest))
        visit.page.goto(visit.url)
        visit.give_token(str(triton.get_access_token()))
        visit.page.locator("#state.good").wait_for()
        pid = triton._server.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            visit.page.locator("#banner", has_text="its server does not").wait_for()
            assert visit.page.locator("[data-tile=Server] b").inner_text() == "Down"
        finally:
            os.kill(pid, signal.SIGKILL)
        visit.page.locator("#state.good").wait_for()


def shown_of(name: str, answer: dict[str, np.ndarray]) -> list[str]:
    """Texts in which a page shows what the library of a saved model has answered to one row."""
    if name == "onnx":
        return [*(f"{score:.3g}" for score in answer["scores"][0]), str(answer["best"][0])]
    if name in ("catboost", "skops"):
        return [max(answer, key=lambda species: answer[species][0])]
    (result,) = answer["result"]
    if name == "xgboost":
        return [f"{100 * share:.1f} %" for share in result]
    return [f"{result:.6f}" if name == "lightgbm" else result]


def test_saved_models_of_one_command_are_tried_on_their_pages(browser, tmp_path):
    row = iris_rows()[0][60]
    saved = {name: make(Path(tempfile.mkdtemp(dir=tmp_path))) for name, make in FORMATS.items()}
    with reserved_ports(4) as ports, closing(browser.new_context()) as context:
        kinds = zip(("http", "grpc", "metrics", "rest"), ports, strict=True)
        options = ["--trust", f"--address={LOCALHOST}", *(f"--{kind}-port={port}" for kind, port in kinds)]
        command = Command(
            tmp_path / "home", "serve", *(f"{name}={each.path}" for name, each in saved.items()), *options
        )
        try:
            command.wait_for("Press CTRL+C")
            visit = Visit(context.new_page(), f"http://{LOCALHOST}:{ports[-1]}")
            for name, each in saved.items():
                visit.page.goto(f"{visit.url}/#/try/{name}")
                for field, value in each.values(row).items():
                    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                    visit.page.locator(f"[data-input='{field}']").fill(text)
                answer = visit.run()
                for text in shown_of(name, each.answer(row[None])):
                    answer.get_by_text(text, exact=True).first.wait_for()
            visit.check()
        finally:
            command.kill()


def test_the_loss_of_the_server_and_of_the_connection_are_told_and_their_end(visit, triton):
    visit.open()
    pid = triton._server.pid()
    os.kill(pid, signal.SIGSTOP)  # it does not answer, and is not launched again before it has gone
    try:
        visit.page.locator("#banner", has_text="No connection").wait_for()
    finally:
        os.kill(pid, signal.SIGKILL)
    visit.page.locator("#state.good").wait_for()
    visit.page.locator("tr[data-model=scalars] .badge", has_text="ready").wait_for()
    assert triton._server.pid() != pid
    visit.page.context.set_offline(True)
    visit.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # reconnects, which fails
    visit.page.locator("#banner", has_text="No connection").wait_for()
    assert "the figures are from before" in visit.page.locator("#banner").inner_text()
    visit.page.context.set_offline(False)
    visit.page.locator("#state.good").wait_for()
    assert visit.page.locator("#banner").is_hidden()
    lost = ("net::ERR_", "503", "502")
    visit.errors = [error for error in visit.errors if not any(each in error for each in lost)]
