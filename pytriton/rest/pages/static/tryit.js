// Try it: a form for each model, its answer, and the same call in other languages.

import { ApiError, events, get, post, root } from "./api.js";
import { code, viewOf, views } from "./answer.js";
import { copy, fill, h, milliseconds, put } from "./dom.js";
import { InputError, describe, fields } from "./form.js";
import { listen, live } from "./live.js";
import { openaiForm, openaiModels } from "./openai.js";
import { snippets } from "./snippets.js";

const RELOAD_MS = 500;
const MOST_SHOWN = 200; // values of a stream

export function show(main, name) {
  const state = { stop: () => {} };
  load(main, name, state);
  return () => state.stop();
}

async function load(main, name, state) {
  fill(main, h("h1", {}, name || "Try it"), h("p", { class: "hint" }, "Loading"));
  let models;
  let served; // by OpenAI's routes
  try {
    models = await get("/pages/models");
    served = models.some((each) => each.kinds.length) ? await openaiModels() : [];
  } catch (error) {
    fill(main, h("h1", {}, name || "Try it"), h("p", { class: "error" }, error.message));
    return;
  }
  if (!main.isConnected || decodeURIComponent(location.hash).replace(/^#\/try\/?/, "") !== name) return;
  const model = models.find((each) => each.name === name);
  if (!name || !model) {
    const missing = h("p", { class: "error" }, `Model ${name} is not ready. Its form appears here as soon as it is.`);
    fill(main, h("h1", {}, "Try it"), name && missing, index(models, served));
    const before = models.length;
    state.stop = listen(() => {
      const ready = Object.values(live.sample.models).filter((each) => each.versions.some(({ state }) => state === "READY"));
      if (ready.length === before) return;
      state.stop();
      setTimeout(() => load(main, name, state), RELOAD_MS);
    });
  } else {
    modelPage(main, model, models, served, state);
  }
}

const link = (model, served) => (isChat(model, served) ? `#/chat/${encodeURIComponent(model.name)}` : `#/try/${encodeURIComponent(model.name)}`);
const isChat = (model, served) => served.includes(model.name) && model.kinds.includes("chat");

function index(models, served) {
  if (!models.length) return h("p", { class: "hint" }, "No models are ready.");
  return h("ul", { class: "index" }, models.map((model) => h("li", {},
    h("a", { href: link(model, served), class: "card" }, h("b", {}, model.name), h("span", {}, model.description || "No description."), h("code", {}, signature(model))))));
}

const OPENAI = { chat: "messages → stream of text", completion: "prompt → stream of text", embedding: "text → vector" };

function signature(model) {
  if (model.kinds.length) return model.kinds.map((kind) => OPENAI[kind]).join(", ");
  const one = ([name, schema]) => `${name}: ${describe(schema)}`;
  const inputs = Object.entries(model.inputs).map(one).join(", ");
  return `(${inputs}) → ${model.streams ? "stream of " : ""}${Object.entries(model.outputs).map(one).join(", ")}`;
}

function modelPage(main, model, models, served, state) {
  const openai = served.includes(model.name) && model.kinds.some((kind) => kind !== "chat") && openaiForm(model);
  const made = openai ? [] : fields(model);
  const run = h("button", { type: "submit", class: "primary" }, "Run");
  const cancel = h("button", { type: "button", hidden: true, onclick: () => state.stop() }, "Stop");
  const problem = h("p", { class: "error", role: "alert" });
  const told = h("p", { class: "told", role: "status" });
  const output = h("div", { id: "output" }, h("p", { class: "hint" }, "The answer appears here."));
  const calls = h("section", { class: "panel calls", "aria-label": "The same call" });
  const picker = h("select", { id: "picker", "aria-label": "Model", onchange: () => (location.hash = link(models.find((each) => each.name === picker.value), served)) },
    models.map((each) => h("option", { value: each.name, selected: each === model }, each.name)));

  async function body() {
    const values = {};
    for (const field of made) {
      const value = await field.value();
      if (value !== undefined) values[field.name] = value;
    }
    return values;
  }

  async function tellCalls() {
    if (openai) return showCalls(calls, openai.calls());
    let values;
    try {
      values = await body();
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      return;
    }
    const files = Object.fromEntries(made.map((field) => [field.name, field.file()]));
    const server = live.about?.server.replace(/127\.0\.0\.1|localhost|0\.0\.0\.0/, location.hostname) ?? "";
    showCalls(calls, snippets(model, values, { base: location.origin + root, server, asksToken: live.about?.asksToken, files }));
  }

  async function submit(event) {
    event.preventDefault();
    state.stop();
    const abort = new AbortController();
    state.stop = () => abort.abort();
    put(problem, "");
    put(told, "");
    run.disabled = true;
    cancel.hidden = false;
    const began = performance.now();
    try {
      const values = await body();
      tellCalls();
      const path = `/predict/${encodeURIComponent(model.name)}`;
      if (openai) await openai.answer(abort.signal, told, output);
      else if (model.streams) await stream(path, values, abort.signal, began);
      else await whole(path, values, abort.signal, began);
    } catch (error) {
      if (abort.signal.aborted) put(told, `Stopped after ${milliseconds(performance.now() - began)}`);
      else put(problem, error.message);
      const name = error.error?.details?.[0]?.path?.[0];
      made.find((field) => field.name === name)?.element.querySelector("input, textarea, select")?.focus();
    } finally {
      run.disabled = false;
      cancel.hidden = true;
    }
  }

  async function whole(path, values, signal, began) {
    const response = await post(path, values, { signal });
    const text = await response.text();
    put(told, `Answered in ${milliseconds(performance.now() - began)}, ${text.length.toLocaleString("en")} bytes`);
    const found = JSON.parse(text);
    fill(output, views(model, found), h("details", {}, h("summary", {}, "JSON"), code(found)));
  }

  async function stream(path, values, signal, began) {
    const response = await post(path, values, { signal, headers: { Accept: "text/event-stream" } });
    const outputs = Object.keys(model.outputs);
    const isText = outputs.length === 1 && model.outputs[outputs[0]].type === "string";
    const text = h("p", { class: "text", "aria-live": "polite" });
    const list = h("ol", { class: "list" });
    fill(output, h("section", { class: "output", "data-output": outputs[0] }, isText ? text : list));
    let count = 0;
    let first = null;
    for await (const { event, data } of events(response)) {
      const value = JSON.parse(data);
      if (event === "error") throw new ApiError(500, value.error.message, value.error);
      if (event === "end") break;
      first ??= performance.now() - began;
      count += 1;
      if (isText) text.append(value[outputs[0]]);
      else if (count <= MOST_SHOWN) list.append(h("li", {}, outputs.length === 1 ? viewOf(value[outputs[0]], model.outputs[outputs[0]]) : viewOf(value)));
      put(told, `First after ${milliseconds(first)}, ${count} in ${milliseconds(performance.now() - began)}`);
    }
    if (count === 0) put(told, `No results in ${milliseconds(performance.now() - began)}`);
  }

  const form = h("form", { class: "panel", onsubmit: submit, onchange: tellCalls, novalidate: true }, h("h2", {}, "Inputs"),
    openai ? openai.elements : made.length ? made.map((field) => field.element) : h("p", { class: "hint" }, "The model has no inputs."),
    problem, h("div", { class: "row" }, run, cancel));
  fill(main, h("div", { class: "head" }, h("h1", {}, model.name), picker), model.description && h("p", { class: "lead" }, model.description),
    h("p", { class: "signature" }, h("code", {}, signature(model))),
    h("div", { class: "pair" }, form, h("section", { class: "panel answer", "aria-label": "Answer" }, h("h2", {}, "Answer"), told, output)), calls);
  tellCalls();
}

export function showCalls(section, calls) {
  const texts = Object.entries(calls).filter(([, text]) => text);
  const chosen = section.dataset.chosen ?? texts[0][0];
  section.texts = Object.fromEntries(texts);
  const names = Object.keys(section.texts).join();
  if (section.names === names) return section.choose(chosen); // a click on a button that is replaced would be lost
  section.names = names;
  const block = h("pre", { tabindex: "0", "aria-label": "Code" }, h("code", {}));
  const buttons = texts.map(([name]) => h("button", { type: "button", "data-call": name, onclick: () => section.choose(name) }, name));
  section.choose = (name) => {
    section.dataset.chosen = name;
    block.firstChild.textContent = section.texts[name];
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.call === name));
  };
  const copying = h("button", { type: "button", class: "copy", onclick: () => copy(block.textContent, copying) }, "Copy");
  fill(section, h("h2", {}, "The same call"), h("div", { class: "row" }, h("div", { class: "choice", role: "group", "aria-label": "Language" }, buttons), copying), block);
  section.choose(chosen in section.texts ? chosen : texts[0][0]);
}
