// The same call for a shell, Python and JavaScript.

const MOST = 20000;
const TOKEN = { shell: '"Authorization: Bearer $TOKEN"', python: '{"Authorization": f"Bearer {TOKEN}"}' };

export function snippets(model, body, { base, server, asksToken, files }) {
  const text = JSON.stringify(body);
  const isForm = Object.keys(body).some((name) => model.inputs[name].contentEncoding);
  if (isForm) {
    const parts = formParts(model, body, files);
    return { curl: curlForm(model, base, parts, asksToken), ModelClient: modelClient(model, body, server, files), requests: requestsForm(model, base, parts, asksToken) };
  }
  if (text.length > MOST) return { curl: large(model, base) };
  return {
    curl: curl(model, base, text, asksToken),
    ModelClient: modelClient(model, body, server, files),
    requests: requests(model, base, body, asksToken),
    JavaScript: javascript(model, base, text, asksToken),
  };
}

const url = (model, base) => `${base}/predict/${model.name}`;
const large = (model, base) => `# The inputs are too large to show: save them as request.json.\ncurl ${url(model, base)} -d @request.json`;

export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl(model, base, text, asksToken) {
  const lines = [`curl${model.streams ? " -N" : ""} ${url(model, base)}`];
  if (asksToken) lines.push(`-H ${TOKEN.shell}`);
  lines.push(`-d ${quoted(text)}`);
  return lines.join(" \\\n  ");
}

// The parts of a form: {name, file} or {name, text}.
function formParts(model, body, files) {
  return Object.keys(body).map((name) => {
    if (model.inputs[name].contentEncoding) return { name, file: files[name] ?? "file" };
    return { name, text: typeof body[name] === "string" ? body[name] : JSON.stringify(body[name]) };
  });
}

function curlForm(model, base, parts, asksToken) {
  const lines = [`curl${model.streams ? " -N" : ""} ${url(model, base)}`];
  if (asksToken) lines.push(`-H ${TOKEN.shell}`);
  for (const { name, file, text } of parts) lines.push(file ? `-F ${name}=@${quoted(file)}` : `--form-string ${quoted(`${name}=${text}`)}`);
  return lines.join(" \\\n  ");
}

function requestsForm(model, base, parts, asksToken) {
  const data = parts.filter((each) => !each.file).map(({ name, text }) => `"${name}": ${literal(text)}`);
  const opened = parts.filter((each) => each.file).map(({ name, file }) => `"${name}": open("${file}", "rb")`);
  const headers = asksToken ? `\n    headers=${TOKEN.python},` : "";
  const given = data.length ? `\n    data={${data.join(", ")}},` : "";
  return `import requests\n\nresponse = requests.post(\n    "${url(model, base)}",\n    files={${opened.join(", ")}},${given}${headers}\n)\nresponse.raise_for_status()\nprint(response.json())`;
}

function requests(model, base, body, asksToken) {
  const headers = asksToken ? `,\n    headers=${TOKEN.python},` : "";
  const given = `"${url(model, base)}",\n    json=${literal(body)}`;
  if (!model.streams) return `import requests\n\nresponse = requests.post(\n    ${given}${headers || ","}\n)\nresponse.raise_for_status()\nprint(response.json())`;
  return `import json\n\nimport requests\n\nwith requests.post(\n    ${given}${headers || ","}\n    stream=True,\n) as response:\n    response.raise_for_status()\n    for line in response.iter_lines():\n        print(json.loads(line))`;
}

function javascript(model, base, text, asksToken) {
  const headers = asksToken ? ', Authorization: `Bearer ${token}`' : "";
  const head = `const response = await fetch("${url(model, base)}", {\n  method: "POST",\n  headers: { "Content-Type": "application/json"${headers} },\n  body: JSON.stringify(${text}),\n});\n`;
  if (!model.streams) return `${head}console.log(await response.json());`;
  return `${head}for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {\n  console.log(piece);\n}`;
}

function modelClient(model, body, server, files) {
  if (!server) return null;
  const client = model.streams ? "DecoupledModelClient" : "ModelClient";
  const from = `from pytriton.client import ${client}`;
  const names = Object.keys(body);
  if (model.typed) {
    const lines = [];
    const given = names.map((name) => {
      const schema = model.inputs[name];
      if (!schema.contentEncoding) return `${name}=${literal(body[name])}`;
      lines.push(`with open("${files[name] ?? "file"}", "rb") as file:\n    ${name} = file.read()`);
      return `${name}=${name}`;
    });
    const call = `client.call(${given.join(", ")})`;
    const use = model.streams ? `    for value in ${call}:\n        print(value)` : `    print(${call})`;
    const address = model.streams ? server.replace(/^http/, "grpc").replace(/:8000$/, ":8001") : server;
    const isImage = names.some((name) => model.inputs[name].contentMediaType);
    const opened = isImage ? lines.map((line) => line.replace(/with open\("(.*)", "rb"\) as file:\n {4}(.*) = file.read\(\)/, '$2 = Image.open("$1")')) : lines;
    const imports = isImage ? `from PIL import Image\n${from}` : from;
    return [imports, ...opened, `with ${client}("${address}", "${model.name}") as client:\n${use}`].join("\n\n");
  }
  const arrays = names.map((name) => `${name}=np.array(${literal(scalarAsList(body[name], model.inputs[name]))}, ${numpyType(model.inputs[name].dtype)})`);
  const call = `client.infer_sample(${arrays.join(", ")})`;
  const use = model.streams ? `    for result in ${call}:\n        print(result)` : `    print(${call})`;
  return `import numpy as np\n${from}\n\nwith ${client}("${server}", "${model.name}") as client:\n${use}`;
}

const scalarAsList = (value, schema) => (Array.isArray(value) || !schema.shape?.length ? value : [value]);

function numpyType(dtype) {
  if (dtype === "BYTES") return "object";
  if (dtype === "BOOL") return "np.bool_";
  return `np.${dtype.replace("FP", "float").replace("UINT", "uint").replace("INT", "int").replace("BF16", "float32")}`;
}

// A value of JSON as Python writes it.
export function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (["NaN", "Infinity", "-Infinity"].includes(value)) return `float("${value}")`;
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object" && !JSON.isRawJSON?.(value)) return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
