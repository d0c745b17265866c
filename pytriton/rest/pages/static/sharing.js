// Links that have the inputs of a call in them, and the calls of this visit.

import { clock, fill, h, milliseconds } from "./dom.js";

const MOST_LINK = 8000; // characters: longer links are cut by programs that pass them on
const MOST_CALLS = 20; // of a model
const MOST_TEXT = 80;

const isText = (schema) => schema?.type === "string" && !schema.contentEncoding && !schema.enum;

// The link to a model's form with these values, such as #/try/shout?text=hello; null if it would be too long.
export function linkOf(page, model, values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    query.set(name, isText(model.inputs[name]) ? value : JSON.stringify(value));
  }
  const text = `#/${page}/${encodeURIComponent(model.name)}${query.size ? `?${query}` : ""}`;
  return text.length > MOST_LINK ? null : text;
}

// The values of a link; null if it has none. A value that is no JSON is a text.
export function valuesOf(model, query) {
  const names = Object.keys(model.inputs).filter((name) => query.has(name));
  if (!names.length) return null;
  return Object.fromEntries(names.map((name) => {
    const text = query.get(name);
    if (isText(model.inputs[name])) return [name, text];
    try {
      return [name, JSON.parse(text)];
    } catch {
      return [name, text];
    }
  }));
}

const calls = new Map(); // by model: [{time, link, inputs, answer, failed, took}], the last first

// Notes a call; its inputs and its answer are told by their first characters.
export function noteCall(model, link, values, answer, failed, took) {
  const short = (value) => {
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
    return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
  };
  const inputs = Object.entries(values).map(([name, value]) => `${name}: ${short(value)}`).join(", ");
  const list = calls.get(model.name) ?? [];
  list.unshift({ time: Date.now() / 1000, link, inputs: short(inputs), answer: short(answer), failed, took });
  calls.set(model.name, list.slice(0, MOST_CALLS));
}

export function fillCalls(element, model) {
  const list = calls.get(model.name) ?? [];
  element.hidden = !list.length;
  const row = ({ time, link, inputs, answer, failed, took }) => h("tr", {},
    h("th", { scope: "row" }, link ? h("a", { href: link }, clock(time)) : clock(time)),
    h("td", { "data-label": "Inputs" }, inputs || "–"), h("td", { "data-label": "Answer", class: failed ? "error" : null }, answer || "–"), h("td", { "data-label": "Took", class: "n" }, milliseconds(took)));
  fill(element, h("h2", {}, "Calls of this visit"), h("div", { class: "scroll" }, h("table", { class: "cards history" },
    h("thead", {}, h("tr", {}, ["Time", "Inputs", "Answer", "Took"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, list.map(row)))),
    h("p", { class: "hint" }, "A time leads to the form with these inputs. The page forgets the calls when it is closed or loaded again."));
}
