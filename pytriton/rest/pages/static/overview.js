// Overview: the server, its processes and its models.

import { get } from "./api.js";
import { LineChart, drawSparkline, sparkline } from "./chart.js";
import { ago, bytes, fill, h, milliseconds, number, percent, put } from "./dom.js";
import { listen, live } from "./live.js";
import { pipelines } from "./pipelines.js";

const RANGES = { "15 minutes": 900, "24 hours": 86400 };
const MINUTE_MS = 60000;
const MOST_LINES = 8;
const KINDS = { thread: "threads", process: "processes", remote: "remote" };

export function show(main) {
  const tiles = Object.fromEntries(["Server", "Requests/s", "Failures/s", "Refused/s", "p99", "Memory", "CPU"].map((name) => [name, tile(name)]));
  const charts = {
    rate: new LineChart("Requests per second"),
    latency: new LineChart("Latency, 99th percentile", milliseconds),
    queue: new LineChart("Time in the queue, mean", milliseconds),
    cpu: new LineChart("CPU", percent),
    memory: new LineChart("Memory", bytes, 2 ** 20),
  };
  const rows = new Map();
  const body = h("tbody");
  const empty = h("p", { class: "hint" }, "No models are loaded.");
  const processes = h("tbody");
  const graphs = pipelines();
  let range = 900;
  let day = null;
  const buttons = Object.entries(RANGES).map(([text, seconds]) =>
    h("button", { type: "button", "aria-pressed": String(seconds === range), onclick: (event) => choose(seconds, event.target) }, text));

  async function choose(seconds, button) {
    range = seconds;
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    await loadDay();
    update();
  }

  async function loadDay() {
    try {
      day = range > 900 && !live.needsToken ? await get("/pages/history?range=day") : null;
    } catch {
      day = null; // the state says that there is no connection
    }
  }

  function update() {
    const { sample } = live;
    if (live.needsToken) put(empty, "The models and their figures need a token. “Try it” lists the models.");
    if (!sample || !main.isConnected) return;
    put(empty, "No models are loaded.");
    const models = Object.entries(sample.models);
    const sum = (key) => models.reduce((total, [, model]) => total + (model[key] ?? 0), 0);
    const most = (key) => models.reduce((top, [, model]) => (model[key] === null ? top : Math.max(top ?? 0, model[key])), null);
    tiles.Server.set(sample.live ? (sample.ready ? "Ready" : "Not ready") : "Down", sample.live && sample.ready ? "good" : "bad");
    tiles["Requests/s"].set(number(sum("rate")));
    tiles["Failures/s"].set(number(sum("failures")), sum("failures") > 0 ? "bad" : "");
    const refused = Object.values(sample.refused).reduce((total, rate) => total + rate, 0);
    tiles["Refused/s"].set(number(refused), refused > 0 ? "bad" : "", Object.entries(sample.refused).map(([status, rate]) => `${status}: ${number(rate)}/s`).join(", "));
    tiles.p99.set(milliseconds(most("p99")));
    tiles.Memory.set(bytes(sample.processes.reduce((total, each) => total + each.memory, 0)));
    tiles.CPU.set(percent(sample.processes.reduce((total, each) => total + (each.cpu ?? 0), 0)));
    const history = day ?? live.history;
    const gap = day ? 200 : 25;
    const names = Object.keys(history.models).filter((name) => sample.models[name]).sort((a, b) => total(history.models[b]) - total(history.models[a]));
    const lines = (column) => names.slice(0, MOST_LINES).map((name) => ({ label: name, time: history.models[name].time, values: history.models[name][column] }));
    charts.rate.update(lines("rate"), range, gap);
    charts.latency.update(lines("p99"), range, gap);
    charts.queue.update(lines("queue"), range, gap);
    const ran = Object.entries(history.processes).slice(0, MOST_LINES);
    for (const column of ["cpu", "memory"]) {
      charts[column].update(ran.map(([label, each]) => ({ label, time: each.time, values: each[column] })), range, gap);
    }
    updateModels(sample, models);
    graphs.update();
    own.hidden = !sample.processes.length; // of a server elsewhere
    fill(processes, sample.processes.map((each) =>
      h("tr", {}, h("th", { scope: "row" }, each.name), cell("Process", String(each.pid)), cell("Memory", bytes(each.memory)), cell("CPU", percent(each.cpu)))));
  }

  function updateModels(sample, models) {
    empty.hidden = models.length > 0;
    for (const [name, row] of rows) {
      if (!sample.models[name]) {
        row.element.remove();
        rows.delete(name);
      }
    }
    for (const [name, model] of models) {
      if (!rows.has(name)) {
        rows.set(name, modelRow(name));
        body.append(rows.get(name).element);
      }
      rows.get(name).update(model, live.history.models[name]);
    }
  }

  const own = h("div", { class: "charts" }, charts.cpu.element, charts.memory.element,
    h("section", { class: "panel" }, h("h2", {}, "Processes"), h("table", { class: "processes" },
      h("thead", {}, h("tr", {}, ["Name", "Process", "Memory", "CPU"].map((text) => h("th", { scope: "col" }, text)))), processes)));
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Overview"), h("div", { class: "choice", role: "group", "aria-label": "Period" }, buttons)),
    h("div", { class: "tiles" }, Object.values(tiles).map((each) => each.element)),
    h("section", { class: "panel" }, h("h2", {}, "Models"), empty,
      h("div", { class: "scroll" }, h("table", { class: "models cards" },
        h("thead", {}, h("tr", {}, ["Model", "State", "Requests/s", "Last minute", "p50", "p99", "Mean", "Failures/s", "Refused/s", "Queued", "Batch", "Workers"].map((text) => h("th", { scope: "col" }, text)))),
        body)),
      h("p", { class: "hint" }, "p50 and p99 are those of requests over HTTP, where PyTriton's edge and app measure them. Refused are requests that these answered with a status from 400 to 498: values that do not fit, missing tokens, bodies that are too large; the tile counts those over /v2 and gRPC and those that reach no model, too. All other figures are the server's, for requests of every client.")),
    graphs.element,
    h("div", { class: "charts" }, charts.rate.element, charts.latency.element, charts.queue.element),
    own,
  );
  const stop = listen(update);
  const stopWorkers = watchWorkers(rows);
  const timer = setInterval(async () => {
    if (range > 900) await loadDay();
  }, MINUTE_MS);
  update();
  return () => {
    stop();
    stopWorkers();
    clearInterval(timer);
  };
}

