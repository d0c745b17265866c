// The frame of all pages: navigation, colours, token, and what the connection is like.

import { get, hasToken, setToken } from "./api.js";
import { ago, fill, h, openDialog, put } from "./dom.js";
import { listen, live, restart } from "./live.js";
import * as batches from "./batches.js";
import * as chat from "./chat.js";
import * as overview from "./overview.js";
import * as tryit from "./tryit.js";
import * as workers from "./workers.js";

const PAGES = { "": overview, try: tryit, chat, batches, workers };
const MENU = [["", "Overview"], ["try", "Try it"], ["batches", "Batches"], ["workers", "Workers and log"]];
const THEMES = ["auto", "light", "dark"];

const $ = (id) => document.getElementById(id);
let leave = () => {};

function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const page = PAGES[name] ?? overview;
  const argument = decodeURIComponent(rest.join("/"));
  leave();
  fill($("nav"), MENU.map(([key, text]) => h("a", { href: `#/${key}`, "aria-current": PAGES[key] === page || (key === "try" && page === chat) ? "page" : null }, text)));
  document.title = `${argument || MENU.find(([key]) => PAGES[key] === page)?.[1] || "Chat"} – PyTriton`;
  fill($("main"));
  leave = page.show($("main"), argument) ?? (() => {});
}

function tellState() {
  const { sample, lostSince, needsToken } = live;
  let [kind, text, banner] = ["busy", "Connecting", ""];
  if (needsToken) {
    [kind, text, banner] = ["bad", "Token needed", "This front asks for an access token: choose “Token” above."];
  } else if (lostSince !== null) {
    const seconds = ago((Date.now() - lostSince) / 1000);
    [kind, text] = ["bad", "No connection"];
    banner = `No connection for ${seconds}; the figures are from before. Trying again every second.`;
  } else if (sample && !sample.live) {
    [kind, text] = ["bad", "Server is down"];
    banner = "The front answers, but its server does not: it has stopped, or is launched again. Requests get 503 meanwhile.";
  } else if (sample && !sample.ready) {
    [kind, text] = ["busy", "Not ready"];
  } else if (sample) {
    [kind, text, banner] = ["good", "Live", sample.problem];
  }
  $("state").className = `state ${kind}`;
  put($("state"), text);
  $("banner").hidden = !banner;
  put($("banner"), banner);
  document.body.classList.toggle("stale", lostSince !== null || needsToken);
}

// The token

function askToken(message = "") {
  const field = h("input", { type: "password", id: "token-field", autocomplete: "off", required: true });
  const error = h("p", { class: "error", role: "alert" }, message);
  const submit = async (event) => {
    event.preventDefault();
    setToken(field.value);
    try {
      live.about = await get("/pages/about");
    } catch (problem) {
      put(error, problem.message);
      return;
    }
    if (live.about.operator || (live.about.allowed && live.about.asksToken)) dialog.close();
    else put(error, "This token is not accepted.");
    restart();
    show();
    tellToken();
  };
  const forget = () => {
    setToken("");
    dialog.close();
    restart();
    tellToken();
  };
  const dialog = openDialog(
    "Access token",
    h("p", {}, "Commands and the log need the server's access token. A token stays in this page until you close or reload it."),
    h("form", { onsubmit: submit },
      h("label", { for: "token-field" }, "Token"), field, error,
      h("div", { class: "row" },
        h("button", { type: "submit", class: "primary" }, "Use"),
        hasToken() && h("button", { type: "button", onclick: forget }, "Forget"),
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))),
  );
  field.focus();
}

function tellToken() {
  put($("token"), live.about?.operator ? "Operator" : hasToken() ? "Token set" : "Token");
  window.dispatchEvent(new Event("token"));
}

// Colours

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-label", `Colours: ${theme}`);
  $("theme").title = `Colours: ${theme}`;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // storage may be off
  }
}

let theme = "auto";
try {
  theme = localStorage.getItem("theme") ?? "auto";
} catch {
  // storage may be off
}
setTheme(THEMES.includes(theme) ? theme : "auto");
$("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
$("token").addEventListener("click", () => askToken());
window.addEventListener("hashchange", () => {
  show();
  $("main").focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
listen(tellState);
setInterval(tellState, 1000);
window.addEventListener("asktoken", (event) => askToken(event.detail));
tellState();
restart();
show();
