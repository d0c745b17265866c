// Pictures as inputs: drawn with a pen, or a file; as an array of numbers, or as a file of PNG.

import { dropZone, h, unique } from "./dom.js";

const SIDE = 280;
const LEAST = 6; // smaller arrays are no pictures
const CHANNELS = [1, 3];
const DRAWING = "drawing.png";
const LUMINANCE = [0.299, 0.587, 0.114];

// The size of the picture that an array of a shape can hold; null if it can hold none.
export function imageShape(shape, example) {
  const known = shape.map((size, axis) => (size === -1 ? axisSize(example, axis) : size));
  const [a, b, c] = known;
  if (known.length === 2 && a >= LEAST && b >= LEAST) return { height: a, width: b, channels: 0 };
  if (known.length !== 3) return null;
  if (CHANNELS.includes(c) && a >= LEAST && b >= LEAST) return { height: a, width: b, channels: c, isLast: true };
  if (CHANNELS.includes(a) && b >= LEAST && c >= LEAST) return { height: b, width: c, channels: a, isLast: false };
  return null;
}

function axisSize(value, axis) {
  let found = value;
  for (let index = 0; index < axis; index += 1) found = found?.[0];
  return Array.isArray(found) ? found.length : 0;
}

// A canvas to draw on, with the keyboard's way round it: a file.
function pad(background, ink) {
  const canvas = h("canvas", { width: SIDE, height: SIDE, class: "pad", role: "img", "aria-label": "Drawing; a file can take its place" });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const clear = () => {
    context.fillStyle = background;
    context.fillRect(0, 0, canvas.width, canvas.height);
    canvas.dataset.drawn = "";
  };
  const position = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [((event.clientX - left) / width) * canvas.width, ((event.clientY - top) / height) * canvas.height];
  };
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = position(event);
    line(last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last) line(position(event));
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (last = null));
  function line(to) {
    Object.assign(context, { strokeStyle: ink, lineWidth: canvas.width / 9, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...to);
    context.stroke();
    last = to;
    canvas.dataset.drawn = "yes";
  }
  async function load(file) {
    const picture = await createImageBitmap(file);
    clear();
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.dataset.drawn = "yes";
  }
  clear();
  return { canvas, context, clear, load };
}

function chooser(load, label) {
  const control = h("input", { type: "file", accept: "image/*", "aria-label": label });
  control.addEventListener("change", () => control.files[0] && load(control.files[0]));
  return control;
}

// An input that is an array: as a drawing, a file, or numbers.
export function drawing(image, dtype, example, pasted, error) {
  const { canvas, context, clear, load } = pad("#000", "#fff");
  canvas.height = Math.round((SIDE * image.height) / image.width);
  clear();
  const most = Math.max(0, ...(Array.isArray(example) ? example.flat(3) : []));
  const scale = h("input", { type: "number", step: "any", min: "0", id: unique("scale"), class: "short", value: String(most > 1 ? nice(most) : dtype === "UINT8" ? 255 : 1) });
  const inverted = h("input", { type: "checkbox", id: unique("inverted") });
  const take = (file) => load(file).then(() => use("draw"), () => (told.textContent = "This file is no picture."));
  const choose = chooser(take, "Picture");
  const told = h("small", { role: "status" });
  const drawn = h("div", {}, canvas,
    h("div", { class: "row" }, h("button", { type: "button", onclick: clear }, "Clear"), choose),
    h("div", { class: "row" }, h("label", { for: scale.id }, "White is"), scale, inverted, h("label", { for: inverted.id }, "dark on light")), told);
  dropZone(drawn, take);
  const tabs = { draw: "Draw", numbers: "Numbers" };
  const panels = { draw: drawn, numbers: pasted.control };
  pasted.control.setAttribute("aria-label", "Numbers");
  const buttons = Object.fromEntries(Object.entries(tabs).map(([key, text]) => [key, h("button", { type: "button", onclick: () => use(key) }, text)]));
  let used = "";
  function use(key) {
    used = key;
    for (const [each, panel] of Object.entries(panels)) {
      panel.hidden = each !== key;
      buttons[each].setAttribute("aria-pressed", String(each === key));
    }
  }
  if (Array.isArray(example)) {
    paint(canvas, context, example, image, Number(scale.value));
    canvas.dataset.drawn = "example";
  }
  use("draw");
  const control = h("div", { class: "drawing", id: unique("field"), role: "group" }, h("div", { class: "choice" }, Object.values(buttons)), drawn, pasted.control);
  const value = () => {
    if (used === "numbers") return pasted.value();
    if (canvas.dataset.drawn === "example") return example;
    if (!canvas.dataset.drawn) throw error("draw something, or choose a picture");
    return pixels(canvas, image, Number(scale.value), inverted.checked, /INT/.test(dtype));
  };
  return { control, value, isGroup: true };
}

