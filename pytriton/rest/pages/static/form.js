// A form made from the inputs of a model. Each field has an element, and value(): undefined if it is left out.

import { drawing, imageShape, pictureFile } from "./draw.js";
import { dropZone, h, unique } from "./dom.js";

const INTEGER = /^U?INT(8|16|32|64)$/;
const NUMBERS = ["FP16", "FP32", "FP64", "BF16"];
const MOST_SLIDERS = 8;
const MOST_MEMBERS = 30; // of a record; larger ones, and those within three others, are JSON
const MOST_DEPTH = 3;

export class InputError extends Error {}

// A model's signature has schemas with a dtype and a shape, and plain ones of JSON Schema. `given` are values to start
// with in place of the example's.
export function fields(model, given = null) {
  const example = model.example?.input ?? {};
  return Object.entries(model.inputs).map(([name, schema]) => {
    const isRequired = model.required.includes(name);
    const usual = schema.default ?? schema.examples?.[0];
    const start = given === null ? (example[name] ?? usual) : (given[name] ?? (isRequired ? (example[name] ?? usual) : undefined));
    return field(name, name, schema, start, isRequired, model.definitions, 0);
  });
}

// path: of the value in the body, with points.
function field(path, name, schema, start, isRequired, definitions, depth) {
  const made = widget(schema, start, isRequired, definitions, depth, path);
  const id = made.control.id ||= unique("field");
  const described = depth ? resolved(schema, definitions) : schema;
  const told = [made.isRecord ? null : describe(described), described.description, isRequired ? null : "optional"].filter(Boolean).join(" · ");
  const hint = told && h("small", { id: `${id}-hint` }, told);
  if (hint) made.control.setAttribute("aria-describedby", hint.id);
  made.control.setAttribute("data-input", path);
  const label = made.isGroup ? h("legend", {}, name) : h("label", { for: id }, name);
  const element = h(made.isGroup ? "fieldset" : "div", { class: made.isRecord ? "field record" : "field" }, label, made.element ?? made.control, hint);
  return { name, schema, element, value: () => named(name, made.value), file: made.file ?? (() => null) };
}

async function named(name, value) {
  try {
    return await value();
  } catch (error) {
    if (error instanceof InputError) throw new InputError(`${name}: ${error.message}`);
    throw error;
  }
}

export function describe(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.shape) return `${schema.dtype} [${schema.shape.map((size) => (size === -1 ? "any" : size)).join(" × ")}]`;
  if (schema.contentMediaType?.startsWith("image/")) return "image";
  if (schema.contentEncoding) return "bytes";
  if (schema.enum) return "choice";
  if (schema.type === "array") return `list of ${describe(schema.items ?? {})}`;
  const limits = [schema.minimum !== undefined && `at least ${schema.minimum}`, schema.maximum !== undefined && `at most ${schema.maximum}`];
  const kind = schema.dtype ?? { string: "text", integer: "integer", number: "number", boolean: "yes or no" }[schema.type] ?? "JSON";
  return [kind, ...limits.filter(Boolean)].join(", ");
}

