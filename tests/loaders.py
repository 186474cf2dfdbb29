"""Whatever reads files, as functions of bytes, and valid bytes to begin with: for fuzzers.

Whatever the bytes, a loader gives what was asked for or one `InputError`. Where a file has checksums,
damaged bytes would never get far: some cases are sealed with right ones, or built around any header.
"""

import atexit
import functools
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

import gradband as gb
from gradband import problems
from gradband.core import files, tensor_file
from gradband.core.errors import InputError
from gradband.evaluation import compare_with_defaults
from gradband.learning.checkpoint import TrainingState
from gradband.learning.recipe_file import load_recipe
from gradband.play import journal, service
from gradband.play.playable import Playable
from gradband.play.player import Player
from gradband.play.states import check_state
from gradband.problems import past_experiments, reward_tables


@functools.cache
def scratch():
    """The folder that loaders read from, in memory if there is one."""
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="gradband-fuzz-", dir=where))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def playable(contexts=False):
    """What players play."""
    if contexts:
        return Playable(gb.policies.LinSoftElim(dims=2).bind(3, 20), {"a": np.array(0.7)})
    return Player(written("played.safetensors", made_by(played_file()))).playable


@functools.cache
def header(contexts=False):
    """The first line of a journal, without its checksum."""
    path = scratch() / f"fresh-{contexts}"
    journal.Journal(path, Player(playable(contexts), 0)).close()
    return path.read_bytes().rstrip()[: -len(b',"crc":"00000000"}')] + b"}\n"


def features(player):
    """A context, if the player's policy takes one."""
    return np.ones((len(player.arms), player.playable.dims)) if player.playable.dims else None


def written(name, content):
    path = scratch() / name
    path.write_bytes(content)
    return path


def built(content, kind, entries):
    """A safetensors file without a checksum: three bytes say what each array is, the rest its metadata."""
    arrays = {}
    for name, (what, size, value) in zip(entries, batched(content), strict=False):
        shape = [(size >> 2 * axis) % 4 for axis in range(what % 4)]
        dtype = (np.float32, np.float64, np.int32, np.uint8)[what >> 2 & 3]
        number = {255: np.nan, 254: np.inf, 253: -1, 252: 1e30}.get(value, value / 16)
        if what < 128:
            with np.errstate(all="ignore"):
                arrays[name] = np.full(shape, number).astype(dtype)
    text = content[3 * len(entries) :].decode("utf-8", "replace")
    return bytes_of(arrays, {"format": f"gradband-{kind}", "version": "1", "about": text})


def batched(content):
    return zip(content[::3], content[1::3], content[2::3], strict=False)


def described(arrays, entries):
    """The bytes from which `built` makes arrays of the same shapes, as far as it can."""
    found = b""
    for name in entries:
        if name in arrays:
            shape = arrays[name].shape
            found += bytes([len(shape), sum(min(n, 3) << 2 * axis for axis, n in enumerate(shape)), 16])
        else:
            found += b"\xff\0\0"
    return found


def bytes_of(arrays, metadata):
    from safetensors.numpy import save

    return save(arrays, metadata)


def sealed(text):
    """Lines with right checksums, as a journal has them."""
    lines, total = [], 0
    for body in text.split(b"\n"):
        total = zlib.crc32(body, total)
        lines.append(body[:-1] + b',"crc":"%08x"}\n' % total)
    return b"".join(lines)


# The loaders: each takes bytes, and may only raise InputError.

PARAMS = [f"params.{name}" for name in ("theta", "a", "b", "table", "w", "thresholds", "values")]


def policy(content):
    made = built(content[1:], "policy", PARAMS) if content[:1] > b"\x7f" else content[1:]
    path = written("policy.safetensors", made)
    refused = []
    for load in (gb.load, select_once):
        try:
            load(path)
        except InputError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def select_once(path):
    player = Player(path)
    player.select(context=features(player))


def problem(content):
    path = written("problem.toml", content)
    found = problems.load(str(path))
    found.describe()
    if (fit := problems.fit_of(str(path))) is not None:
        compare_with_defaults.other_priors(*fit)
        past_experiments.load(fit[1] / fit[0]["file"], "held-out")


def table(content):
    if content[:1] > b"\x7f":  # an array in a whole archive
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("rewards.npy", content[1:])
        reward_tables.read_table(written("rewards.npz", archive.getvalue()))
    else:
        reward_tables.read_table(written("rewards.npz", content[1:]))


PARTS = [f"fitted.{name}" for name in ("starts", "pulls", "successes")]


