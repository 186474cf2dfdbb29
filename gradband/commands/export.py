"""`gradband export`."""

from pathlib import Path
from typing import Annotated

import typer

from gradband.arguments import Json
from gradband.errors import unknown

FORMATS = ("onnx",)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The model's file (beside the policy's).")] = None,
    json: Json = False,
) -> None:
    """Write a policy as a model for other languages and browsers.

    ONNX: one step, from the state, an arm and its reward to the next state and
    the probabilities of the arms. Begin with zeros for the state and an arm of
    -1, and draw each arm from the probabilities.

    Examples:

      gradband export policy.safetensors --to onnx

      gradband export runs/uniform-2-lstm/policy.safetensors --out lstm.onnx
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    import gradband as gb
    from gradband.commands.shared import make_folder
    from gradband.export import as_onnx, write
    from gradband.report import terminal

    model = as_onnx(gb.load(file))
    target = out or file.with_suffix(".onnx")
    make_folder(target.parent)
    write(model, target)
    inputs, outputs = ([entry.name for entry in ends] for ends in (model.graph.input, model.graph.output))
    result = {
        "policy": model.graph.name,
        "inputs": inputs,
        "outputs": outputs,
        "bytes": model.ByteSize(),
        "files": {"model": str(target)},
    }
    if json:
        terminal.print_json(result)
        return
    print(f"{target}: {model.graph.name}, {model.ByteSize():,} bytes")
    print(f"takes {', '.join(inputs)}")
    print(f"gives {', '.join(outputs)}")
