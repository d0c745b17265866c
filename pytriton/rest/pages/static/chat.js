// A chat with a model that serves OpenAI's route for it.

import { events, post, root } from "./api.js";
import { fill, h, milliseconds, number, put } from "./dom.js";
import { chatModels, showCalls } from "./tryit.js";
import { live } from "./live.js";
import { literal, quoted } from "./snippets.js";

const PATH = "/v1/chat/completions";

export function show(main, name) {
  const messages = [];
  let abort = new AbortController();
  const log = h("ol", { class: "chat", "aria-label": "Conversation" });
  const text = h("textarea", { rows: "2", id: "chat-text", placeholder: "Message" });
  const system = h("textarea", { rows: "2", id: "chat-system", placeholder: "You are a helpful assistant." });
  const temperature = h("input", { type: "number", id: "chat-temperature", min: "0", max: "2", step: "0.1", class: "short" });
  const most = h("input", { type: "number", id: "chat-most", min: "1", step: "1", class: "short" });
  const problem = h("p", { class: "error", role: "alert" });
  const told = h("p", { class: "told", role: "status" });
  const send = h("button", { type: "submit", class: "primary" }, "Send");
  const stop = h("button", { type: "button", hidden: true, onclick: () => abort.abort() }, "Stop");
  const clear = h("button", { type: "button", onclick: reset }, "New chat");
  const calls = h("section", { class: "panel calls", "aria-label": "The same call" });

  function reset() {
    abort.abort();
    messages.length = 0;
    fill(log);
    put(told, "");
    put(problem, "");
    tellCalls();
    text.focus();
  }

  function request() {
    const start = system.value.trim() ? [{ role: "system", content: system.value }] : [];
    const given = { model: name, messages: [...start, ...messages] };
    if (temperature.value !== "") given.temperature = Number(temperature.value);
    if (most.value !== "") given.max_tokens = Number(most.value);
    return given;
  }

  function tellCalls() {
    const given = request();
    if (given.messages.at(-1)?.role === "assistant") given.messages.pop();  // what was just called
    if (!given.messages.length || given.messages.at(-1).role === "system") given.messages.push({ role: "user", content: text.value || "Hello" });
    showCalls(calls, null, null, null, chatSnippets(given));
  }

  function bubble(role, content) {
    const body = h("div", { class: "content" }, content);
    log.append(h("li", { class: role }, h("b", {}, role === "user" ? "You" : name), body));
    log.scrollTop = log.scrollHeight;
    return body;
  }

  async function submit(event) {
    event.preventDefault();
    const content = text.value.trim();
    if (!content || send.disabled) return;
    messages.push({ role: "user", content });
    bubble("user", content);
    text.value = "";
    put(problem, "");
    tellCalls();
    abort = new AbortController();
    const { signal } = abort;
    send.disabled = true;
    stop.hidden = false;
    const body = bubble("assistant", "");
    const began = performance.now();
    let first = null;
    let usage = null;
    let answer = "";
    try {
      const response = await post(PATH, { ...request(), stream: true, stream_options: { include_usage: true } }, { signal });
      for await (const { data } of events(response)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        usage = chunk.usage ?? usage;
        const piece = chunk.choices?.[0]?.delta?.content ?? "";
        if (piece) first ??= performance.now() - began;
        answer += piece;
        body.append(piece);
        log.scrollTop = log.scrollHeight;
      }
    } catch (error) {
      if (!signal.aborted) put(problem, error.message);
    } finally {
      send.disabled = false;
      stop.hidden = true;
    }
    if (answer) messages.push({ role: "assistant", content: answer });
    else body.closest("li").remove();
    const seconds = (performance.now() - began) / 1000;
    const tokens = usage?.completion_tokens;
    const speed = tokens ? `, ${tokens} tokens, ${number(tokens / seconds)} tokens/s` : "";
    put(told, first === null ? "" : `First token after ${milliseconds(first)}, all in ${milliseconds(seconds * 1000)}${speed}`);
    tellCalls();
  }

  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      text.form.requestSubmit();
    }
  });
  const option = (label, control) => h("div", { class: "field" }, h("label", { for: control.id }, label), control);
  fill(main, h("div", { class: "head" }, h("h1", {}, name), clear),
    h("div", { class: "panel" }, log, told, problem,
      h("form", { onsubmit: submit, class: "compose" }, h("label", { for: text.id, class: "hidden" }, "Message"), text, send, stop),
      h("details", {}, h("summary", {}, "Options"), h("div", { class: "options", onchange: tellCalls },
        option("System message", system), option("Temperature", temperature), option("Most tokens", most)))),
    calls);
  chatModels().then((names) => {
    if (!names.includes(name)) put(problem, `The front does not serve ${name} as a chat.`);
  }, (error) => put(problem, error.message));
  tellCalls();
  text.focus();
  return () => abort.abort();
}

function chatSnippets(request) {
  const base = location.origin + root;
  const text = JSON.stringify({ ...request, stream: true }, null, 2);
  const asksToken = live.about?.asksToken;
  const options = Object.entries(request).filter(([key]) => key !== "messages" && key !== "model").map(([key, value]) => `\n    ${key}=${literal(value)},`);
  return {
    openai: `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key=${asksToken ? "TOKEN" : '"none"'})\nstream = client.chat.completions.create(\n    model="${request.model}",\n    messages=${literal(request.messages)},${options.join("")}\n    stream=True,\n)\nfor chunk in stream:\n    print(chunk.choices[0].delta.content or "", end="")`,
    curl: `curl -N ${base}${PATH} \\\n  ${asksToken ? '-H "Authorization: Bearer $TOKEN" \\\n  ' : ""}-H 'Content-Type: application/json' \\\n  -d ${quoted(text)}`,
    JavaScript: `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${base}/v1", apiKey: ${asksToken ? "token" : '"none"'} });\nconst stream = await client.chat.completions.create(${text});\nfor await (const chunk of stream) {\n  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}`,
  };
}