def experiments(content):
    if content[:1] > b"\xbf":
        path = written("tests.safetensors", built(content[1:], "experiments", PARTS))
        past_experiments.load(path, "fitted")
    else:
        past_experiments.read(
            written("tests.csv", content[1:]), arms_matter=content[:1] > b"\x7f", drop=True
        )


ENTRIES = ["params", "stage_start", "good", "critic", "optimizer.0"]
ENTRIES += [f"history.{name}" for name in ("horizon", "norm", "regret", "regret_se", "params")]
SETTINGS = {"training": {"stages": [3]}, "seed": 0}


def checkpoint(content):
    made = built(content[1:], "checkpoint", ENTRIES) if content[:1] > b"\x7f" else content[1:]
    TrainingState({"theta": np.float32(1)}, written("checkpoint.safetensors", made), SETTINGS).restore()


def journals(content, contexts=False):
    made = sealed(header(contexts) + content[1:]) if content[:1] > b"\x7f" else content[1:]
    player = Player(playable(contexts), 0)
    with journal.Journal(written("journal", made), player):
        player.probabilities(features(player))


def reports(content):
    made = sealed(header() + content[1:]) if content[:1] > b"\x7f" else content[1:]
    report = gb.report(written("journal", made), now=4e9)
    json.dumps(report.as_dict(), allow_nan=False)
    assert len(str(report)) < len(report.to_html())
    assert report.to_csv()


def parquets(content):
    """Slow, since each file is read by a process of its own first."""
    if content[:1] > b"\x7f":
        past_experiments.read(written("tests.parquet", content[1:]), drop=True)
    else:
        reward_tables.read_table(written("rewards.parquet", content[1:]))


def state(content, contexts=False):
    player = Player(playable(contexts), 0)
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        return
    player.restore(given)
    player.select(context=features(player))
    check_state(player, player.state())


def requests(content, contexts=False):
    player = Player(playable(contexts), 0)
    for number, line in enumerate(content.split(b"\n")):
        json.loads(service.respond(player, None, line, number))


def recipe(content):
    load_recipe(written("recipe.toml", content), gb.policies.SoftElim().bind(2, 20))


LOADERS = {
    "policy": policy,
    "problem": problem,
    "table": table,
    "parquet": parquets,
    "experiments": experiments,
    "checkpoint": checkpoint,
    "recipe": recipe,
    "journal": journals,
    "report": reports,
    "state": state,
    "requests": requests,
    "journal-with-contexts": functools.partial(journals, contexts=True),
    "state-with-contexts": functools.partial(state, contexts=True),
    "requests-with-contexts": functools.partial(requests, contexts=True),
}


# Valid files, which the fuzzer begins with.


def made_by(save):
    path = scratch() / "made"
    save(path)
    return path.read_bytes()


def played_file():
    return gb.learn("softelim", gb.problems.named("two-point", horizon=20), iterations=1, instances=64).save


def torn(content, entries):
    """A file as `built` makes it again: its arrays described, and its metadata."""
    arrays, metadata = tensor_file.from_bytes(content)
    return described(arrays, entries) + metadata["about"].encode()


def played(contexts=False):
    """Lines of a journal, and the state after them."""
    events = []
    player = Player(playable(contexts), 0, record=events.append)
    for i in range(6):
        arm = player.select(f"d{i}" if i % 2 else None, context=features(player))
        if i != 3:
            player.update(arm, i % 2)
    player.add_arm()
    player.retire(0)
    if contexts:
        player.select(unit="u", context=features(player))
    else:
        player.update_many(player.select_many(5), [0, 1, 1])
    return [json.dumps(event, separators=(",", ":")).encode() for event in events], player.state()


