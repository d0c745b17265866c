// Workers and log: states, errors, the end of the log, and the commands of operators.

import { ApiError, get, post } from "./api.js";
import { ago, bytes, clock, fill, h, number, openDialog, percent, put } from "./dom.js";
import { live } from "./live.js";

const PERIOD_MS = 2000;
const MOST_LINES = 1000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const GOOD = ["ready", "at zero"];
const BAD = ["failed", "stopped"];

export function show(main) {
  const workers = h("div");
  const models = h("div", { class: "commands" });
  const lines = h("ol", { class: "log", tabindex: "0", "aria-label": "Log" });
  const logState = h("p", { class: "hint", role: "status" });
  const level = h("select", { id: "level", onchange: filter }, LEVELS.map((each) => h("option", { selected: each === "INFO" }, each)));
  const search = h("input", { type: "search", id: "search", placeholder: "Search", oninput: filter, "aria-label": "Search the log" });
  const follow = h("input", { type: "checkbox", id: "follow", checked: true });
  const problem = h("p", { class: "error", role: "alert" });
  const done = h("p", { class: "told", role: "status" });
  let last = 0;
  let shownModels = "";
  let stopped = false;

  function filter() {
    for (const line of lines.children) line.hidden = !isShown(line);
    lines.scrollTop = lines.scrollHeight;
  }

  function isShown(line) {
    const enough = LEVELS.indexOf(line.dataset.level) >= LEVELS.indexOf(level.value);
    return enough && line.textContent.toLowerCase().includes(search.value.toLowerCase());
  }

  async function refreshWorkers() {
    if (live.needsToken) {
      fill(workers, h("p", { class: "hint" }, "The workers need a token: choose “Token” above."));
      return;
    }
    const found = await get("/pages/workers");
    if (found.workers === null) {
      fill(workers, h("p", { class: "hint" }, "The workers run elsewhere: this app knows the server's endpoints alone."));
      tellModels([]);
      return;
    }
    const used = Object.fromEntries((live.sample?.processes ?? []).map((each) => [each.pid, each]));
    fill(workers, found.workers.length ? workerTable(found.workers, used) : h("p", { class: "hint" }, "No models are bound."));
    tellModels(found.workers);
  }

  function tellModels(found) {
    const counts = new Map();
    for (const each of found) counts.set(each.model, [...(counts.get(each.model) ?? []), each]);
    const names = found.length ? [...counts.keys()] : Object.keys(live.sample?.models ?? {});
    const versions = (name) => (counts.get(name) ?? []).map(({ version }) => version);
    const key = JSON.stringify([names.map((name) => [name, versions(name), servedOf(name), (counts.get(name) ?? []).map(({ weights }) => weights)]), live.about?.operator]);
    if (key === shownModels) return;
    shownModels = key;
    fill(models, names.map((name) => modelCommands(name, counts.get(name) ?? [], live.about?.hasHost)));
  }

  function modelCommands(name, processes, hasHost) {
    const own = processes.filter((each) => each.kind !== "template");
    const count = h("input", { type: "number", min: "0", max: "64", step: "1", class: "short", value: String(own.length), "aria-label": `Workers of ${name}` });
    const does = (text, action) => h("button", { type: "button", "data-command": `${text} ${name}`, onclick: action }, text);
    const versions = [...new Set(own.map((each) => each.version))].sort((a, b) => a - b);
    const isScaled = versions.length === 1 && own.some((each) => each.scales); // all versions have as many workers
    const served = servedOf(name);
    const version = h("select", { "aria-label": `Version of ${name}` },
      h("option", { value: "" }, "as bound"), versions.map((each) => h("option", { value: String(each), selected: served.length === 1 && served[0] === String(each) }, `version ${each}`)));
    const serve = () => confirmed({ command: "serve", model: name, version: version.value ? Number(version.value) : null }, version.value
      ? `Requests get version ${version.value}. The other versions answer what they have, and refuse what comes for them.` : "The versions are served again that the program's version policy names.");
    return h("fieldset", { class: "row" }, h("legend", {}, name),
      isScaled && [count, does("Scale", () => command({ command: "scale", model: name, count: Number(count.value) }))],
      versions.length > 1 && [version, does("Serve", serve)],
      weightFields(name, own.at(-1)?.weights ?? {}, does),
      own.some((each) => each.kind === "process") && does("Restart", () => confirmed({ command: "restart", model: name }, "Each worker answers its requests first, and a new process takes its place.")),
      !hasHost && does("Load", () => command({ command: "load", model: name })),
      does("Unload", () => confirmed({ command: "unload", model: name }, hasHost ? "Its requests are answered first. It is served again when the program binds it again." : "The server refuses requests to it until it is loaded again.")));
  }

  // The shares of the models that a split passes requests on to.
  function weightFields(name, weights, does) {
    const fields = Object.entries(weights).map(([target, weight]) => [target, h("input", { type: "number", min: "0", step: "any", class: "short", value: String(weight), "aria-label": `Weight of ${target}` })]);
    const given = () => Object.fromEntries(fields.map(([target, field]) => [target, Number(field.value)]));
    return fields.length > 0 && [fields.map(([target, field]) => h("label", {}, `${target} `, field)), does("Weigh", () => command({ command: "weigh", model: name, weights: given() }))];
  }

  function confirmed(given, text) {
    const verb = given.command[0].toUpperCase() + given.command.slice(1);
    const dialog = openDialog(`${verb} ${given.model}${given.version ? `, version ${given.version}` : ""}?`, h("p", {}, text), h("div", { class: "row" },
      h("button", { type: "button", class: "primary", onclick: () => [dialog.close(), command(given)] }, verb),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  }

  async function command(given) {
    put(problem, "");
    if (!live.about?.operator && live.about?.hasOperatorToken) {
      window.dispatchEvent(new CustomEvent("asktoken", { detail: "This command needs the token." }));
      return;
    }
    put(done, `${given.command} ${given.model} …`);
    try {
      await post("/pages/commands", given);
      put(done, `${given.command} ${given.model}: done`);
      await refreshWorkers();
    } catch (error) {
      put(done, "");
      if (error instanceof ApiError && error.status === 401) window.dispatchEvent(new CustomEvent("asktoken", { detail: "This command needs the token." }));
      else put(problem, error.message);
    }
  }

  async function refreshLog() {
    if (!live.about?.operator) {
      put(logState, live.about?.hasOperatorToken === false ? "The log needs an access token, and neither the server nor the app has one." : "The log needs the server's access token: choose “Token” above.");
      return;
    }
    try {
      const { records } = await get(`/pages/log?after=${last}`);
      if (records === null) put(logState, "The log is that of the process that bound the models, which is elsewhere.");
      else addRecords(records);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      put(logState, error.message);
    }
  }

  function addRecords(records) {
    for (const each of records.filter(({ number }) => number > last)) { // two answers may have the same records
      last = each.number;
      const line = h("li", { "data-level": each.level }, h("time", {}, clock(each.time)), h("b", {}, each.level), h("i", {}, each.logger), h("span", {}, each.text));
      line.hidden = !isShown(line);
      lines.append(line);
    }
    while (lines.children.length > MOST_LINES) lines.firstChild.remove();
    if (records.length && follow.checked) lines.scrollTop = lines.scrollHeight;
    put(logState, `${number(lines.children.length)} ${lines.children.length === 1 ? "record" : "records"}: those of PyTriton's loggers that the program's logging lets through, at most the last ${number(MOST_LINES)}.`);
  }

  async function loop() {
    while (!stopped) {
      try {
        await Promise.all([refreshWorkers(), refreshLog()]);
      } catch {
        // the state says that there is no connection
      }
      await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
    }
  }

  const onToken = () => {
    refreshLog().catch(() => {});
    refreshWorkers().catch(() => {});
  };
  window.addEventListener("token", onToken);
  fill(main, h("div", { class: "head" }, h("h1", {}, "Workers and log")),
    h("section", { class: "panel" }, h("h2", {}, "Workers"), workers),
    h("section", { class: "panel" }, h("h2", {}, "Commands"), h("p", { class: "hint" }, "Commands need the server's access token."), problem, done, models),
    h("section", { class: "panel" }, h("h2", {}, "Log"),
      h("div", { class: "row" }, h("label", { for: "level" }, "From"), level, search, follow, h("label", { for: "follow" }, "follow")), logState, lines));
  loop();
  return () => {
    stopped = true;
    window.removeEventListener("token", onToken);
  };
}

// The versions that the server serves now, as texts.
function servedOf(name) {
  return (live.sample?.models[name]?.versions ?? []).filter(({ state }) => state === "READY").map(({ version }) => version);
}

// What became of the requests that a model passes on.
function countsOf({ counts }) {
  const texts = Object.entries(counts ?? {}).map(([name, count]) => `${name}: ${number(count)}`);
  return texts.length > 0 && h("p", { class: "hint" }, texts.join(", "));
}

function workerTable(found, used) {
  const cell = (label, ...content) => h("td", { "data-label": label }, content);
  const several = new Set(found.filter((each) => found.some((other) => other.model === each.model && other.version !== each.version)).map(({ model }) => model));
  const rows = found.map((each) => {
    const own = ["process", "template"].includes(each.kind) ? used[each.pid] : null;
    const state = GOOD.includes(each.state) ? "good" : BAD.includes(each.state) ? "bad" : "busy";
    const error = each.last_error === null ? h("span", { class: "hint" }, "needs the token") : each.last_error && h("details", {}, h("summary", {}, each.last_error.trim().split("\n").at(-1).slice(0, 80)), h("pre", { tabindex: "0" }, each.last_error));
    return h("tr", { "data-worker": each.name }, h("th", { scope: "row" }, each.name, several.has(each.model) && ` v${each.version}`), cell("State", h("span", { class: `badge ${state}` }, each.state), countsOf(each)),
      cell("Since", each.since ? ago(Date.now() / 1000 - each.since) : "–"), cell("Kind", each.instances > 1 ? `${each.kind} × ${each.instances}` : each.kind), cell("Host", each.host), cell("Process", each.pid ?? "–"),
      cell("In flight", each.batches ?? "–"),
      cell("Restarts", String(each.restarts)), cell("Memory", own || each.pss_bytes ? bytes(own ? own.memory : each.pss_bytes) : "–"), cell("CPU", own ? percent(own.cpu) : "–"), cell("Last error", error || "–"));
  });
  const heads = ["Worker", "State", "Since", "Kind", "Host", "Process", "In flight", "Restarts", "Memory", "CPU", "Last error"];
  return h("div", { class: "scroll" }, h("table", { class: "cards" }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)));
}
