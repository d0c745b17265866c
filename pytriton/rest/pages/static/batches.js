// Batches: what the server's batcher makes of the requests, to tune its delay and its sizes by eye.

import { get } from "./api.js";
import { LineChart, bars, highestOf, s } from "./chart.js";
import { clock, fill, h, milliseconds, number, put } from "./dom.js";
import { listen, live } from "./live.js";

const PERIOD_MS = 1000;
const ROW = 7;
const SPARSE = 20; // times the median duration: over a longer time, bars of its length are too short to read
const SAMPLE_S = 11; // the longest time from a request to the sample that counts it

const REASONS = { worker_idle: "a worker was free", full: "full", latency_target: "more would be late", preferred_size: "preferred size", shape_changed: "the next has another shape", delay: "delay is over", repeated: "alone, after a failure" };

export function show(main, name) {
  const picker = h("select", { "aria-label": "Model", onchange: () => (location.hash = `#/batches/${encodeURIComponent(picker.value)}`) });
  const settings = h("p", { class: "lead" });
  const sizes = h("div");
  const sizesHint = h("p", { class: "hint" });
  const reasons = h("div");
  const learned = h("div");
  const since = h("input", { type: "checkbox", id: "since" });
  const times = new LineChart("Time of a request in the server, mean", milliseconds);
  const batch = new LineChart("Rows in a batch, mean");
  const falls = h("div", { class: "waterfall" });
  const fallsHint = h("p", { class: "told" });
  const asTime = ["by length", "by time"].map((text, index) => h("button", { type: "button", onclick: () => [(byTime = index === 1), tellRequests(requested)] }, text));
  let byTime = null; // null: what can be read
  let requested = [];
  let model = name;
  let start = null;
  let described = [];
  let stopped = false;

  since.addEventListener("change", () => {
    start = null;
    refresh();
  });

  function update() {
    if (!live.sample) return;
    const names = Object.keys(live.sample.models);
    if (!names.includes(model) && !name) model = busiest(names);
    if (names.join() !== [...picker.options].map((each) => each.value).join() || picker.value !== model) {
      fill(picker, names.map((each) => h("option", { value: each, selected: each === model }, each)));
    }
    const series = live.history.models[model];
    if (!series) return;
    const of = (label, column) => ({ label, time: series.time, values: series[column] });
    times.update([of("compute", "compute"), of("queue", "queue"), of("whole", "mean")], 900);
    batch.update([of("rows", "batch")], 900);
  }

  const busiest = (names) => names.toSorted((a, b) => live.sample.models[b].total - live.sample.models[a].total)[0] ?? "";

  async function refresh() {
    if (!model || live.needsToken) return;
    let found;
    try {
      if (!described.some((each) => each.name === model)) described = await get("/pages/models");
      found = await get(`/pages/batches?model=${encodeURIComponent(model)}`);
    } catch {
      return; // the state says that there is no connection
    }
    if (!main.isConnected) return;
    tellSettings(described.find((each) => each.name === model));
    start ??= new Map(since.checked ? found.sizes.map((each) => [each.rows, each]) : []);
    tellSizes(found.sizes.map((each) => minus(each, start.get(each.rows))).filter((each) => each.count > 0));
    tellReasons(found.reasons);
    tellLearned(found.learned, found.refused);
    tellRequests(found.requests);
  }

  function tellSettings(each) {
    if (!each) return;
    const parts = [!each.batching ? "This model has no batching: the server calls it once for each request." : `Batches of up to ${each.max_batch_size} rows`,
      each.batching && !each.latency_target && (each.queue_delay_us === null ? "no dynamic batcher" : `max_queue_delay_microseconds ${each.queue_delay_us}`),
      each.latency_target && `latency target ${milliseconds(each.latency_target[0])} for ${number(100 * each.latency_target[1])} % of the answers; a batch may take half of that`,
      each.max_batch_cost !== null && `max_batch_cost ${each.max_batch_cost}`,
      each.preferred.length > 0 && `preferred_batch_size ${each.preferred.join(", ")}`];
    put(settings, parts.filter(Boolean).join(" · "));
  }

  function tellSizes(found) {
    const calls = found.reduce((sum, each) => sum + each.count, 0);
    const most = Math.max(...found.map((each) => each.count), 0);
    const rows = found.map((each) => {
      const mean = (1000 * each.seconds) / each.count;
      return { label: `${each.rows}`, value: each.count, text: `${each.count.toLocaleString("en")} · ${milliseconds(mean)} · ${number((1000 * each.rows) / mean)} rows/s` };
    });
    fill(sizes, rows.length ? bars(rows, most, "Batch sizes") : h("p", { class: "hint" }, "No batches yet."));
    const text = `${calls.toLocaleString("en")} batches. Each row: number of rows in a batch; how many batches had it; mean compute time; rows per second of one instance at that size.`;
    put(sizesHint, calls ? text : "");
  }

  function tellReasons(found) {
    const rows = Object.entries(found).map(([reason, count]) => ({ label: REASONS[reason] ?? reason, value: count, text: count.toLocaleString("en") }));
    fill(reasons, rows.length ? [h("h2", {}, "Why batches left the queue"), bars(rows, Math.max(...rows.map((each) => each.value)), "Reasons")] : []);
  }

  function tellLearned(points, refused) {
    const most = Math.max(...points.map((each) => each.seconds));
    const rows = points.map((each) => ({ label: `${each.rows}`, value: each.seconds, text: milliseconds(1000 * each.seconds) }));
    fill(learned, rows.length ? [h("h2", {}, "Learned times"), bars(rows, most, "Learned times"),
      h("p", { class: "hint" }, `Time of a batch of so many rows, and less than twice as many, as the latency target has learned it. ${refused.toLocaleString("en")} requests were refused, as their answers would have been late.`)] : []);
  }

  function tellRequests(requests) {
    requested = requests;
    const isByTime = byTime ?? isDense(requests);
    asTime.forEach((each, index) => each.setAttribute("aria-pressed", String(isByTime === (index === 1))));
    fill(falls, requests.length ? waterfall(requests, live.history.models[model], isByTime) : h("p", { class: "hint" }, "No requests over HTTP yet."));
    put(fallsHint, requests.length ? `${requests.length} requests, the last answered at ${clock(requests.at(-1).end)}.` : "");
  }

  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Batches"), picker), settings,
    h("div", { class: "charts two" },
      h("section", { class: "panel" }, h("h2", {}, "Batch sizes"), h("div", { class: "row" }, since, h("label", { for: "since" }, "only from now on")), sizes, sizesHint, reasons, learned),
      h("div", {}, times.element, batch.element)),
    h("section", { class: "panel" }, h("div", { class: "head" }, h("h2", {}, "The last hundred requests"), h("div", { class: "choice", role: "group", "aria-label": "Order" }, asTime)), fallsHint, falls,
      h("p", { class: "legend" }, h("span", {}, h("i", { class: "key c1" }), "queue"), h("span", {}, h("i", { class: "key c0" }), "compute"), h("span", {}, h("i", { class: "key rest" }), "around the server: HTTP, JSON, network"), h("span", {}, h("i", { class: "key failed" }), "failed")),
      h("p", { class: "hint" }, "The begin and the end of each bar are measured by the edge, from the request's headers to the end of the answer. How a bar is divided is not: the server tells no times of single requests, so queue and compute are the means of the server's statistics in the second in which the request was answered. By time, requests that were answered together end at the same place; by length, all begin at the left, the last at the bottom.")));
  const stop = listen(update);
  const loop = async () => {
    while (!stopped) {
      await refresh();
      await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
    }
  };
  loop();
  return () => {
    stopped = true;
    stop();
  };
}

