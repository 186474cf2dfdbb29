"""`gradband export`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal
from gradband.core.errors import InputError, unknown

FORMATS = ("onnx",)


def export(
    file: options.PolicyFile,
    to: Annotated[str, Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[Path | None, Option(help="File to write (default: beside the policy file).")] = None,
    trust: options.Trust = None,
    json: options.Json = False,
) -> None:
    """Export a policy as a model for other languages and browsers.

    The ONNX model is one step: it takes a state, an arm and its reward, and
    returns the next state and the probabilities of the arms. Start with a state
    of zeros (or the metadata's first_state, if there is one) and the arm -1,
    and draw each arm from the probabilities. This needs the package onnx
    (pip install 'gradband[onnx]'). Policies that sample from a posterior (ts,
    hierarchical-ts, ts-gaussian, ts-beta, irs-v-zero), bayes-ucb,
    bayes-ucb-gaussian, ogi and explore-then-commit can't be exported.

    Examples:

      gradband export policy.safetensors --to onnx

      gradband export runs/uniform-2-lstm/policy.safetensors --out lstm.onnx
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    import gradband as gb
    from gradband.policies.onnx import as_onnx, write

    model = as_onnx(gb.load(file, trust))
    target = out or file.with_suffix(".onnx")
    if target.is_dir() or target.resolve() == file.resolve():
        raise InputError(f"the model can't be written to {target}: choose another file")
    shared.make_folder(target.parent)
    write(model, target)
    inputs, outputs = (
        [describe(entry) for entry in ends] for ends in (model.graph.input, model.graph.output)
    )
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


def describe(entry: Any) -> str:
    """An input or output: its name, kind and shape."""
    import onnx

    tensor = entry.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return f"{entry.name} {kind}[{', '.join(str(size.dim_value) for size in tensor.shape.dim)}]"