function widget(schema, start, isRequired, definitions, depth = 0, path = "") {
  if (schema.encoding === "json" || depth) {
    const bare = resolved(schema, definitions);
    if (bare.properties) {
      const isSmall = depth < MOST_DEPTH && Object.keys(bare.properties).length <= MOST_MEMBERS;
      if (isSmall && (isRequired || start)) return record(bare, start, definitions, depth, path);
      return json(start, isRequired, schema, definitions);
    }
    if (bare.isNullable) return nullable(widget({ ...bare, isNullable: false }, start ?? undefined, false, definitions, depth, path), isRequired);
    const isSimple = depth && (bare.enum || ["string", "integer", "number", "boolean"].includes(bare.type) || (bare.type === "array" && isScalar(bare.items ?? {})));
    if (!isSimple) return json(start, isRequired, schema, definitions);
    schema = bare;
  }
  if (schema.nullable && !schema.shape) return nullable(widget({ ...schema, nullable: false }, start ?? undefined, false, definitions, depth, path), isRequired);
  if (schema.enum) return choice(schema.enum, start, isRequired);
  if (schema.shape) return tensor(schema, start, isRequired);
  if (schema.contentMediaType?.startsWith("image/")) return pictureFile(isRequired);
  if (schema.contentEncoding) return file(isRequired);
  if (schema.type === "boolean" || schema.dtype === "BOOL") return boolean(start, isRequired);
  if (schema.type === "string" || schema.dtype === "BYTES") return text(start, isRequired, schema);
  if (schema.type === "integer" || schema.type === "number" || schema.dtype) return numeric(schema, start, isRequired);
  if (schema.type === "array") return list(schema.items ?? {}, start, isRequired);
  return json(start, isRequired, schema, definitions);
}

const isScalar = (schema) => ["string", "integer", "number", "boolean"].includes(schema.type) && !schema.contentEncoding;

// A schema without references, and without null beside one other; isNullable says whether that was there.
export function resolved(schema, definitions) {
  let found = schema;
  for (let count = 0; count < 8; count += 1) {
    const { $ref, anyOf, allOf, ...told } = found;
    const others = anyOf?.filter((each) => each.type !== "null") ?? [];
    if ($ref) found = { ...definitions[$ref.split("/").pop()], ...told };
    else if (anyOf && others.length === 1) found = { ...others[0], ...told, isNullable: others.length < anyOf.length };
    else if (allOf?.length === 1) found = { ...allOf[0], ...told };
    else break;
  }
  return found;
}

const nullable = (made, isRequired) => ({ ...made, value: async () => (await made.value()) ?? (isRequired ? null : undefined) });

// A field for each member, or the whole as JSON.
function record(schema, start, definitions, depth, path) {
  const members = Object.entries(schema.properties).map(([name, each]) => {
    const isRequired = (schema.required ?? []).includes(name);
    return field(`${path}.${name}`, name, each, start?.[name] ?? resolved(each, definitions).default ?? (isRequired ? sketch(each, definitions) : undefined), isRequired, definitions, depth + 1);
  });
  const whole = h("textarea", { rows: "8", class: "code", spellcheck: "false", hidden: true, "aria-label": "JSON" });
  const grid = h("div", { class: "record-members" }, members.map((each) => each.element));
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: change }, "JSON");
  async function gathered() {
    const values = {};
    for (const each of members) {
      const value = await each.value();
      if (value !== undefined) values[each.name] = value;
    }
    return values;
  }
  async function change() {
    const isWhole = whole.hidden;
    if (isWhole) whole.value = JSON.stringify(await gathered().catch(() => start ?? {}), null, 2);
    whole.hidden = !isWhole;
    grid.hidden = isWhole;
    toggle.setAttribute("aria-pressed", String(isWhole));
  }
  const control = h("div", { id: unique("field"), role: "group" }, grid, whole, toggle);
  return { control, isGroup: true, isRecord: true, value: () => (whole.hidden ? gathered() : parsed(whole.value)) };
}

function choice(values, start, isRequired) {
  const control = h("select", {}, !isRequired && h("option", { value: "" }, "(left out)"),
    values.map((value, index) => h("option", { value: String(index), selected: value === start }, String(value))));
  return { control, value: () => (control.value === "" ? undefined : values[Number(control.value)]) };
}

function boolean(start, isRequired) {
  if (!isRequired && start === undefined) return choice([true, false], start, false);
  const control = h("input", { type: "checkbox", checked: Boolean(start) });
  return { control, value: () => control.checked };
}

function text(start, isRequired, schema) {
  const rows = String(start ?? "").length > 60 ? 5 : 2;
  const control = h("textarea", { rows: String(rows), maxlength: schema.maxLength ?? null });
  control.value = typeof start === "string" ? start : "";
  return { control, value: () => (control.value === "" && !isRequired ? undefined : control.value) };
}

