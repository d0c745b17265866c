// Pipelines: models that the server runs one after the other, as graphs with the numbers of their requests.

import { get } from "./api.js";
import { s } from "./chart.js";
import { fill, h, milliseconds, none, number, put } from "./dom.js";
import { live } from "./live.js";

const STEP_HEIGHT = 62;
const END_HEIGHT = 26;
const PASSING_HEIGHT = 30; // of an edge that passes a column
const ROW_GAP = 22;
const PORT_GAP = 20; // between edges at a step
const CHARACTER = 7.5; // width in pixels, at most
const MOST_CHARACTERS = 26;
const LINE = 14;

export function pipelines() {
  const graphs = h("div");
  const element = h("section", { class: "panel", hidden: true }, h("h2", {}, "Pipelines"), graphs,
    h("p", { class: "hint" }, "On the lines: how many requests of the pipeline were answered. In a step: how many of its model were, from all callers, how many come in a second, and the mean time of one."));
  let shown = [];
  let known = "";

  async function load(key) {
    let described;
    try {
      described = await get("/pages/models");
    } catch {
      known = ""; // the state says that there is no connection
      return;
    }
    if (key !== known) return;
    shown = described.filter((each) => each.steps.length).map(graph);
    element.hidden = !shown.length;
    fill(graphs, shown.map((each) => each.element));
    tell();
  }

  function tell() {
    for (const each of shown) each.update(live.sample.models);
  }

  return {
    element,
    update() {
      const key = Object.entries(live.sample.models).map(([name, model]) => [name, ...model.versions.map((each) => each.version + each.state)].join()).join(";");
      if (key !== known) load((known = key));
      tell();
    },
  };
}

function graph(pipeline) {
  const { nodes, edges, width, height } = laidOut(pipeline);
  const svg = s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `The steps of ${pipeline.name}` });
  const lines = edges.map((each) => line(each));
  const boxes = nodes.map((each) => (each.model === undefined ? end(each) : step(each)));
  svg.append(...lines.map((each) => each.element), ...boxes.map((each) => each.element));
  const rate = h("span", { class: "rate" });
  return {
    element: h("figure", { "data-pipeline": pipeline.name }, h("figcaption", {}, h("a", { href: `#/try/${encodeURIComponent(pipeline.name)}` }, pipeline.name), " ", rate), h("div", { class: "scroll", tabindex: "0" }, svg)),
    update(models) {
      const own = models[pipeline.name];
      put(rate, own ? `${number(own.rate)} requests/s${own.failures ? `, ${number(own.failures)} failures/s` : ""}` : "not loaded");
      for (const each of lines) each.update(own);
      for (const each of boxes) each.update?.(models);
    },
  };
}

// Where all nodes and edges are, in columns from the left to the right.
function laidOut(pipeline) {
  const steps = pipeline.steps.map((each) => ({ ...each, column: 1, height: STEP_HEIGHT, width: Math.max(118, widthOf(each.model) + 24) }));
  const ends = (names) => Object.keys(names).map((name) => ({ name, height: END_HEIGHT, width: widthOf(name) + 22 }));
  const [inputs, outputs] = [ends(pipeline.inputs), ends(pipeline.outputs)];
  const makers = new Map(inputs.map((each) => [each.name, each]));
  for (const each of steps) for (const tensor of Object.values(each.outputs)) makers.set(tensor, each);
  const edges = new Map();
  const connect = (from, to, label) => {
    const known = [...edges.values()].find((each) => each.from === from && each.to === to);
    if (known) known.labels.push(label);
    else if (from) edges.set(edges.size, { from, to, labels: [label] });
  };
  for (const each of steps) {
    for (const tensor of Object.values(each.inputs)) {
      const from = makers.get(tensor);
      connect(from, each, inputs.includes(from) ? "" : tensor.replace(/^\d+\./, ""));
    }
  }
  for (const each of outputs) connect(makers.get(each.name), each, "");
  const all = [...edges.values()];
  for (const _ of steps) for (const { from, to } of all) if (steps.includes(from) && steps.includes(to)) to.column = Math.max(to.column, from.column + 1);
  for (const each of outputs) each.column = 1 + (makers.get(each.name)?.column ?? 0);
  for (const each of inputs) each.column = Math.min(...all.filter(({ from }) => from === each).map(({ to }) => to.column), Infinity) - 1;
  const nodes = [...inputs, ...steps, ...outputs].filter((each) => Number.isFinite(each.column));
  const columns = Array.from({ length: 1 + Math.max(...nodes.map((each) => each.column)) }, () => []);
  for (const each of nodes) columns[each.column].push(each);
  for (const each of all) {
    each.passes = [];
    for (let column = each.from.column + 1; column < each.to.column; column += 1) {
      const pass = { height: PASSING_HEIGHT, width: 0, column };
      each.passes.push(pass);
      columns[column].push(pass);
    }
    each.points = [each.from, ...each.passes, each.to];
  }
  return { nodes, edges: all, ...placed(columns, all) };
}