def corpus(name):
    """Bytes to begin with."""
    if name == "policy":
        whole = [made_by(played_file())]
        from every_policy import ALL, BY_GROUP, CONTEXTUAL, learned

        whole += [made_by(learned(policy).save) for policy in (*ALL, *CONTEXTUAL, BY_GROUP)]
        return [b"\0" + content for content in whole] + [
            b"\xff" + torn(content, PARAMS) for content in whole
        ]
    if name == "problem":
        written("given.npz", npz())
        written("given.csv", b"size,kind\n1,a\n2,b\n3,a\n4,b\n5,a\n")
        past_experiments.save(scratch() / "given.safetensors", split())
        texts = [files.toml(problems.named(known).describe()) for known in problems.NAMED]
        rest = {"horizon": 6, "name": "x"}
        rest |= {"fit": {"chosen": "beta", "file": "given.safetensors", "others": []}}
        for prior in (
            {"kind": "table", "file": "given.npz", "held_out": 0.5},
            {"kind": "classification", "file": "given.csv", "label": "kind", "features": ["size"]},
            {"kind": "linear-by-arm", "arms": 2, "dims": 2, "mean": [0.0, 1.0], "pool": [[1.0, 2.0]]},
            {"kind": "hierarchical", "arms": 3, "a": 1.0, "b": 2.0, "strength": 3.0},
            {"kind": "mixture", "arms": 3, "weights": [0.5, 0.5], "a": [1.0, 2.0], "b": [3.0, 4.0]},
            {"kind": "gaussian", "arms": 2, "mean": 0.0, "sd": 1.0},
            {"kind": "beta", "arms": 2, "a": [1.0, 2.0]},
        ):
            texts.append(files.toml({**rest, "fit": rest["fit"] | {"others": [prior]}, "prior": prior}))
        texts.append('horizon=9\n[prior]\nkind="table"\nfile="../../etc/passwd"\n')
        return [text.encode() for text in texts]
    if name == "table":
        array = io.BytesIO()
        np.save(array, np.ones((4, 2, 3)))
        return [b"\0" + npz(), b"\xff" + array.getvalue()]
    if name == "parquet":
        numbers = columns_of(instance=[0, 0, 1, 1], arm=[0, 1, 0, 1], round=[0] * 4, reward=[0.5] * 4)
        words = columns_of(experiment=[*"aabb"], arm=[*"xyxy"], pulls=[5] * 4, successes=[1, 2, 3, 4])
        return [b"\0" + numbers, b"\xff" + words]
    if name == "experiments":
        rows = "experiment,arm,pulls,successes\na,x,10,2\na,y,10,3\nb,x,5,0\nb,y,5,5\nc,x,1,1\nc,y,2,1\n"
        pulls = "experiment,arm,reward\na,x,1\na,y,0\nb,x,0.5\nb,y,1\n"
        return [
            b"\0" + rows.encode(),
            b"\x80" + rows.encode(),
            b"\0" + pulls.encode(),
            b"\xff" + torn(made_by(lambda path: past_experiments.save(path, split())), PARTS),
        ]
    if name == "recipe":
        page = (Path(__file__).parents[1] / "docs/recipes.md").read_text(encoding="utf-8")
        return [page.split("```toml\n")[1].split("```")[0].encode(), b'base = "paper"\noptimizer = "paper"']
    if name == "checkpoint":
        path = scratch() / "checkpoint.safetensors"
        state = TrainingState({"theta": np.float32(1)}, path, SETTINGS)
        state.save()
        state.close()
        return [b"\0" + path.read_bytes(), b"\xff" + torn(path.read_bytes(), ENTRIES)]
    contexts = name.endswith("with-contexts")
    events, after = played(contexts)
    if name.startswith(("journal", "report")):
        return [b"\0" + sealed(header(contexts) + b"\n".join(events)), b"\xff" + b"\n".join(events)]
    if name.startswith("state"):
        return [json.dumps(state).encode() for state in (after, Player(playable(contexts), 0).state())]
    if contexts:
        x, named = [[0.5, 1], [0, 1], [-1, 2]], {"0": [0.5, 1], "1": [0, 1], "2": [-1, 2]}
        lines = [{"op": "select", "context": x}, {"op": "weights", "context": named}]
        lines += [
            {"op": "select", "unit": "u", "context": named},
            {"op": "update", "id": "#1", "reward": 2},
        ]
        lines += [{"op": "recommend", "context": x}, {"op": "probabilities", "context": x}, {"op": "state"}]
        return [b"\n".join(json.dumps(line).encode() for line in lines)]
    lines = [{"op": "select"}, {"op": "update", "id": "#1", "reward": 1}, {"op": "state"}, {"op": "add"}]
    lines += [{"op": "retire", "arm": 0}, {"op": "select", "count": 5, "id": "x"}, {"op": "probabilities"}]
    lines += [{"op": "update", "id": "x", "rewards": [0, 1, 1]}, {"op": "restore", "state": after}]
    return [b"\n".join(json.dumps(line).encode() for line in lines)]


def npz():
    buffer = io.BytesIO()
    np.savez(buffer, rewards=np.ones((4, 2, 6), np.float32))
    return buffer.getvalue()


def columns_of(**columns):
    import polars

    buffer = io.BytesIO()
    polars.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def split():
    starts = np.array([0, 2, 4, 6])
    found = past_experiments.Experiments(starts, np.full(6, 10.0), np.arange(6.0))
    return {"fitted": found, "held-out": found}
