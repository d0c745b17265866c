// Elements, and numbers as people read them.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(9)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Sets a text only if it differs: readers of the page are not told again, and a selection stays.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let numbers = 0;
export const unique = (name) => `${name}-${(numbers += 1)}`;

export const none = "–";

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return none;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return none;
  if (value >= 10000) return `${number(value / 1000)} s`;
  return `${number(value, value < 1 ? 2 : 3)} ms`;
}

export function bytes(value) {
  if (value === null || value === undefined) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) [value, index] = [value / 1024, index + 1];
  return `${number(value)} ${units[index]}`;
}

export const percent = (cores) => (cores === null || cores === undefined ? none : `${number(100 * cores, 2)} %`);

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${number(seconds / 3600, 2)} h`;
}

export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const area = h("textarea", { value: text, class: "hidden" }); // pages over plain HTTP have no clipboard
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    area.remove();
  }
  setTimeout(() => (button.textContent = before), 1500);
}

// Gives a file that is dropped on an element to a function, with the list of all.
export function dropZone(element, take) {
  element.addEventListener("dragover", (event) => {
    event.preventDefault();
    element.classList.add("dragged");
  });
  element.addEventListener("dragleave", () => element.classList.remove("dragged"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("dragged");
    const { files } = event.dataTransfer;
    if (files.length) take(files[0], files);
  });
}

export function openDialog(title, ...content) {
  const dialog = document.getElementById("dialog");
  fill(dialog, h("h2", { id: "dialog-title" }, title), content);
  dialog.showModal();
  return dialog;
}