const nice = (most) => [1, 15, 16, 100, 255, 256, 65535].find((each) => each >= most) ?? most;

function pixels(canvas, { width, height, channels, isLast }, scale, isInverted, isInteger) {
  const small = h("canvas", { width, height });
  const context = small.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(canvas, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const of = (share) => {
    const scaled = (isInverted ? 1 - share : share) * scale;
    return isInteger ? Math.round(scaled) : Number(scaled.toPrecision(4));
  };
  const color = (x, y, channel) => data[4 * (y * width + x) + channel] / 255;
  const gray = (x, y) => LUMINANCE.reduce((sum, weight, channel) => sum + weight * color(x, y, channel), 0);
  const plane = (pick) => Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => pick(x, y)));
  if (channels === 0) return plane((x, y) => of(gray(x, y)));
  const planes = Array.from({ length: channels }, (_, channel) => (x, y) => of(channels === 1 ? gray(x, y) : color(x, y, channel)));
  if (!isLast) return planes.map((pick) => plane(pick));
  return plane((x, y) => planes.map((pick) => pick(x, y)));
}

// Shows an array as a picture.
export function paint(canvas, context, values, { width, height, channels, isLast }, most) {
  const small = h("canvas", { width, height });
  const data = new ImageData(width, height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        const used = channels === 3 ? channel : 0;
        const value = channels === 0 ? values[y][x] : isLast ? values[y][x][used] : values[used][y][x];
        data.data[4 * (y * width + x) + channel] = (255 * value) / (most || 1);
      }
      data.data[4 * (y * width + x) + 3] = 255;
    }
  }
  small.getContext("2d").putImageData(data, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = true;
}

// An input that is a file of an image: one that was chosen, or a drawing as PNG.
export function pictureFile(isRequired) {
  const { canvas, context, clear } = pad("#fff", "#000");
  let chosen = null;
  async function take(file) {
    chosen = file;
    try {
      const picture = await createImageBitmap(file);
      canvas.height = Math.max(1, Math.round((SIDE * picture.height) / picture.width));
      context.drawImage(picture, 0, 0, canvas.width, canvas.height);
      told.textContent = `${file.name}, ${picture.width} × ${picture.height}`;
      canvas.dataset.drawn = "yes";
    } catch {
      told.textContent = `${file.name}: this browser cannot show it`;
    }
  }
  const choose = chooser(take, "Picture");
  const told = h("small", { role: "status" });
  const save = () => canvas.toBlob((blob) => {
    const link = h("a", { href: URL.createObjectURL(blob), download: DRAWING });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  const reset = () => {
    chosen = null;
    choose.value = "";
    told.textContent = "";
    canvas.height = SIDE;
    clear();
  };
  canvas.addEventListener("pointerdown", () => {
    chosen = null; // it is another picture now
    choose.value = "";
  });
  const control = h("div", { class: "drawing drop", id: unique("field"), role: "group" }, choose, h("small", {}, "or drop a picture here, or draw"), canvas, h("div", { class: "row" }, h("button", { type: "button", onclick: reset }, "Clear"), h("button", { type: "button", onclick: save }, "Save"), told));
  dropZone(control, take);
  const value = async () => {
    if (chosen === null && !canvas.dataset.drawn && !isRequired) return undefined;
    const blob = chosen ?? (await new Promise((resolve) => canvas.toBlob(resolve)));
    const url = await new Promise((resolve) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.readAsDataURL(blob);
    });
    return url.slice(url.indexOf(",") + 1);
  };
  return { control, value, isGroup: true, file: () => chosen?.name ?? DRAWING };
}
