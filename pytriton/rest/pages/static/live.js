// The samples of the server as they come, and those of the last 15 minutes.

import { ApiError, asks, call, events, get, hasToken } from "./api.js";

const MOST = 900;
const RETRY_MS = 1000;
const SILENCE_MS = 8000; // samples come each second, and 2 s late from a server that does not answer

export const live = {
  about: null,
  sample: null,
  history: { models: {}, processes: {} },
  lostSince: null, // milliseconds since 1970
  needsToken: false,
  received: 0,
};
const listeners = new Set();
let running = null;

export function listen(listener) {
  listeners.add(listener);
  if (live.sample) listener();
  return () => listeners.delete(listener);
}

export function restart() {
  running?.abort();
  running = new AbortController();
  run(running.signal);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) running?.abort();
  else if (running) restart();
});

function tell() {
  for (const listener of [...listeners]) listener();
}

async function run(signal) {
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let silence = setTimeout(stop, SILENCE_MS);
    try {
      if (asks("statistics") && !hasToken()) throw new ApiError(401, "the figures need a token");
      live.about = await get("/pages/about", { signal: attempt.signal });
      live.history = await get("/pages/history", { signal: attempt.signal });
      const response = await call("/pages/live", { signal: attempt.signal });
      for await (const { event, data } of events(response)) {
        clearTimeout(silence);
        silence = setTimeout(stop, SILENCE_MS);
        if (event === "sample") take(JSON.parse(data));
      }
      if (live.sample) continue; // the app ends each stream after a minute
    } catch (error) {
      if (signal.aborted) return;
      live.needsToken = error instanceof ApiError && error.status === 401;
      if (live.needsToken) live.about = null;
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return;
    if (!live.needsToken) live.lostSince ??= Date.now();
    tell();
    if (live.needsToken) return; // until restart()
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function take(sample) {
  live.sample = sample;
  live.lostSince = null;
  live.needsToken = false;
  live.received += 1;
  for (const [name, model] of Object.entries(sample.models)) add("models", name, sample.time, model);
  for (const process of sample.processes) add("processes", process.name, sample.time, process);
  tell();
}

function add(kind, name, time, values) {
  const empty = () => Object.fromEntries(COLUMNS[kind].map((column) => [column, []]));
  const series = (live.history[kind][name] ??= empty());
  if (series.time.at(-1) >= time) return; // the history had it
  for (const column of COLUMNS[kind]) {
    series[column].push(column === "time" ? time : (values[column] ?? null));
    if (series[column].length > MOST) series[column].shift();
  }
}

const COLUMNS = {
  models: ["time", "rate", "failures", "refused", "p50", "p99", "mean", "queue", "compute", "batch", "pending"],
  processes: ["time", "memory", "cpu"],
};
