// The frame of all pages: navigation, colours, token, and what the connection is like.

import { ApiError, asks, get, hasToken, post, root, setToken } from "./api.js";
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
  const [path, ...query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const page = PAGES[name] ?? overview;
  const argument = decoded(rest.join("/"));
  leave();
  fill($("nav"), MENU.map(([key, text]) => h("a", { href: `#/${key}`, "aria-current": PAGES[key] === page || (key === "try" && page === chat) ? "page" : null }, text)),
    !asks("metadata") && h("a", { href: `${root}/docs` }, "API")); // a browser sends no token with the address of a page
  document.title = `${argument || MENU.find(([key]) => PAGES[key] === page)?.[1] || "Chat"} – PyTriton`;
  fill($("main"));
  leave = page.show($("main"), argument, new URLSearchParams(query.join("?"))) ?? (() => {});
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no link of ours
  }
}

function tellState() {
  const { sample, lostSince, needsToken } = live;
  let [kind, text, banner] = ["busy", "Connecting", ""];
  if (needsToken && asks("metadata")) {
    [kind, text, banner] = hasToken() ? ["busy", "Token set", "The figures need another token: the server's access token."] : ["bad", "Token needed", "This app asks for an access token: choose “Token” above."];
  } else if (needsToken) {
    [kind, text, banner] = ["busy", "Token needed", "The figures need the server's access token: choose “Token” above. Models can be tried without it."];
  } else if (lostSince !== null) {
    const seconds = ago((Date.now() - lostSince) / 1000);
    [kind, text] = ["bad", "No connection"];
    banner = `No connection for ${seconds}; the figures are from before. Trying again every second.`;
  } else if (sample && !sample.live) {
    [kind, text] = ["bad", "Server is down"];
    banner = "The app answers, but its server does not: it has stopped, or is launched again. Requests get 503 meanwhile.";
  } else if (sample && !sample.ready) {
    [kind, text] = ["busy", "Not ready"];
  } else if (sample) {
    [kind, text, banner] = ["good", "Live", sample.problem];
  }
  $("state").className = `state ${kind}`;
  put($("state"), text);
  $("banner").hidden = !banner;
  put($("banner"), banner);
  document.body.classList.toggle("stale", lostSince !== null || (needsToken && live.sample !== null));
}

// The token

function askToken(message = "") {
  const field = h("input", { type: "password", id: "token-field", autocomplete: "off", required: true });
  const error = h("p", { class: "error", role: "alert" }, message);
  const submit = async (event) => {
    event.preventDefault();
    setToken(field.value);
    try {
      if (await isAccepted()) dialog.close();
      else put(error, "This token is not accepted.");
    } catch (problem) {
      put(error, problem.message);
      return;
    }
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

// Whether the token opens anything: one of callers opens the models, and not the figures.
async function isAccepted() {
  for (const [group, path] of [["statistics", "/pages/about"], ["metadata", "/pages/models"]]) {
    try {
      const found = await get(path);
      if (group === "statistics") live.about = found;
      if (asks(group) || live.about?.operator) return true;
    } catch (problem) {
      if (!(problem instanceof ApiError && problem.status === 401)) throw problem;
    }
  }
  return false;
}

// The address that `pytriton serve` prints has a code, which is given back for the token, once.
async function unlock(code) {
  history.replaceState(null, "", "#/");
  try {
    setToken((await (await post("/pages/unlock", { code })).json()).token);
    await isAccepted();
  } catch (problem) {
    askToken(problem.message);
  }
  restart();
  show();
  tellToken();
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
  if (location.hash.startsWith("#/unlock/")) return unlock(location.hash.slice("#/unlock/".length));
  show();
  $("main").focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
listen(tellState);
setInterval(tellState, 1000);
window.addEventListener("asktoken", (event) => askToken(event.detail));
tellState();
const code = location.hash.match(/^#\/unlock\/(.+)$/)?.[1];
if (code) {
  unlock(code);
} else {
  restart();
  show();
}
