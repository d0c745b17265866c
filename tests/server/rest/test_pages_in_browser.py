"""The pages in a real browser: Chromium clicks through them."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from pytriton.decorators import batch
from pytriton.llm import ChatModel, ChatRequest, CompletionModel, CompletionRequest, EmbeddingModel
from pytriton.rest import RestConfig, create_app
from pytriton.triton import Triton, TritonSecurityConfig
from pytriton.workers import Processes
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S
from tests.server.rest.fronts import fronted, url_of
from tests.server.rest.kinds import bind_kinds, make_add
from tests.server.rest.ways import mounted

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [name for name in ("playwright", "axe_playwright_python") if find_spec(name) is None]
pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.timeout(180),
]
TOKEN = "the-token-of-operators"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
PAGES = ("", "try", "try/scalars", "try/digit", "try/picture", "try/teller", "try/letters", "chat/parrot")
PAGES += ("batches/scalars", "workers")
AXE = """async () => (await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})).violations.map(
    ({id, nodes}) => [id, ...nodes.map(({html, failureSummary}) => html + " " + failureSummary)])"""
NONE = "\N{EN DASH}"
# The network may change while containers start: the browser drops its connections then, and the page retries.
UNSTABLE = "net::ERR_NETWORK_CHANGED"


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
    """A server with a model of each kind, and a front."""
    security = TritonSecurityConfig(access_token=TOKEN)
    with ExitStack() as stack:
        (port,) = stack.enter_context(reserved_ports(1))
        rest = RestConfig(port=port, address=LOCALHOST)
        config = stack.enter_context(local_config())
        triton = stack.enter_context(Triton(config=config, security_config=security, rest=rest))
        bind_kinds(triton)
        bind_digit(triton)
        for model in (ChatModel(parrot), CompletionModel(teller), EmbeddingModel(letters)):
            triton.bind(model)
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
        url: Of the front.
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


def test_records_lists_matrices_and_declared_tensors_are_called(visit):
    visit.open("try/records")
    output = visit.run(order='{"item": "tea", "count": 2, "tags": {"hot": 1}}')
    assert "tea" in output.inner_text()
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
    with httpx.Client(trust_env=False) as client:
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
    visit.page.locator(".waterfall rect.compute:not([width='0'])").first.wait_for()
    visit.page.get_by_role("combobox", name="Model").select_option("scalars")
    visit.page.wait_for_url("**/#/batches/scalars")


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
    assert shown.locator("option").all_inner_texts() == ["as bound", "version 1", "version 2"]
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


def test_a_front_with_a_port_of_its_own_tells_that_the_server_does_not_answer(browser):
    with (
        local_config(http_frontend="triton") as config,
        fronted(config=config) as triton,
        closing(browser.new_context()) as context,
    ):
        visit = Visit(context.new_page(), url_of(triton._rest))
        visit.open()
        pid = triton._server.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            visit.page.locator("#banner", has_text="its server does not").wait_for()
            assert visit.page.locator("[data-tile=Server] b").inner_text() == "Down"
        finally:
            os.kill(pid, signal.SIGKILL)
        visit.page.locator("#state.good").wait_for()


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
