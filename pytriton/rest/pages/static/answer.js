// The answer of a model, shown as what it is.

import { bars } from "./chart.js";
import { paint, imageShape } from "./draw.js";
import { h, number } from "./dom.js";
import { resolved } from "./form.js";

const MOST_ROWS = 50;
const MOST_BARS = 12;
const MOST_SHARES = 1000;
const SIDE = 280;

export function views(model, body) {
  const names = Object.keys(body);
  return members(body, model.outputs, model.definitions).map(([name, view]) =>
    h("section", { class: "output", "data-output": name }, names.length > 1 || name !== "result" ? h("h3", {}, name) : null, view));
}

// What the members of an object look like: [name, element]. Probabilities are named by a list of texts beside them, or
// by an enumeration of as many.
function members(value, schemas, definitions) {
  const names = Object.keys(value);
  const schemaOf = (name) => resolved(schemas?.[name] ?? {}, definitions ?? {});
  const shares = names.find((name) => areShares(value[name]));
  const labels = shares && names.find((name) => isLabels(value[name], value[shares]));
  const named = shares && names.map((name) => schemaOf(name).enum).find((each) => isLabels(each, value[shares]));
  return names.filter((name) => name !== labels).map((name) => {
    const view = name === shares ? shareBars(name, value[name], labels ? value[labels] : named) : viewOf(value[name], schemaOf(name), definitions);
    return [name, view];
  });
}

const isNumber = (value) => typeof value === "number";
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// Numbers from 0 to 1 whose sum is 1.
function areShares(value) {
  const values = isObject(value) ? Object.values(value) : value;
  if (!Array.isArray(values) || values.length < 2 || values.length > MOST_SHARES) return false;
  if (!values.every((each) => isNumber(each) && each >= 0 && each <= 1.0001)) return false;
  return Math.abs(values.reduce((sum, each) => sum + each, 0) - 1) < 0.01;
}

const isLabels = (value, shares) => Array.isArray(value) && value.length === shares.length && value.every((each) => typeof each === "string");

function shareBars(name, value, labels) {
  const pairs = isObject(value) ? Object.entries(value) : value.map((share, index) => [labels?.[index] ?? String(index), share]);
  const sorted = pairs.toSorted((a, b) => b[1] - a[1]).slice(0, MOST_BARS);
  const rows = sorted.map(([label, share], index) => ({ label, value: share, text: `${(100 * share).toFixed(1)} %`, isFirst: index === 0 }));
  const more = pairs.length - rows.length;
  return h("div", {}, bars(rows, 1, `Probabilities of ${name}`), more > 0 && h("p", { class: "hint" }, `and ${more} more`));
}

// Of an object whose names are a closed set, each may be a probability of its own.
const areScores = (value, schema) => isObject(value) && schema.propertyNames?.enum && Object.values(value).every((each) => isNumber(each) && each >= 0 && each <= 1);

export function viewOf(value, schema = {}, definitions = {}) {
  if (typeof value === "string" && schema.contentMediaType?.startsWith("image/")) {
    return h("img", { src: `data:${imageType(value)};base64,${value}`, alt: "The image that the model made", class: "picture" });
  }
  if (typeof value === "string" && schema.contentEncoding) {
    const link = h("a", { href: `data:application/octet-stream;base64,${value}`, download: "output.bin" }, "Save");
    return h("p", {}, `${Math.floor((value.replace(/=+$/, "").length * 3) / 4)} bytes `, link);
  }
  if (typeof value === "string") return h("p", { class: "text" }, value);
  if (isNumber(value) || typeof value === "boolean" || value === null) return h("p", { class: "figure" }, isNumber(value) ? exact(value) : String(value));
  if (areShares(value) || areScores(value, schema)) return shareBars("the answer", value);
  if (Array.isArray(value)) return listView(value, schema);
  return h("dl", { class: "members" }, members(value, schema.properties, definitions).map(([name, view]) => [h("dt", {}, name), h("dd", {}, view)]));
}

const exact = (value) => (Number.isInteger(value) ? String(value) : number(value, 6));

function imageType(text) {
  return { "/9j/": "image/jpeg", R0lG: "image/gif", UklG: "image/webp" }[text.slice(0, 4)] ?? "image/png";
}

function listView(value, schema) {
  if (value.length === 0) return h("p", { class: "hint" }, "empty");
  if (value.length === 1 && !Array.isArray(value[0]) && !isObject(value[0])) return viewOf(value[0]);
  const image = schema.shape && isNumber(value.flat(3)[0]) && imageShape(schema.shape, value);
  if (image) return arrayPicture(value, image);
  if (value.every((each) => typeof each === "string")) return h("ol", { class: "list" }, value.slice(0, MOST_ROWS).map((each) => h("li", {}, each)), rest(value));
  if (value.every(isObject)) return table([...new Set(value.flatMap(Object.keys))], value.map((each) => each));
  if (value.every((each) => Array.isArray(each) && !Array.isArray(each[0]))) return table(value[0].map((_, index) => index), value);
  if (value.every((each) => !isObject(each) && !Array.isArray(each))) return table(value.map((_, index) => index), [value]);
  return code(value);
}

const rest = (rows) => rows.length > MOST_ROWS && h("li", { class: "hint" }, `and ${rows.length - MOST_ROWS} more`);

function table(columns, rows) {
  const shown = columns.slice(0, MOST_ROWS);
  const cell = (value) => (value === undefined ? "" : isNumber(value) ? exact(value) : typeof value === "string" ? value : JSON.stringify(value));
  const kind = (value) => (isNumber(value) ? "n" : null);
  const more = [rows.length > MOST_ROWS && `${rows.length - MOST_ROWS} more rows`, columns.length > MOST_ROWS && `${columns.length - MOST_ROWS} more columns`].filter(Boolean);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", { class: "data" },
      h("thead", {}, h("tr", {}, shown.map((name) => h("th", { scope: "col" }, String(name))))),
      h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, shown.map((name) => h("td", { class: kind(row[name]) }, cell(row[name]))))))),
    more.length > 0 && h("p", { class: "hint" }, `and ${more.join(", ")}`));
}

function arrayPicture(value, image) {
  const flat = value.flat(3);
  const most = flat.reduce((top, each) => Math.max(top, each), 0);
  const canvas = h("canvas", { width: SIDE, height: Math.round((SIDE * image.height) / image.width), class: "picture", role: "img", "aria-label": "The array as a picture" });
  paint(canvas, canvas.getContext("2d"), value, image, most);
  return canvas;
}

export const code = (value) => h("pre", { tabindex: "0" }, h("code", {}, JSON.stringify(value, null, 1)));
