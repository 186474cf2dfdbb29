"""`gradband export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gradband.cli import options, pretrained, shared, terminal
from gradband.core.errors import InputError, unknown

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned

FORMATS = ("onnx", "safetensors")


def export(
    file: Annotated[Path, Argument(metavar="FILE", help=pretrained.FILE, show_default=False)],
    to: Annotated[str, Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[Path | None, Option(help="File to write (default: beside the policy file).")] = None,
    trust: options.Trust = None,
    arms: Annotated[int | None, Option(help="For pretrained policies: how many arms there are.")] = None,
    horizon: Annotated[int | None, Option(help=pretrained.HORIZON)] = None,
    dims: Annotated[int | None, Option(help=pretrained.DIMS)] = None,
    prior: Annotated[str | None, Option(metavar="A,B", help=pretrained.PRIOR)] = None,
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

    --to safetensors is for the policies that come with gradband: it writes a
    policy file, which you can upload to gradband serve.

    Examples:

      gradband export policy.safetensors --to onnx

      gradband export runs/uniform-2-lstm/policy.safetensors --out lstm.onnx

      gradband export pretrained --arms 5 --horizon 2000

      gradband export pretrained-linear --to safetensors --arms 5 --dims 3 --horizon 2000
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    known = pretrained.is_pretrained(str(file))
    if to == "safetensors" and not known:
        raise InputError(f"{file} is a policy file already: --to safetensors is for pretrained policies")
    policy = find_policy(file, trust, arms, horizon, dims, prior)
    target = out or (Path(f"{policy.policy.name}.{to}") if known else file.with_suffix(f".{to}"))
    if target.is_dir() or target.resolve() == file.resolve():
        raise InputError(f"the model can't be written to {target}: choose another file")
    about, lines = (export_onnx if to == "onnx" else export_file)(policy, target)
    first = f"{target}: {about['policy']}, {about['bytes']:,} bytes"
    result = {**about, "files": {"model": str(target)}}
    terminal.emit(result, json, lambda: print(first, *lines, sep="\n"))


def find_policy(
    file: Path,
    trust: list[Path] | None,
    arms: int | None,
    horizon: int | None,
    dims: int | None,
    prior: str | None,
) -> "Learned":
    """The policy in a file, or one that comes with the package, for numbers of arms and rounds."""
    import gradband as gb

    if not pretrained.is_pretrained(str(file)):
        pretrained.refuse({"--arms": arms, "--horizon": horizon, "--dims": dims, "--prior": prior})
        return gb.load(file, trust)
    policy = pretrained.pretrained(str(file), arms, horizon, dims, prior)
    return gb.Learned(policy, policy.init(None), {}, {})


def export_onnx(policy: "Learned", target: Path) -> tuple[dict[str, Any], list[str]]:
    """Writes the ONNX model; returns what JSON and lines of text say about it."""
    from gradband.policies.onnx import as_onnx, write

    model = as_onnx(policy)
    shared.make_folder(target.parent)
    write(model, target)
    inputs, outputs = (
        [describe(entry) for entry in ends] for ends in (model.graph.input, model.graph.output)
    )
    about = {"policy": model.graph.name, "inputs": inputs, "outputs": outputs, "bytes": model.ByteSize()}
    return about, [f"takes {', '.join(inputs)}", f"gives {', '.join(outputs)}"]


def export_file(policy: "Learned", target: Path) -> tuple[dict[str, Any], list[str]]:
    """Writes the policy file."""
    shared.make_folder(target.parent)
    policy.save(target)
    return {"policy": policy.policy.name, "bytes": target.stat().st_size}, []


def describe(entry: Any) -> str:
    """An input or output: its name, kind and shape."""
    import onnx

    tensor = entry.type.tensor_type
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return f"{entry.name} {kind}[{', '.join(str(size.dim_value) for size in tensor.shape.dim)}]"