function placed(columns, edges) {
  const heights = columns.map((column) => column.reduce((sum, each) => sum + each.height + ROW_GAP, -ROW_GAP));
  const height = Math.max(...heights);
  let x = 1;
  columns.forEach((column, index) => {
    const before = (node) => edges.flatMap(({ points }) => points.slice(0, -1).filter((_, at) => points[at + 1] === node));
    const order = new Map(column.map((node) => [node, before(node).reduce((sum, each, _, { length }) => sum + each.y / length, 0)]));
    column.sort((a, b) => order.get(a) - order.get(b));
    const width = Math.max(...column.map((each) => each.width));
    let y = (height - heights[index]) / 2;
    for (const node of column) {
      Object.assign(node, { x, y: y + node.height / 2 });
      if (node.model === undefined && node.name === undefined) node.width = width;
      y += node.height + ROW_GAP;
    }
    const labels = edges.flatMap(({ points, labels }) => (points.some((each) => each.column === index) && points.at(-1).column > index ? labels : []));
    for (const node of column) if (node.name !== undefined && index === 0) node.x += width - node.width;
    x += width + 56 + Math.max(24, ...labels.map(widthOf));
  });
  for (const node of columns.flat()) {
    ported(node, edges.filter((each) => each.from === node), "start", (each) => each.points[1].y);
    ported(node, edges.filter((each) => each.to === node), "finish", (each) => each.points.at(-2).y);
  }
  return { width: Math.max(...columns.flat().map((each) => each.x + each.width)) + 1, height: height + 2 * LINE };
}

// The heights at which edges leave a node, or reach it.
function ported(node, edges, side, otherY) {
  const gap = Math.min(PORT_GAP, (node.height - 8) / edges.length);
  edges.sort((a, b) => otherY(a) - otherY(b)).forEach((each, index) => (each[side] = node.y + (index - (edges.length - 1) / 2) * gap));
}

const shortened = (text) => (text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS - 1)}…` : text);
const widthOf = (text) => CHARACTER * shortened(text).length;
const written = (x, y, text, kind) => s("text", { x, y: y + LINE, class: kind }, shortened(text));

function step(node) {
  const [left, top, middle] = [node.x, node.y - STEP_HEIGHT / 2, node.x + node.width / 2];
  const answered = written(middle, node.y + 5, none, "soft");
  const pace = written(middle, node.y + 22, none, "soft");
  const box = s("rect", { x: left, y: top + LINE, width: node.width, height: STEP_HEIGHT, rx: 8 });
  const name = s("a", { href: `#/try/${encodeURIComponent(node.model)}` }, written(middle, node.y - 13, node.model, "name"));
  return {
    element: s("g", { class: "step", "data-step": node.model }, s("title", {}, node.model), box, name, answered, pace),
    update(models) {
      const model = models[node.model];
      put(answered, model ? `${model.total.toLocaleString("en")} requests` : "not loaded");
      put(pace, model ? [`${number(model.rate)}/s`, model.mean !== null && milliseconds(model.mean), model.pending > 0 && `${number(model.pending)} queued`].filter(Boolean).join(" · ") : "");
      box.classList.toggle("failing", !model || model.failures > 0);
    },
  };
}

function end(node) {
  return { element: s("g", { class: "end-node" }, s("title", {}, node.name),
    s("rect", { x: node.x, y: node.y - END_HEIGHT / 2 + LINE, width: node.width, height: END_HEIGHT, rx: END_HEIGHT / 2 }), written(node.x + node.width / 2, node.y + 4.5, node.name, "soft")) };
}

function line({ to, passes, points, labels, start, finish }) {
  const stops = points.map((each, index) => [each.x, each.x + each.width, index === 0 ? start : each === to ? finish : each.y]);
  const parts = stops.slice(1).map(([left, , y1], index) => {
    const [, x0, y0] = stops[index];
    const x1 = left - (index === stops.length - 2 ? 7 : 0);
    const middle = (x0 + x1) / 2;
    return `${index ? `H ${x0}` : `M ${x0} ${y0 + LINE}`} C ${middle} ${y0 + LINE} ${middle} ${y1 + LINE} ${x1} ${y1 + LINE}`;
  });
  const [[, right, y0], [left, , y1]] = stops;
  const [x, y] = passes.length ? [passes[0].x + passes[0].width / 2, passes[0].y] : [(right + left) / 2, (y0 + y1) / 2];
  const named = labels.filter(Boolean);
  const count = written(x, y + LINE, none, "count");
  return {
    element: s("g", { class: "edge" }, s("path", { d: parts.join(" ") }), s("path", { d: `M ${to.x - 8} ${finish + LINE - 4} l 8 4 l -8 4 z`, class: "tip" }),
      ...named.map((label, index) => written(x, y - 5 - LINE * (named.length - 1 - index), label, "tensor")), count),
    update: (own) => put(count, own ? own.total.toLocaleString("en") : none),
  };
}
