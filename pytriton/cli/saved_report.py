"""What ``pytriton inspect`` shows of a saved model, and the program that it writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytriton.files.formats import Format
from pytriton.model_config.dtypes import triton_name
from pytriton.saved.model import SavedModel
from pytriton.signature.schema import Schema, tensor_of

__all__ = ["program_of", "report_of"]

MOST_LINES = 20  # of inputs, or of outputs

PROGRAM = """\
# The same as: {command}
{imports}from pytriton import ModelConfig, Triton
from pytriton.saved import load

model = load({arguments})  # model(**values) answers one row
triton = Triton(rest=True)
triton.bind({name}, model, config=ModelConfig(max_batch_size={rows}))

if __name__ == "__main__":
    with triton:
        triton.serve()
"""


def report_of(name: str, path: Path, file_format: Format, model: SavedModel) -> Iterator[str]:
    """What was found in a file, and what would be bound, line by line."""
    contents = model.contents
    yield f"{path}: {contents.kind}" + (f" ({file_format.title})" if file_format.title not in contents.kind else "")
    yield from (f"  {note}" for note in contents.notes)
    yield f"model {name}"
    if contents.method:
        others = [each for each in contents.methods if each != contents.method]
        yield f"  method {contents.method}" + (f"; --method may be {', '.join(others)}" if others else "")
    for title, schemas in (("input", model.signature.inputs), ("output", model.signature.outputs)):
        for each, schema in [*schemas.items()][:MOST_LINES]:
            yield f"  {title} {each}: {_type_of(each, schema)}"
        if len(schemas) > MOST_LINES:
            yield f"  ... and {len(schemas) - MOST_LINES} more"
    for example in model.signature.examples:
        yield f"  example {json.dumps(example['input'], ensure_ascii=False)}"
        yield f"  answer {json.dumps(example['output'], ensure_ascii=False)}"


def program_of(
    name: str, path: Path, program: Path, options: Mapping[str, Any], command: str, max_batch_size: int
) -> str:
    """The source of a program that serves a file with these arguments of ``load``, except those that say nothing.

    Args:
        path: Of the file; one that is relative becomes relative to the folder of the program.
        program: The file of the program.
    """
    chosen = {key: value for key, value in options.items() if value not in (None, False, {}, ())}
    if options["batch"] is False:
        chosen["batch"] = False
    imports, file = "", _literal(str(path))
    if not path.is_absolute():
        imports = "from pathlib import Path\n\n"
        file = f"Path(__file__).parent / {_literal(os.path.relpath(path.resolve(), program.resolve().parent))}"
    arguments = ", ".join([file, *(f"{key}={_literal(value)}" for key, value in chosen.items())])
    return PROGRAM.format(
        command=" ".join(command.split()),
        imports=imports,
        arguments=arguments,
        name=_literal(name),
        rows=max_batch_size,
    )


def _literal(value: Any) -> str:
    """A value in Python, with double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _type_of(name: str, schema: Schema) -> str:
    if schema.get("encoding") == "json":
        return "JSON"
    tensor = tensor_of(name, schema)
    dtype = triton_name(tensor.dtype)
    sizes = ", ".join("any" if size == -1 else str(size) for size in tensor.shape)
    return f"{'text' if dtype == 'BYTES' else dtype}" + (f" ({sizes})" if "shape" in schema else "")
