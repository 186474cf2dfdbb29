"""`gradband export`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gradband.cli.options import Json, Trust
from gradband.core.errors import InputError, unknown

FORMATS = ("onnx",)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The model's file (beside the policy's).")] = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Write a policy as a model for other languages and browsers.

    ONNX: one step, from the state, an arm and its reward to the next state and
    the probabilities of the arms. Begin with zeros for the state (or with the
    metadata's first_state, if there is one) and an arm of -1, and draw each
    arm from the probabilities. It needs the package onnx
    (pip install 'gradband[onnx]'). Policies that sample from a posterior (ts,
    hierarchical-ts), bayes-ucb and explore-then-commit can't be exported.

    Examples:

      gradband export policy.safetensors --to onnx

      gradband export runs/uniform-2-lstm/policy.safetensors --out lstm.onnx
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    import gradband as gb
    from gradband.cli import terminal
    from gradband.cli.shared import make_folder
    from gradband.policies.onnx import as_onnx, write

    model = as_onnx(gb.load(file, trust))
    target = out or file.with_suffix(".onnx")
    if target.is_dir() or target.resolve() == file.resolve():
        raise InputError(f"the model can't be written to {target}: give a file of its own")
    make_folder(target.parent)
    write(model, target)
    inputs, outputs = (list(map(described, ends)) for ends in (model.graph.input, model.graph.output))
    result = {
        "policy": model.graph.name,
        "inputs": inputs,
        "outputs": outputs,
        "bytes": model.ByteSize(),
        "files": {"model": str(target)},
    }
    lines = [
        f"{target}: {model.graph.name}, {model.ByteSize():,} bytes",
        f"takes {', '.join(inputs)}",
        f"gives {', '.join(outputs)}",
    ]
    terminal.emit(result, json, lambda: print(*lines, sep="\n"))


def described(entry: Any) -> str:
    """An input or output: its name, kind and shape."""
    import onnx

    tensor = entry.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return f"{entry.name} {kind}[{', '.join(str(size.dim_value) for size in tensor.shape.dim)}]"
