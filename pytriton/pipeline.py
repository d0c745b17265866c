"""Pipelines: models that the server itself runs one after the other, as an ensemble, without Python between them.

::

    triton.bind("digits", Pipeline("decode", "normalize", "classify"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.introspection import override
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.triton_model_config import EnsembleStep, TritonModelConfig
from pytriton.pool.pool import Infer, ServedModel, WorkerPool, Workers, WorkerStatus
from pytriton.signature.derive import Derived
from pytriton.signature.examples import Example
from pytriton.signature.schema import OBJECT, RESULT, VALUE, VALUES, Schema, Signature

__all__ = ["Pipeline", "Step"]


@dataclass(frozen=True)
class Step:
    """One model of a :class:`Pipeline`.

    Args:
        model: Its name.
        inputs: Input of the model to the name of the value that it gets, where they differ.
        outputs: Output of the model to the name that its value gets, where they differ.
    """

    model: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Value:
    """A tensor between steps, and where it comes from."""

    spec: TensorSpec
    schema: Schema | None
    tensor: str  # its name in the ensemble
    step: int  # which makes it; -1 for those of requests


class Pipeline(Workers):
    """Models, bound before it, that pass values on by name.

    A step with one input gets the value of the step before it, if that made only one. Otherwise an input gets the
    latest value of its name, and if there is none, it is an input of the pipeline, which requests have. So steps may
    branch and join. Each step is a request to its model, which is merged with those of other callers.

    Args:
        steps: Names of models, or :class:`Step` where names of values differ; in an order in which each value is made
            before it is used.
        outputs: Names of the values that are the pipeline's outputs; default: those of the last step.

    Raises:
        PyTritonBadParameterError: There are no steps, or one is something else.
    """

    def __init__(self, *steps: str | Step, outputs: Sequence[str] | None = None) -> None:
        if not steps or not all(isinstance(step, (str, Step)) for step in steps):
            raise PyTritonBadParameterError(f"a Pipeline has names of models, or Steps; got {steps!r}")
        if outputs is not None and (isinstance(outputs, str) or not outputs):
            raise PyTritonBadParameterError(f"outputs of a Pipeline must be a list of names of values, got {outputs!r}")
        self.steps = [Step(step) if isinstance(step, str) else step for step in steps]
        self._chosen = None if outputs is None else list(outputs)
        self._inputs: dict[str, _Value] = {}
        self._outputs: dict[str, _Value] = {}
        self._scheduled: list[EnsembleStep] = []
        self._models: list[TritonModelConfig] = []

    @override
    def instance_count(self) -> int:
        return 1  # nothing counts them

    @override
    def look_up(self, bound: Callable[[str], TritonModelConfig | None]) -> None:
        self._models = [self._model(step.model, bound(step.model)) for step in self.steps]
        batching = {model.batching for model in self._models}
        if len(batching) > 1:
            raise PyTritonValidationError(
                "some models of the Pipeline have a batch axis and others have none: "
                + ", ".join(f"{model.model_name} {'has' if model.batching else 'has none'}" for model in self._models)
            )
        self._inputs, self._scheduled = {}, []
        values: dict[str, _Value] = {}
        made: dict[str, _Value] = {}
        for number, (step, model) in enumerate(zip(self.steps, self._models, strict=True)):
            given = self._given(step, model, values, made)
            made = self._made(number, step, model)
            values |= made
            outputs = {spec.name: made[step.outputs.get(spec.name, spec.name)].tensor for spec in model.outputs or ()}
            self._scheduled.append(EnsembleStep(step.model, given, outputs))
        names = list(made) if self._chosen is None else self._chosen
        if missing := [name for name in names if name not in values or values[name].step < 0]:
            raise PyTritonValidationError(
                f"no step of the Pipeline makes {', '.join(map(repr, missing))}; its values are "
                f"{', '.join(map(repr, values))}"
            )
        self._outputs = {name: values[name] for name in names}
        self._name_outputs()

    def _model(self, name: str, config: TritonModelConfig | None) -> TritonModelConfig:
        if config is None:
            raise PyTritonValidationError(f"the Pipeline has model {name!r}, which is not bound; bind it first")
        if config.decoupled:
            raise PyTritonValidationError(
                f"model {name!r} streams, which no step of a Pipeline can; call it from a callable with a ModelHandle"
            )
        return config

    def _given(
        self, step: Step, model: TritonModelConfig, values: dict[str, _Value], before: dict[str, _Value]
    ) -> dict[str, str]:
        """From each input of a step to the tensor that it gets; adds inputs of the pipeline."""
        specs = {spec.name: spec for spec in model.inputs or ()}
        _check_names(step, "inputs", step.inputs, specs)
        signature = Signature.of(model)
        wanted = {name: step.inputs.get(name, name) for name in specs}
        if len(specs) == len(before) == 1 and not step.inputs:
            wanted = dict(zip(specs, before, strict=True))
        given = {}
        for name, value_name in wanted.items():
            schema = None if signature is None else signature.inputs[name]
            value = values.get(value_name)
            if value is None:
                if specs[name].optional:
                    continue  # the server has no optional inputs of ensembles: the model gets its default
                value = self._inputs[value_name] = values[value_name] = _Value(specs[name], schema, value_name, -1)
            _check_fits(self.steps, step, specs[name], value, value_name)
            given[name] = value.tensor
        return given

    def _made(self, number: int, step: Step, model: TritonModelConfig) -> dict[str, _Value]:
        specs = {spec.name: spec for spec in model.outputs or ()}
        _check_names(step, "outputs", step.outputs, specs)
        signature = Signature.of(model)
        return {
            step.outputs.get(name, name): _Value(
                spec,
                None if signature is None else signature.outputs[name],
                f"{number}.{step.outputs.get(name, name)}",
                number,
            )
            for name, spec in specs.items()
        }

    def _name_outputs(self) -> None:
        """Give the tensors that leave the pipeline the names of their values, and drop those that nothing needs.

        The server refuses an ensemble with others.
        """
        renamed = {value.tensor: name for name, value in self._outputs.items()}
        if clash := [name for name in renamed.values() if name in self._inputs]:
            raise PyTritonValidationError(
                f"{clash[0]!r} is an input and an output of the Pipeline; rename one in a Step's inputs or outputs"
            )
        needed = {*renamed, *(tensor for step in self._scheduled for tensor in step.input_map.values())}
        self._scheduled = [
            EnsembleStep(
                step.model_name,
                {name: renamed.get(tensor, tensor) for name, tensor in step.input_map.items()},
                {name: renamed.get(tensor, tensor) for name, tensor in step.output_map.items() if tensor in needed},
            )
            for step in self._scheduled
        ]
        for number, step in enumerate(self._scheduled, 1):
            if not step.output_map:
                raise PyTritonValidationError(
                    f"no step takes what step {number}, {step.model_name}, makes, and it is no output of the Pipeline; "
                    "name its value in the inputs of a Step, or drop the step"
                )

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        sizes = [model.max_batch_size for model in self._models]
        config = replace(
            config, batching=self._models[0].batching, max_batch_size=min(sizes), batcher=None, decoupled=False
        )
        inputs, outputs = _tensors(self._inputs), _tensors(self._outputs)
        return Derived(inputs, outputs, config, self._signature(), steps=self._scheduled)

    def _signature(self) -> Signature | None:
        """That of a typed function, if all steps are; None if one is not, or types of the same name differ."""
        signatures = [Signature.of(model) for model in self._models]
        definitions: dict[str, Any] = {}
        for signature in signatures:
            if signature is None or signature.passes != VALUES:
                return None
            if any(definitions.get(name, found) != found for name, found in signature.definitions.items()):
                return None
            definitions |= signature.definitions
        inputs = {name: value.schema or {} for name, value in self._inputs.items()}
        outputs = {name: value.schema or {} for name, value in self._outputs.items()}
        result = VALUE if [*outputs] == [RESULT] else OBJECT
        return Signature(inputs, tuple(inputs), outputs, tuple(outputs), result=result, definitions=definitions)

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        pool = _NoWorkers(model)
        pool.callees = frozenset(step.model for step in self.steps)
        return pool

    def mermaid(self) -> str:
        """The steps as a graph in Mermaid's language; after ``bind``."""
        lines = ["flowchart LR"]
        lines += [f"  in_{number}([{_quoted(name)}])" for number, name in enumerate(self._inputs)]
        lines += [f"  step_{number}[{_quoted(step.model)}]" for number, step in enumerate(self.steps)]
        makers = {name: f"in_{number}" for number, name in enumerate(self._inputs)}
        for number, scheduled in enumerate(self._scheduled):
            for tensor in scheduled.input_map.values():
                label = tensor if tensor in self._inputs or tensor in self._outputs else tensor.partition(".")[2]
                lines.append(f"  {makers[tensor]} -->|{_quoted(label)}| step_{number}")
            makers |= dict.fromkeys(scheduled.output_map.values(), f"step_{number}")
        for number, (name, value) in enumerate(self._outputs.items()):
            lines.append(f"  step_{value.step} --> out_{number}([{_quoted(name)}])")
        return "\n".join(lines)


