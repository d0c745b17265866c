// Charts in SVG: lines over time, columns, and a small line without axes. Colours are classes of the style sheet.

import { h, number } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const MARGIN = { left: 60, right: 12, top: 10, bottom: 22 };
const HALF_LABEL = 28; // of a time, in pixels
const LEAST_S = 120;
const GAP_S = 25; // without a sample for longer, a line has a gap
const OUTLIER = 4; // times the value that all but one of twenty stay below: points above do not set the axis

export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A round step that divides a range into about `count` parts.
export function step(range, count) {
  const rough = range / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
}

// series: [{label, time: seconds[], values: (number|null)[]}]; show makes a text of a value.
export class LineChart {
  constructor(label, show = number, unit = 1) {
    this.label = label;
    this.unit = unit;
    this.show = show;
    this.svg = s("svg", { class: "chart", role: "img", tabindex: "0" });
    this.legend = h("p", { class: "legend" });
    this.element = h("figure", { class: "panel" }, h("figcaption", {}, label), this.svg, this.legend);
    this.series = [];
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => {
      const { left, width } = this.svg.getBoundingClientRect();
      this.point((event.clientX - left - MARGIN.left) / (width - MARGIN.left - MARGIN.right));
    });
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (move) this.point((this.at ?? 1) + move);
      if (move) event.preventDefault();
    });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  update(series, seconds, gap = GAP_S) {
    Object.assign(this, { series, seconds, gap });
    this.draw();
  }

  point(share) {
    this.at = share === null ? null : Math.min(1, Math.max(0, share));
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    const height = this.svg.clientHeight;
    if (!width || !this.seconds) return;
    const right = Math.max(Date.now() / 1000 - 5, ...this.series.map((each) => each.time.at(-1) ?? 0));
    const first = Math.min(right, ...this.series.map((each) => each.time[0] ?? right));
    const seconds = Math.min(this.seconds, Math.max(LEAST_S, right - first));
    const left = right - seconds;
    const shown = this.series.map((each) => {
      const start = each.time.findIndex((time) => time >= left);
      return start < 0 ? { ...each, time: [], values: [] } : { ...each, time: each.time.slice(start), values: each.values.slice(start) };
    });
    const highest = highestOf(shown.flatMap((each) => each.values).filter((value) => value !== null));
    const top = highest > 1e-6 ? highest : this.unit;
    const tick = step(top / this.unit, 3) * this.unit;
    const most = Math.ceil(top / tick) * tick;
    const x = (time) => MARGIN.left + ((time - left) / seconds) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - (value / most) * (height - MARGIN.top - MARGIN.bottom);
    const parts = [];
    for (let value = 0; value <= most + tick / 2; value += tick) {
      parts.push(s("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      parts.push(s("text", { class: "tick end", x: MARGIN.left - 6, y: y(value) + 4 }, this.show(value)));
    }
    const every = [30, 60, 300, 900, 3600, 10800, 21600].find((each) => ((width - 64) * each) / seconds > 60) ?? 43200;
    for (let time = Math.ceil(left / every) * every; time <= right && x(time) < width - HALF_LABEL; time += every) {
      const text = new Date(time * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: every < 60 ? "2-digit" : undefined });
      parts.push(s("text", { class: "tick middle", x: x(time), y: height - 5 }, text));
    }
    const bounded = (value) => y(Math.min(value, most));
    shown.forEach((each, index) => {
      parts.push(s("path", { class: `line c${index % 8}`, d: path(each, x, bounded, this.gap) }));
      each.values.forEach((value, at) => {
        if (value === null) return;
        const text = () => s("title", {}, `${each.label}: ${this.show(value)} at ${new Date(each.time[at] * 1000).toLocaleTimeString("en-GB")}`);
        if (value > most) parts.push(s("path", { class: `outlier c${index % 8}`, d: `M${x(each.time[at]).toFixed(1)} 2l6 9h-12z` }, text()));
        else if (isAlone(each, at, this.gap)) parts.push(s("circle", { class: `point c${index % 8}`, cx: x(each.time[at]), cy: y(value), r: 2.5 }, text()));
      });
    });
    if (this.at !== null) {
      const time = left + this.at * seconds;
      parts.push(s("line", { class: "pointer", x1: x(time), x2: x(time), y1: MARGIN.top, y2: height - MARGIN.bottom }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts);
    this.tell(shown, left, seconds, most);
  }

  tell(shown, left, seconds, most) {
    const at = this.at === null ? null : left + this.at * seconds;
    const above = shown.reduce((sum, each) => sum + each.values.filter((value) => value > most).length, 0);
    const values = shown.map((each) => {
      const index = at === null ? each.time.length - 1 : nearest(each.time, at);
      return [each.label, this.show(each.values[index] ?? null)];
    });
    const time = at === null ? "now" : new Date(at * 1000).toLocaleTimeString("en-GB");
    this.legend.replaceChildren(
      h("span", { class: "time" }, time),
      ...values.map(([label, value], index) => h("span", {}, h("i", { class: `key c${index % 8}` }), `${label} `, h("b", {}, value))),
      above > 0 && h("span", { class: "above" }, `▲ ${above} above, up to ${this.show(Math.max(...shown.flatMap((each) => each.values)))}`) || "",
    );
    this.svg.setAttribute("aria-label", `${this.label}, ${time}: ${values.map((each) => each.join(" ")).join(", ") || "no data"}`);
  }
}

function nearest(times, at) {
  let low = 0;
  while (low < times.length - 1 && times[low + 1] <= at) low += 1;
  return low;
}

// The highest value that the axis has to show: those far above nearly all others are marked at its end.
export function highestOf(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const limit = OUTLIER * (sorted[Math.floor(0.95 * (sorted.length - 1))] ?? 0);
  const below = sorted.filter((value) => value <= limit);
  return Math.max(0, (below.length && limit > 0 ? below : sorted).at(-1) ?? 0);
}

// Whether a value has no neighbour to draw a line to.
function isAlone({ time, values }, at, gap) {
  const near = (step) => {
    let other = at + step;
    while (values[other] === null) other += step;
    return values[other] !== undefined && Math.abs(time[other] - time[at]) <= gap;
  };
  return !near(-1) && !near(1);
}

function path({ time, values }, x, y, gap) {
  let text = "";
  let before = null;
  values.forEach((value, index) => {
    if (value === null) return;
    const isStart = before === null || time[index] - before > gap;
    text += `${isStart ? "M" : "L"}${x(time[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    before = time[index];
  });
  return text;
}

export function sparkline(series, seconds, label) {
  const svg = s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label });
  drawSparkline(svg, series, seconds);
  return svg;
}

export function drawSparkline(svg, { time, values }, seconds) {
  const right = time.at(-1) ?? 0;
  const start = Math.max(0, time.findIndex((each) => each >= right - seconds));
  const shown = { time: time.slice(start), values: values.slice(start) };
  const most = Math.max(1e-9, ...shown.values.map((value) => value ?? 0));
  const d = path(shown, (each) => 100 - ((right - each) / seconds) * 100, (value) => 23 - (value / most) * 21, GAP_S);
  svg.replaceChildren(s("path", { class: "line c0", d, "vector-effect": "non-scaling-stroke" }));
}

// rows: [{label, value, text}]: horizontal bars, the longest of which is `most`.
export function bars(rows, most, caption) {
  const body = rows.map(({ label, value, text, isFirst }) => {
    const bar = h("div", { class: isFirst ? "fill first" : "fill" });
    bar.style.width = `${Math.max(0, Math.min(100, (100 * value) / most || 0))}%`;
    return h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "bar" }, bar), h("td", { class: "n" }, text));
  });
  return h("table", { class: "bars" }, h("caption", { class: "hidden" }, caption), h("tbody", {}, body));
}