const total = (series) => series.rate.reduce((sum, value) => sum + (value ?? 0), 0);
const cell = (label, ...content) => h("td", { "data-label": label }, content);

function tile(name) {
  const value = h("b", {}, "–");
  const element = h("div", { class: "tile", "data-tile": name }, h("span", {}, name), value);
  return {
    element,
    set(text, kind = "", details = "") {
      put(value, text);
      value.className = kind;
      element.title = details;
    },
  };
}

function modelRow(name) {
  const text = (label) => h("td", { "data-label": label, "data-figure": label }, "–");
  const cells = Object.fromEntries(["Requests/s", "p50", "p99", "Mean", "Failures/s", "Refused/s", "Queued", "Batch", "Workers"].map((label) => [label, text(label)]));
  const spark = sparkline({ time: [], values: [] }, 60, `Requests per second to ${name} in the last minute`);
  const state = cell("State");
  const element = h("tr", { "data-model": name },
    h("th", { scope: "row" }, h("a", { href: `#/try/${encodeURIComponent(name)}` }, name)),
    state, cells["Requests/s"], cell("Last minute", spark), ["p50", "p99", "Mean", "Failures/s", "Refused/s", "Queued", "Batch", "Workers"].map((label) => cells[label]));
  let shown = "";
  return {
    element,
    setWorkers: (value) => put(cells.Workers, value),
    update(model, history) {
      const states = model.versions.map((each) => `${each.version} ${each.state} ${each.reason}`).join();
      if (states !== shown) {
        shown = states;
        fill(state, model.versions.map((each) => h("span", { class: `badge ${each.state === "READY" ? "good" : each.state === "UNAVAILABLE" ? "bad" : "busy"}`, title: each.reason || null },
          `${each.state.toLowerCase()}${model.versions.length > 1 || each.version !== "1" ? ` v${each.version}` : ""}`)));
      }
      put(cells["Requests/s"], number(model.rate));
      put(cells.p50, milliseconds(model.p50));
      put(cells.p99, milliseconds(model.p99));
      put(cells.Mean, milliseconds(model.mean));
      put(cells["Failures/s"], number(model.failures));
      cells["Failures/s"].classList.toggle("bad", model.failures > 0);
      put(cells["Refused/s"], number(model.refused));
      cells["Refused/s"].classList.toggle("bad", model.refused > 0);
      put(cells.Queued, number(model.pending));
      put(cells.Batch, number(model.batch));
      if (history) drawSparkline(spark, { time: history.time, values: history.rate }, 60);
    },
  };
}

function workersText(workers) {
  const has = (state) => workers.filter((each) => each.state === state).length;
  if (!workers.length) return "–";
  if (has("at zero") === workers.length) return `at zero for ${ago(Date.now() / 1000 - Math.max(...workers.map((each) => each.since)))}`;
  const { kind } = workers[0];
  return `${has("ready")} of ${workers.length} ${workers.length > 1 ? KINDS[kind] : kind}`;
}

function watchWorkers(rows) {
  const ask = async () => {
    if (live.needsToken) return;
    try {
      const { workers } = await get("/pages/workers");
      for (const [name, row] of rows) {
        row.setWorkers(workersText(workers?.filter((each) => each.model === name && each.kind !== "template") ?? []));
      }
    } catch {
      // the state says that there is no connection
    }
  };
  const soon = setTimeout(ask, 300);
  const timer = setInterval(ask, 5000);
  return () => {
    clearTimeout(soon);
    clearInterval(timer);
  };
}
