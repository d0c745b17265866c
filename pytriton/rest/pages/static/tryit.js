// Try it: a form for each model, its answer, and the same call in other languages.

import { ApiError, asks, events, get, post, root } from "./api.js";
import { code, viewOf, views } from "./answer.js";
import * as chat from "./chat.js";
import { copy, fill, h, milliseconds, put } from "./dom.js";
import { InputError, describe, fields } from "./form.js";
import { listen, live } from "./live.js";
import { openaiForm, openaiModels } from "./openai.js";
import { fillCalls, linkOf, noteCall, valuesOf } from "./sharing.js";
import { snippets } from "./snippets.js";

const RELOAD_MS = 500;
const MOST_SHOWN = 200; // values of a stream
const MOST_EXAMPLE = 40; // characters of a button

// title: of a page for this model alone, without links to others; null on the dashboard.
export function show(main, name, query, title = null) {
  const state = { stop: () => {}, isLeft: false, title };
  load(main, name, query, state);
  return () => {
    state.isLeft = true;
    state.stop();
  };
}

async function load(main, name, query, state) {
  const heading = state.title ?? (name || "Try it");
  fill(main, h("h1", {}, heading), h("p", { class: "hint" }, "Loading"));
  let models;
  let served; // by OpenAI's routes
  let unknown = ""; // the server's words, with the name that may be meant
  try {
    models = await get("/pages/models");
    served = models.some((each) => each.kinds.length) ? await openaiModels() : [];
    if (name && !models.some((each) => each.name === name)) unknown = (await get(`/pages/models?missing=${encodeURIComponent(name)}`)).reason;
  } catch (error) {
    fill(main, h("h1", {}, heading), h("p", { class: "error" }, error.message));
    return;
  }
  if (!main.isConnected || state.isLeft) return;
  const model = models.find((each) => each.name === name);
  if (!model && state.title !== null) {
    fill(main, h("h1", {}, heading), h("p", { class: "error" }, "This model is not available at the moment."));
  } else if (!model) {
    const missing = h("p", { class: "error", role: "status" });
    fill(main, h("h1", {}, "Try it"), name && missing, index(models, served));
    const names = models.map((each) => each.name);
    const tell = () => put(missing, whyMissing(name, unknown));
    tell();
    state.stop = listen(() => {
      if (!live.sample) return;
      tell();
      const ready = Object.values(live.sample.models).filter((each) => each.versions.some(({ state }) => state === "READY"));
      if (ready.length === names.length) return;
      state.stop();
      setTimeout(() => state.isLeft || load(main, name, query, state), RELOAD_MS);
    });
  } else if (isChat(model, served) && state.title !== null) {
    state.stop = chat.show(main, name, query, state.title);
  } else if (isChat(model, served)) {
    location.replace(link(model, served)); // the fields of its raw form are of no use
  } else {
    modelPage(main, model, models, served, valuesOf(model, query), state);
  }
}

