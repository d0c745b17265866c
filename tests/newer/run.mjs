// Runs a file of Python in CPython as WebAssembly: node run.mjs PYODIDE REPOSITORY SITE FILE
// The repository is /repository, and the folder of pure Python packages /site. Prints what the file prints.
import { pathToFileURL } from "node:url";

const [folder, repository, site, file] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide();
for (const [name, root] of [["/repository", repository], ["/site", site]]) {
  python.FS.mkdir(name);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, name);
}
python.runPython(`import runpy; runpy.run_path("/repository/${file}", run_name="__main__")`);