const minus = (each, before) => (before ? { ...each, count: each.count - before.count, seconds: each.seconds - before.seconds } : each);

// Whether bars over the time of all requests are long enough to read.
function isDense(requests) {
  const durations = requests.map((each) => each.duration).sort((a, b) => a - b);
  const span = 1000 * (Math.max(...requests.map((each) => each.end)) - Math.min(...requests.map((each) => each.end)));
  return span <= SPARSE * (durations[durations.length >> 1] ?? 0);
}

function waterfall(requests, series, byTime) {
  const spans = requests.map((each) => ({ ...each, start: 1000 * each.end - each.duration })).sort((a, b) => a.start - b.start);
  const left = spans[0].start;
  const most = byTime ? Math.max(...spans.map((each) => 1000 * each.end)) - left : highestOf(spans.map((each) => each.duration));
  const width = 1000;
  const height = spans.length * ROW;
  const x = (time_ms) => Math.min(width, (time_ms / (most || 1)) * width);
  const parts = spans.map((each, index) => {
    const { queue, compute } = means(series, each.end);
    const whole = Math.max(each.duration, queue + compute);
    const begin = byTime ? each.start - left : 0;
    const before = byTime ? (each.duration * (whole - queue - compute)) / whole / 2 : 0;
    const failed = each.status >= 400 ? " failed" : "";
    const bar = (kind, from, size, least = 0) => s("rect", { class: `${kind}${failed}`, x: x(from), y: index * ROW, width: Math.max(least, x(from + size) - x(from)), height: ROW - 2 });
    const title = s("title", {}, `${clock(each.start / 1000)}: ${milliseconds(each.duration)}, status ${each.status}`);
    const [waits, works] = [(each.duration * queue) / whole, (each.duration * compute) / whole];
    return s("g", {}, title, bar("rest", begin, each.duration, 1.5), bar("queue", begin + before, waits), bar("compute", begin + before + waits, works));
  });
  const longer = byTime ? 0 : spans.filter((each) => each.duration > most).length;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `Bars of ${spans.length} requests ${byTime ? "within" : "of up to"} ${milliseconds(most)}` });
  svg.style.height = `${height}px`;
  svg.append(...parts);
  return [svg, h("p", { class: "axis" }, h("span", {}, "0"), h("span", {}, milliseconds(most / 2)), h("span", {}, milliseconds(most))),
    longer > 0 && h("p", { class: "hint" }, `${longer} took longer than this axis, up to ${milliseconds(Math.max(...spans.map((each) => each.duration)))}.`)];
}

function means(series, time) {
  const index = series ? series.time.findIndex((each, at) => each >= time - 1 && series.compute[at] !== null) : -1;
  if (index < 0 || series.time[index] > time + SAMPLE_S) return { queue: 0, compute: 0 };
  return { queue: series.queue[index] ?? 0, compute: series.compute[index] ?? 0 };
}
