// A chat with a model that serves OpenAI's route for it.

import { fill, h, put } from "./dom.js";
import { field, openaiModels, openaiSnippets, sampling, streamText } from "./openai.js";
import { showCalls } from "./tryit.js";

export function show(main, name, query, title = null) {
  const messages = [];
  let abort = new AbortController();
  const log = h("ol", { class: "chat", "aria-label": "Conversation" });
  const text = h("textarea", { rows: "2", id: "chat-text", placeholder: "Message" });
  const system = h("textarea", { rows: "2", id: "chat-system", placeholder: "You are a helpful assistant." });
  const options = sampling();
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
    return { model: name, messages: [...start, ...messages], ...options.given() };
  }

  function tellCalls() {
    const given = request();
    if (given.messages.at(-1)?.role === "assistant") given.messages.pop();  // what was just called
    if (!given.messages.length || given.messages.at(-1).role === "system") given.messages.push({ role: "user", content: text.value || "Hello" });
    showCalls(calls, openaiSnippets("chat.completions", given, "delta.content"));
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
    let answer = "";
    try {
      await streamText("/v1/chat/completions", request(), signal, told, (piece) => {
        answer += piece;
        body.append(piece);
        log.scrollTop = log.scrollHeight;
      });
    } catch (error) {
      if (!signal.aborted) put(problem, error.message);
    } finally {
      send.disabled = false;
      stop.hidden = true;
    }
    if (answer) messages.push({ role: "assistant", content: answer });
    else body.closest("li").remove();
    tellCalls();
  }

  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      text.form.requestSubmit();
    }
  });
  fill(main, h("div", { class: "head" }, h("h1", {}, title ?? name), clear),
    h("div", { class: "panel" }, log, told, problem,
      h("form", { onsubmit: submit, class: "compose" }, h("label", { for: text.id, class: "hidden" }, "Message"), text, send, stop),
      h("details", {}, h("summary", {}, "Options"), h("div", { class: "options", onchange: tellCalls },
        field("System message", system), options.elements))),
    title === null && calls);
  openaiModels().then((names) => {
    if (!names.includes(name)) put(problem, `The app does not serve ${name} as a chat.`);
  }, (error) => put(problem, error.message));
  tellCalls();
  text.focus();
  return () => abort.abort();
}