def _quoted(text: str) -> str:
    """A text of any characters, for Mermaid."""
    codes = "".join(each if each.isalnum() or each in " -._" else f"#{ord(each)};" for each in text)
    return f'"{codes}"'


def _tensors(values: Mapping[str, _Value]) -> list[Tensor]:
    return [Tensor(each.spec.shape, each.spec.dtype, name, labels=each.spec.labels) for name, each in values.items()]


def _check_names(step: Step, what: str, given: Mapping[str, str], specs: Mapping[str, TensorSpec]) -> None:
    if unknown := [name for name in given if name not in specs]:
        raise PyTritonValidationError(
            f"Step({step.model!r}) names {what} {', '.join(map(repr, unknown))}; the model has "
            f"{', '.join(map(repr, specs)) or 'none'}"
        )


def _check_fits(steps: Sequence[Step], step: Step, spec: TensorSpec, value: _Value, name: str) -> None:
    """Raise PyTritonValidationError if a value cannot be the input of a step."""
    made, wanted = value.spec, spec
    fits = len(made.shape) == len(wanted.shape) and all(
        -1 in (one, other) or one == other for one, other in zip(made.shape, wanted.shape, strict=True)
    )
    if made.dtype == wanted.dtype and fits:
        return
    maker = "requests have" if value.step < 0 else f"step {value.step + 1}, {steps[value.step].model}, makes"
    raise PyTritonValidationError(
        f"input {spec.name!r} of model {step.model!r} is {wanted.dtype.__name__} {wanted.shape}, and {name!r}, which "
        f"{maker}, is {made.dtype.__name__} {made.shape}; put a model between them, or name another value in the Step"
    )


class _NoWorkers(WorkerPool):
    """The pool of a model that the server runs itself."""

    def __init__(self, model: ServedModel) -> None:
        super().__init__(model)
        self.workers = []

    @override
    def statuses(self) -> list[WorkerStatus]:
        return []

    @override
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        return False

    @override
    def rebind(self, infer: Infer) -> None:
        raise PyTritonInvalidOperationError(
            f"model {self.model.config.model_name!r} is a Pipeline; use bind(..., replace=True)"
        )

    @override
    def interrupt(self) -> None:
        pass

    @override
    def stop(self) -> None:
        pass

    @override
    def join(self) -> None:
        pass

    @override
    def close(self) -> None:
        pass
