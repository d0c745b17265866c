// Calls of the app. The token is in this variable alone: it is typed once per visit, and is in no URL and no storage.

export const root = document.documentElement.dataset.root;
export const asks = (group) => document.documentElement.dataset.asks.split(" ").includes(group); // for a token
let token = "";

export class ApiError extends Error {
  constructor(status, message, error) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

export const hasToken = () => token !== "";
export function setToken(text) {
  token = text.trim();
}

export async function call(path, { method = "GET", body, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (token) all.Authorization = `Bearer ${token}`;
  const given = { method, headers: all, body, signal, credentials: "omit", cache: "no-store", redirect: "error" };
  const response = await fetch(root + path, given);
  if (response.ok) return response;
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // a proxy in front of the server has answered
  }
  const message = error?.message ?? `the answer has status ${response.status}`;
  throw new ApiError(response.status, message, error);
}

export const get = async (path, options) => (await call(path, options)).json();

export const post = (path, value, options = {}) =>
  call(path, {
    method: "POST",
    body: JSON.stringify(value),
    ...options,
    headers: { "Content-Type": "application/json", ...options.headers },
  });

// Server-sent events of a response: {event, data}. Comments are left out.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const found = rest.split(/\r?\n\r?\n/);
      rest = found.pop();
      for (const text of found) {
        const event = { event: "message", data: [] };
        for (const line of text.split(/\r?\n/)) {
          if (line.startsWith("event:")) event.event = line.slice(6).trim();
          if (line.startsWith("data:")) event.data.push(line.slice(5).replace(/^ /, ""));
        }
        if (event.data.length) yield { event: event.event, data: event.data.join("\n") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
