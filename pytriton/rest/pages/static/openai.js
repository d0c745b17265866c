// Models that serve OpenAI's routes: streams of text, the same call, and the forms of completion and embedding models.

import { ApiError, asks, events, get, post, root } from "./api.js";
import { fill, h, milliseconds, number, put, unique } from "./dom.js";
import { InputError } from "./form.js";
import { literal, quoted } from "./snippets.js";

const SHOWN = 8; // numbers of a vector

// Names of the models that the app serves so.
export async function openaiModels() {
  try {
    const { data } = await get("/v1/models");
    return data.map((each) => each.id);
  } catch (error) {
    if (error instanceof ApiError && error.status !== 401) return [];
    throw error;
  }
}

// Gives each piece of text to a function, and tells at the end how long it took, also if it was stopped.
export async function streamText(path, request, signal, told, take) {
  const began = performance.now();
  let [first, usage] = [null, null];
  try {
    const response = await post(path, { ...request, stream: true, stream_options: { include_usage: true } }, { signal });
    for await (const { data } of events(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      const piece = choice?.delta?.content ?? choice?.text ?? "";
      if (piece) first ??= performance.now() - began;
      take(piece);
    }
  } finally {
    const seconds = (performance.now() - began) / 1000;
    const tokens = usage?.completion_tokens;
    const speed = tokens ? `, ${tokens} tokens, ${number(tokens / seconds)} tokens/s` : "";
    put(told, first === null ? "" : `First token after ${milliseconds(first)}, all in ${milliseconds(seconds * 1000)}${speed}`);
  }
}

// The call of a method such as chat.completions; piece is what a chunk has, null for an answer that is no stream.
export function openaiSnippets(method, request, piece) {
  const base = location.origin + root;
  const asksToken = asks("inference");
  const body = piece ? { ...request, stream: true } : request;
  const text = JSON.stringify(body, null, 2);
  const given = Object.entries(body).map(([key, value]) => `\n    ${key}=${literal(value)},`).join("");
  const python = piece ? `stream = client.${method}.create(${given}\n)\nfor chunk in stream:\n    print(chunk.choices[0].${piece} or "", end="", flush=True)` : `answer = client.${method}.create(${given}\n)\nprint([each.embedding for each in answer.data])`;
  const script = piece ? `const stream = await client.${method}.create(${text});\nfor await (const chunk of stream) {\n  process.stdout.write(chunk.choices[0]?.${piece.replace(".", "?.")} ?? "");\n}` : `const answer = await client.${method}.create(${text});\nconsole.log(answer.data.map((each) => each.embedding));`;
  return {
    openai: `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key=${asksToken ? "TOKEN" : '"none"'})\n${python}`,
    curl: `curl${piece ? " -N" : ""} ${base}/v1/${method.replace(".", "/")} \\\n  ${asksToken ? '-H "Authorization: Bearer $TOKEN" \\\n  ' : ""}-H 'Content-Type: application/json' \\\n  -d ${quoted(text)}`,
    JavaScript: `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${base}/v1", apiKey: ${asksToken ? "token" : '"none"'} });\n${script}`,
  };
}

export const field = (label, control) => h("div", { class: "field" }, h("label", { for: control.id }, label), control);

// Inputs for the options that chats and completions share, and what of them is given.
export function sampling() {
  const numeric = (limits) => h("input", { type: "number", id: unique("option"), class: "short", ...limits });
  const [temperature, most] = [numeric({ min: "0", max: "2", step: "0.1" }), numeric({ min: "1", step: "1" })];
  const given = () => ({
    ...(temperature.value !== "" && { temperature: Number(temperature.value) }),
    ...(most.value !== "" && { max_tokens: Number(most.value) }),
  });
  return { elements: [field("Temperature", temperature), field("Most tokens", most)], given };
}

// The form of a completion or an embedding model: its elements, the same call, and how the answer is shown.
export const openaiForm = (model) => (model.kinds.includes("embedding") ? embedding(model) : completion(model));

function completion(model) {
  const text = h("textarea", { rows: "5", id: unique("text"), value: "Once upon a time" });
  const options = sampling();
  const request = () => ({ model: model.name, prompt: text.value, ...options.given() });
  return {
    elements: [field("Prompt", text), ...options.elements],
    calls: () => openaiSnippets("completions", request(), "text"),
    async answer(signal, told, output) {
      const shown = h("p", { class: "text", "aria-live": "polite" });
      fill(output, shown);
      await streamText("/v1/completions", request(), signal, told, (piece) => shown.append(piece));
    },
  };
}

function embedding(model) {
  const text = h("textarea", { rows: "5", id: unique("text"), value: "A cat sleeps on the sofa.\nA kitten naps on the couch.\nThe stock market fell." });
  const request = () => ({ model: model.name, input: text.value.split("\n").filter((line) => line.trim()) });
  return {
    elements: [field("Texts", text), h("small", {}, "one a line")],
    calls: () => openaiSnippets("embeddings", request(), null),
    async answer(signal, told, output) {
      const given = request();
      if (!given.input.length) throw new InputError("give a text");
      const began = performance.now();
      const { data } = await (await post("/v1/embeddings", given, { signal })).json();
      put(told, `Answered in ${milliseconds(performance.now() - began)}`);
      fill(output, vectors(given.input, data.map((each) => each.embedding)));
    },
  };
}

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

function vectors(texts, found) {
  const start = (vector) => `${vector.slice(0, SHOWN).map((value) => number(value)).join(", ")}${vector.length > SHOWN ? ", …" : ""}`;
  const head = (text, scope, kind = null) => h("th", { scope, class: kind }, text);
  return [
    h("p", {}, `${found[0].length} dimensions`),
    h("ol", { class: "list" }, found.map((vector) => h("li", {}, start(vector)))),
    found.length > 1 && [h("h3", {}, "Cosine similarity"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cosine similarity" },
      h("table", { class: "data" },
        h("thead", {}, h("tr", {}, head("Text", "col"), found.map((_, index) => head(String(index + 1), "col", "n")))),
        h("tbody", {}, found.map((a, index) => h("tr", {}, head(`${index + 1}. ${texts[index]}`, "row"), found.map((b) => h("td", { class: "n" }, number(cosine(a, b)))))))))],
  ];
}