function numeric(schema, start, isRequired) {
  const isInteger = schema.type === "integer" || INTEGER.test(schema.dtype ?? "");
  const limits = { min: schema.minimum ?? null, max: schema.maximum ?? null };
  const control = h("input", { type: "number", step: isInteger ? "1" : "any", ...stringed(limits), value: start === undefined || start === null ? "" : String(start) });
  let element = control;
  if (limits.min !== null && limits.max !== null) {
    const steps = isInteger ? 1 : (limits.max - limits.min) / 100;
    const slider = h("input", { type: "range", step: String(steps), ...stringed(limits), value: String(start ?? limits.min), "aria-label": "slider" });
    slider.addEventListener("input", () => (control.value = slider.value));
    control.addEventListener("input", () => (slider.value = control.value));
    element = h("div", { class: "row" }, control, slider);
  }
  return { control, element, value: () => scalar(control.value, isInteger, isRequired) };
}

const stringed = (values) => Object.fromEntries(Object.entries(values).map(([key, value]) => [key, value === null ? null : String(value)]));

function scalar(text, isInteger, isRequired) {
  const trimmed = text.trim();
  if (trimmed === "") {
    if (isRequired) throw new InputError("give a number");
    return undefined;
  }
  if (isInteger && /^[+-]?\d{16,}$/.test(trimmed)) return BigNumber(trimmed);
  if (Number.isNaN(Number(trimmed))) throw new InputError(`${trimmed} is no number`);
  return Number(trimmed);
}

// Integers of 64 bits are more exact than numbers of JavaScript; JSON.rawJSON keeps their digits where there is one.
const BigNumber = (text) => (JSON.rawJSON ? JSON.rawJSON(text) : Number(text));

function json(start, isRequired, schema, definitions) {
  const control = h("textarea", { rows: "6", class: "code", spellcheck: "false" });
  const shown = start ?? (isRequired ? sketch(schema, definitions) : undefined);
  control.value = shown === undefined ? "" : JSON.stringify(shown, null, 2);
  return { control, value: () => (control.value.trim() === "" && !isRequired ? undefined : parsed(control.value)) };
}

// A value with the members of a schema, as a start for typing.
function sketch(schema, definitions, depth = 0) {
  if (schema.$ref) return sketch(definitions[schema.$ref.split("/").pop()] ?? {}, definitions, depth + 1);
  if ("default" in schema) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return sketch(schema.anyOf[0], definitions, depth + 1);
  if (depth > 6) return null;
  if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([key, each]) => [key, sketch(each, definitions, depth + 1)]));
  if (schema.type === "array") return schema.items ? [sketch(schema.items, definitions, depth + 1)] : [];
  return { string: "text", integer: schema.minimum ?? 1, number: schema.minimum ?? 1, boolean: false }[schema.type] ?? null;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InputError(`this is no JSON (${error.message})`);
  }
}

function list(items, start, isRequired) {
  const isText = items.type === "string" && !items.contentEncoding;
  const control = h("textarea", { rows: "3", spellcheck: "false", class: isText ? "" : "code" });
  if (Array.isArray(start)) control.value = isText ? start.join("\n") : start.map((each) => JSON.stringify(each)).join(", ");
  control.placeholder = isText ? "one a line" : "numbers, with commas, spaces or line breaks";
  const value = () => {
    if (control.value.trim() === "") return isRequired ? [] : undefined;
    if (control.value.trim().startsWith("[")) return parsed(control.value);
    return isText ? control.value.replace(/\n$/, "").split("\n") : rowsOf(control.value).flat();
  };
  return { control, value };
}