// Why there is no form: the model loads or has failed, or there is none of this name.
function whyMissing(name, unknown) {
  const versions = live.sample?.models[name]?.versions ?? [];
  const failed = versions.find((each) => each.state === "UNAVAILABLE" && each.reason && each.reason !== "unloaded");
  if (failed) return `Model ${name} is not ready: ${failed.reason}`;
  if (versions.length) return `Model ${name} is not ready (${versions[0].reason || versions[0].state.toLowerCase()}). Its form appears here as soon as it is.`;
  return unknown;
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

function modelPage(main, model, models, served, given, state) {
  const openai = served.includes(model.name) && model.kinds.some((kind) => kind !== "chat") && openaiForm(model);
  const made = openai ? [] : fields(model, given);
  const run = h("button", { type: "submit", class: "primary" }, "Run");
  const cancel = h("button", { type: "button", hidden: true, onclick: () => state.stop() }, "Stop");
  const share = h("button", { type: "button", class: "quiet", hidden: Boolean(openai) || state.title !== null, onclick: copyLink }, "Copy link");
  const problem = h("div", { class: "error", role: "alert" });
  const past = h("section", { class: "panel", "aria-label": "Calls of this visit", hidden: true });
  const told = h("p", { class: "told", role: "status" });
  const output = h("div", { id: "output" }, h("p", { class: "hint" }, "The answer appears here."));
  const calls = h("section", { class: "panel calls", "aria-label": "The same call", hidden: true });
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
    showCalls(calls, snippets(model, values, { base: location.origin + root, server, asksToken: asks("inference"), files }));
  }

  // What a link can have: all but files.
  async function linked() {
    const values = await body();
    for (const name of Object.keys(values)) if (model.inputs[name].contentEncoding) delete values[name];
    return linkOf("try", model, values);
  }

  async function copyLink() {
    try {
      const text = await linked();
      if (text === null) put(told, "The inputs are too large for a link.");
      else copy(location.href.split("#")[0] + text, share);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      put(problem, error.message);
    }
  }

  async function submit(event) {
    event.preventDefault();
    state.stop();
    const abort = new AbortController();
    state.stop = () => abort.abort();
    fill(problem);
    put(told, "");
    run.disabled = true;
    cancel.hidden = false;
    const began = performance.now();
    let values;
    let answer = "";
    try {
      values = await body();
      tellCalls();
      const path = `/predict/${encodeURIComponent(model.name)}`;
      if (openai) await openai.answer(abort.signal, told, output);
      else if (model.streams) answer = await stream(path, values, abort.signal, began);
      else answer = await whole(path, values, abort.signal, began);
      await note(values, answer, false, began);
    } catch (error) {
      if (abort.signal.aborted) return put(told, `Stopped after ${milliseconds(performance.now() - began)}`);
      fill(problem, problemView(error));
      if (!model.streams || !(error instanceof ApiError && error.inStream)) fill(output, h("p", { class: "hint" }, "No answer."));
      if (values) await note(values, error.message, true, began);
      focusOn(error.error?.details?.[0]?.path ?? []);
    } finally {
      run.disabled = false;
      cancel.hidden = true;
    }
  }

  async function note(values, answer, failed, began) {
    if (openai) return;
    noteCall(model, await linked(), values, answer, failed, performance.now() - began);
    fillCalls(past, model);
  }

  // The innermost field of a path, such as ["order", "count"].
  function focusOn(path) {
    for (let length = path.length; length > 0; length -= 1) {
      const found = form.querySelector(`[data-input="${CSS.escape(path.slice(0, length).join("."))}"]`);
      const control = found?.matches("input, textarea, select") ? found : found?.querySelector("input, textarea, select");
      if (control) return control.focus();
    }
  }

  async function whole(path, values, signal, began) {
    const response = await post(path, values, { signal });
    const text = await response.text();
    put(told, `Answered in ${milliseconds(performance.now() - began)}, ${text.length.toLocaleString("en")} bytes`);
    const found = JSON.parse(text);
    const names = Object.keys(found);
    fill(output, views(model, found), h("details", {}, h("summary", {}, "JSON"), code(found)));
    return names.length === 1 && names[0] === "result" ? found.result : found;
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
    let start = "";
    for await (const { event, data } of events(response)) {
      const value = JSON.parse(data);
      if (event === "error") throw Object.assign(new ApiError(500, value.error.message, value.error), { inStream: count > 0 });
      if (event === "end") break;
      first ??= performance.now() - began;
      count += 1;
      if (start.length < MOST_SHOWN) start += isText ? value[outputs[0]] : `${JSON.stringify(value)} `;
      if (isText) text.append(value[outputs[0]]);
      else if (count <= MOST_SHOWN) list.append(h("li", {}, outputs.length === 1 ? viewOf(value[outputs[0]], model.outputs[outputs[0]]) : viewOf(value)));
      put(told, `First after ${milliseconds(first)}, ${count} in ${milliseconds(performance.now() - began)}`);
    }
    if (count === 0) put(told, `No results in ${milliseconds(performance.now() - began)}`);
    return start;
  }

  const form = h("form", { class: "panel", onsubmit: submit, onchange: tellCalls, novalidate: true }, h("h2", {}, "Inputs"),
    openai ? openai.elements : made.length ? made.map((field) => field.element) : h("p", { class: "hint" }, "The model has no inputs."),
    problem, h("div", { class: "row" }, run, cancel, share));
  const examples = openai ? [] : exampleButtons(model, (values) => modelPage(main, model, models, served, values, state));
  fill(main, h("div", { class: "head" }, h("h1", {}, state.title ?? model.name), state.title === null && picker), model.description && h("p", { class: "lead" }, model.description),
    state.title === null && h("p", { class: "signature" }, h("code", {}, signature(model))), examples,
    h("div", { class: "pair" }, form, h("section", { class: "panel answer", "aria-label": "Answer" }, h("h2", {}, "Answer"), told, output)), state.title === null && [past, calls]);
  if (state.title === null) fillCalls(past, model);
  tellCalls();
}

function exampleButtons(model, choose) {
  if (model.examples.length < 2) return [];
  const text = (values) => Object.values(values).map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(", ");
  const button = (values) => h("button", { type: "button", onclick: () => choose(values) }, text(values).slice(0, MOST_EXAMPLE) || "(nothing)");
  return h("div", { class: "row", role: "group", "aria-label": "Examples" }, h("span", { class: "hint" }, "Examples"), model.examples.map(button));
}

// An error: each value that does not fit has a line of its own.
function problemView(error) {
  const { details = [], more = 0 } = error.error ?? {};
  if (!details.length) return h("p", {}, error.message);
  const line = ({ path, expected, got }) => h("li", {}, path.length ? [h("b", {}, path.join(".")), ": "] : null, `expected ${expected}, got ${got}`);
  return h("ul", { class: "problems" }, details.map(line), more > 0 && h("li", {}, `and ${more} more`));
}

export function showCalls(section, calls) {
  const texts = Object.entries(calls).filter(([, text]) => text);
  const chosen = section.dataset.chosen ?? texts[0][0];
  section.texts = Object.fromEntries(texts);
  section.hidden = false;
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
