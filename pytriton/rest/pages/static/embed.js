// One model on a page of its own, which other sites may show in a frame: no figures, no commands, no log.

import { asks, hasToken, setToken } from "./api.js";
import { fill, h } from "./dom.js";
import * as tryit from "./tryit.js";

const main = document.getElementById("main");
const name = decodeURIComponent(location.pathname.split("/").pop());
const { hash } = location; // such as #x=1: inputs, which the server does not see

// As people write a title: mood_of_text is "Mood of text".
const words = name.replace(/[_-]+/g, " ").trim();
const title = words ? words[0].toUpperCase() + words.slice(1) : name;
document.title = title;

function show() {
  tryit.show(main, name, new URLSearchParams(hash.replace(/^#\??/, "")), title);
}

// Callers of an app that asks for a token type it, or their key, once per visit.
function askKey() {
  const field = h("input", { type: "password", id: "key", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setToken(field.value);
    show();
  };
  fill(main, h("h1", {}, title), h("form", { class: "panel", onsubmit: submit }, h("label", { for: "key" }, "Key"),
    h("div", { class: "row" }, field, h("button", { type: "submit", class: "primary" }, "Use"))));
}

if ((asks("inference") || asks("metadata")) && !hasToken()) askKey();
else show();