// Numbers as they come from a spreadsheet, a file of CSV, or Python: a list of rows.
function rowsOf(text) {
  const lines = text.trim().split(/[\n;]+/).map((line) => line.trim()).filter(Boolean);
  return lines.map((line) => line.replace(/[[\],\t]+/g, " ").trim().split(/\s+/).map((each) => {
    if (/^(true|false)$/i.test(each)) return each.toLowerCase() === "true";
    if (/^[+-]?(nan|inf(inity)?)$/i.test(each)) return /nan/i.test(each) ? "NaN" : each.startsWith("-") ? "-Infinity" : "Infinity";
    return scalar(each, false, true);
  }));
}

function tensor(schema, start, isRequired) {
  const { shape, dtype } = schema;
  if (dtype === "BYTES") return shape.length === 1 && shape[0] === 1 ? text([start].flat()[0], isRequired, {}) : list({ type: "string" }, start, isRequired);
  if (dtype === "BOOL" && shape.length === 1 && shape[0] === 1) return boolean([start].flat()[0], isRequired);
  const size = shape.reduce((product, each) => product * each, 1);
  if (shape.length <= 1 && size === 1) return numeric(schema, [start].flat()[0], isRequired);
  const pasted = matrix(shape, start, isRequired);
  const isNumber = NUMBERS.includes(dtype) || INTEGER.test(dtype);
  const image = isNumber && imageShape(shape, start);
  if (image) return drawing(image, dtype, start, pasted, (message) => new InputError(message));
  if (isNumber && shape.length === 1 && size > 0 && size <= MOST_SLIDERS) return sliders(size, dtype, start, pasted);
  return pasted;
}

function matrix(shape, start, isRequired) {
  const control = h("textarea", { rows: String(shape.length > 1 ? 8 : 3), class: "code", spellcheck: "false", wrap: "off" });
  control.placeholder = "JSON, or numbers with commas, spaces or tabs, a row a line";
  if (Array.isArray(start)) control.value = shape.length === 2 ? start.map((row) => row.join(", ")).join("\n") : shape.length === 1 ? start.join(", ") : JSON.stringify(start);
  dropZone(control, async (file) => (control.value = await file.text()));
  const value = () => {
    const given = control.value.trim();
    if (given === "") {
      if (isRequired) throw new InputError("give numbers");
      return undefined;
    }
    if (given.startsWith("[")) return parsed(given);
    const rows = rowsOf(given);
    if (shape.length === 1) return rows.flat();
    if (shape.length === 2) return rows;
    throw new InputError("give nested lists of JSON");
  };
  return { control, value };
}

function sliders(size, dtype, start, pasted) {
  const values = Array.isArray(start) ? start : Array(size).fill(0);
  const most = Math.max(1, ...values.map((value) => 2 * Math.abs(value) || 0));
  const ranges = values.map((value, index) => h("input", {
    type: "range", min: String(-most), max: String(most), step: INTEGER.test(dtype) ? "1" : String(most / 100), value: String(value), "aria-label": `element ${index}`,
    oninput: () => (pasted.control.value = ranges.map((each) => Number(each.value)).join(", ")),
  }));
  if (!pasted.control.value) pasted.control.value = values.join(", ");
  return { ...pasted, element: h("div", {}, pasted.control, h("div", { class: "sliders" }, ranges)) };
}

function file(isRequired) {
  const control = h("input", { type: "file" });
  const element = h("div", { class: "drop" }, control, h("small", {}, "or drop a file here"));
  dropZone(element, (_, files) => {
    control.files = files;
    control.dispatchEvent(new Event("change", { bubbles: true }));
  });
  const value = async () => {
    const given = control.files[0];
    if (!given) {
      if (isRequired) throw new InputError("choose a file");
      return undefined;
    }
    return base64(given);
  };
  return { control, element, value, file: () => control.files[0]?.name ?? null };
}

export async function base64(blob) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new InputError("the file cannot be read"));
    reader.readAsDataURL(blob);
  });
  return url.slice(url.indexOf(",") + 1);
}
