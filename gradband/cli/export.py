"""`gradband export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal
from gradband.cli.play import PRETRAINED, parse_prior
from gradband.core.errors import InputError, unknown, whole

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned

FORMATS = ("onnx",)


def export(
    file: options.PolicyFile,
    to: Annotated[str, Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[Path | None, Option(help="File to write (default: beside the policy file).")] = None,
    trust: options.Trust = None,
    arms: Annotated[int | None, Option(help="For pretrained: number of arms.")] = None,
    horizon: Annotated[int | None, Option(help="For pretrained: number of rounds.")] = None,
    prior: Annotated[
        str, Option(metavar="A,B", help="For pretrained: its beta prior (default: 1,1).")
    ] = "",
    json: options.Json = False,
) -> None:
    """Export a policy as a model for other languages and browsers.

    The ONNX model is one step: it takes a state, an arm and its reward, and
    returns the next state and the probabilities of the arms. Start with a state
    of zeros (or the metadata's first_state, if there is one) and the arm -1,
    and draw each arm from the probabilities. With contexts it also takes the
    features of the arm and of the next round. This needs the package onnx
    (pip install 'gradband[onnx]'). Policies that sample from a posterior (ts,
    hierarchical-ts, ts-gaussian, ts-beta, lin-ts, lin-v-ids, irs-v-zero),
    bayes-ucb, bayes-ucb-gaussian, lin-bayes-ucb, ogi and explore-then-commit
    can't be exported.

    Examples:

      gradband export policy.safetensors --to onnx

      gradband export runs/uniform-2-lstm/policy.safetensors --out lstm.onnx

      gradband export pretrained --arms 5 --horizon 2000
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    import gradband as gb
    from gradband.policies.onnx import as_onnx, write

    model = as_onnx(pretrained(arms, horizon, prior) if str(file) == PRETRAINED else gb.load(file, trust))
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


def pretrained(arms: int | None, horizon: int | None, prior: str) -> "Learned":
    """The policy that comes with the package, for a number of arms and rounds."""
    import gradband as gb

    if arms is None or horizon is None:
        raise InputError(f"{PRETRAINED} needs --arms and --horizon")
    policy = gb.policies.pretrained(*parse_prior(prior)).bind(arms, whole("--horizon", horizon))
    return gb.Learned(policy, policy.init(None), {}, {})


def describe(entry: Any) -> str:
    """An input or output: its name, kind and shape."""
    import onnx

    tensor = entry.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return f"{entry.name} {kind}[{', '.join(str(size.dim_value) for size in tensor.shape.dim)}]"
