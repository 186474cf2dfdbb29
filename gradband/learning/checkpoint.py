"""The state of training: what changes from iteration to iteration, and its checkpoint."""

import dataclasses
import functools
import math
import os
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from gradband.core import files, tensor_file
from gradband.core.errors import InputError, shown, whole
from gradband.core.pytrees import flattened
from gradband.engine import processes
from gradband.gradient.critic import Critic
from gradband.gradient.estimator import FEW, Estimate
from gradband.learning import interruption
from gradband.learning.ascent import Steps
from gradband.policies import Params
from gradband.policies.base import fits

HISTORY = ("horizon", "norm", "regret", "regret_se")


@dataclasses.dataclass(frozen=True)
class Step:
    """What an iteration shows of itself: the gradient's norm and the regret at its parameters."""

    iteration: int
    iterations: int
    horizon: int
    params: Params
    norm: float
    regret: float
    regret_se: float


@functools.cache
def _writer() -> ThreadPoolExecutor:
    """The thread that writes checkpoints, one after the other."""
    return ThreadPoolExecutor(1, thread_name_prefix="gradband-checkpoint")


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    return {k: v for name in settings for k, v in _flat(settings[name], f"{prefix}.{name}").items()}


ABSENT, READ, UNREADABLE = b"", b"+", b"-"
"""what the first process tells the others of a file: the bytes follow, or the reason"""


def _found(path: Path) -> bytes:
    """What the first process finds at a path, and others need not have."""
    try:
        return READ + files.read(path) if os.path.lexists(path) else ABSENT
    except InputError as error:
        return UNREADABLE + str(error).encode(errors="surrogateescape")


class TrainingState:
    """What changes from iteration to iteration, and can be stored and restored."""

    def __init__(self, params: Params, checkpoint: Path | None, settings: dict[str, Any]) -> None:
        self.params = self.stage_start = self.good = params
        self.stage = self.iteration = 0
        self.state: Any = None
        self.stopped = ""
        self.critic: Critic | None = None
        self.history: dict[str, list[Any]] = {name: [] for name in (*HISTORY, "params")}
        self.checkpoint = checkpoint
        self.settings = files.finite(settings)
        self.restored: list[np.ndarray] | None = None
        self._settings = files.to_json(self.settings)
        self._keep = True
        self._writing: Future[None] | None = None

    def start_at(self, params: Params) -> Params:
        """Starts from other parameters, unless training was restored; returns them."""
        if self.restored is None:
            self.params = self.stage_start = self.good = params
        return params

    def enter(self, stage: int) -> None:
        """Starts a stage, unless it is the one that was restored."""
        if self.restored is None:
            self.stage, self.iteration, self.critic = stage, 0, None
            self.stage_start = self.params

    def begin(self, state: Any, critic: Critic | None) -> None:
        """Takes the optimiser's first state and the critic, or those that were restored."""
        self.state = state
        if self.restored is None:
            self.critic = critic
        else:
            shapes = [None if given is None else given.moments.shape for given in (self.critic, critic)]
            if shapes[0] != shapes[1]:
                raise InputError("the checkpoint was written with another critic")
            if [np.shape(leaf) for leaf in jax.tree.leaves(state)] != [a.shape for a in self.restored]:
                raise InputError("the checkpoint was written with another optimiser")
            self.state = jax.tree.unflatten(jax.tree.structure(state), self.restored)
            self.restored = None

    def take(self, est: Estimate, steps: Steps, alpha: float, horizon: int) -> None:
        """One step of gradient ascent; back to the last good parameters if these had faults."""
        self.iteration += 1
        if self.critic is not None and est.moments is not None:
            self.critic = self.critic.after(est.moments)
        flat = flattened(self.params)
        count = est.regrets.size
        spread = est.regrets.std(ddof=1) if count > 1 else math.nan
        few = flat if flat.size <= FEW else flat[:0]  # the weights of a network are too many to keep
        seen = (horizon, est.norm, est.regrets.mean(), spread / math.sqrt(count), few)
        for name, value in zip(self.history, seen, strict=True):
            self.history[name].append(value)
        if est.fault or not math.isfinite(est.norm):
            what = est.fault or "the gradient was not finite"
            self.stopped = f"{what}, in iteration {self.iteration}"
            self.params = self.good if est.fault else self.params
            return
        self.good = self.params
        ascent = est.mean.astype(np.float32)
        params, state = steps.take(self.params, self.state, ascent, np.float32(alpha))
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
            self.stopped = f"the parameters were not finite after iteration {self.iteration}"
            return
        self.params, self.state = params, state

    def save(self) -> None:
        """Writes the checkpoint, in the first process, while learning goes on; `close` waits for it."""
        if self.checkpoint is None or not processes.first():
            return
        arrays = {
            "params": flattened(self.params),
            "stage_start": flattened(self.stage_start),
            "good": flattened(self.good),
        }
        if self.critic is not None:
            arrays["critic"] = self.critic.moments
        for i, leaf in enumerate(jax.tree.leaves(self.state)):
            arrays[f"optimizer.{i}"] = np.asarray(leaf)
        for name, values in self.history.items():
            arrays[f"history.{name}"] = np.asarray(values, np.float64)
        place = {"stage": self.stage, "iteration": self.iteration, "stopped": self.stopped}
        about = f'{{"settings": {self._settings}, {files.to_json(place)[1:]}'
        self.close()
        self._writing = _writer().submit(
            tensor_file.save, self.checkpoint, "checkpoint", arrays, about, keep=self._keep
        )
        self._keep = True

    def interrupted(self, number: int) -> interruption.Interrupted:
        """What to raise after a signal: says what is kept."""
        done, total = len(self.history["regret"]), sum(self.settings["training"]["stages"])
        keeper = self.checkpoint if processes.first() else "the first process"
        what = f"interrupted after iteration {done} of {total}, which {keeper} keeps"
        return interruption.Interrupted(f"{what}: resume goes on from there", number)

    def curves(self) -> dict[str, np.ndarray]:
        """The history as arrays; of a network without its weights."""
        found = {name: np.asarray(self.history[name], np.float32) for name in HISTORY}
        kept = np.asarray(self.history["params"], np.float32)
        count = flattened(self.params).size
        return found | {"params": kept.reshape(len(found["regret"]), count if count <= FEW else 0)}

    def close(self) -> None:
        """Waits until the last checkpoint is on disk."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def restore(self) -> None:
        """Goes back to the checkpoint, if there is one, or to the one before it if that is damaged."""
        if self.checkpoint is None:
            raise InputError("resuming needs a checkpoint file")
        damage: list[InputError] = []
        for path in (self.checkpoint, files.before(self.checkpoint)):
            found = processes.shared(_found(path))
            if found == ABSENT:
                continue
            try:
                if found.startswith(UNREADABLE):
                    raise InputError(found.removeprefix(UNREADABLE).decode(errors="surrogateescape"))
                arrays, about = tensor_file.parse(found.removeprefix(READ), "checkpoint", path)
                self._compare(about, path)
                vars(self).update(self._restored(arrays, about, path))
            except OtherSettingsError:
                raise
            except InputError as error:
                damage.append(error)
                continue
            for fault in damage:
                warnings.warn(f"{fault}; going on from {path}, iteration {self.iteration}", stacklevel=2)
            self._keep = not damage  # what is damaged does not take the place of the good one before it
            return
        if damage:
            raise damage[0]

    def _compare(self, about: dict[str, Any], path: Path) -> None:
        """Refuses a checkpoint of other settings, with the difference."""
        try:
            theirs, mine = _flat(about.get("settings")), _flat(self.settings)
        except RecursionError:
            raise InputError(f"{path} is not a complete checkpoint: its settings are too deep") from None
        for name in mine | theirs:
            if not name.startswith(".versions") and theirs.get(name) != mine.get(name):
                was, now = (shown(given[name]) if name in given else "not set" for given in (theirs, mine))
                raise OtherSettingsError(
                    f"{path} was written with other settings: {name[1:]} was {was}, now it is {now}"
                )

    def _restored(self, arrays: dict[str, np.ndarray], about: dict[str, Any], path: Path) -> dict[str, Any]:
        """What a checkpoint says of training, if it says all of it."""
        try:
            unravel = ravel_pytree(self.params)[1]
            found: dict[str, Any] = {
                "params": unravel(jnp.asarray(arrays["params"])),
                "stage_start": unravel(jnp.asarray(arrays["stage_start"])),
                "good": unravel(jnp.asarray(arrays["good"])),
                "stage": whole("stage", about["stage"], 0),
                "iteration": whole("iteration", about["iteration"], 0),
                "stopped": str(about["stopped"]),
                "critic": Critic(arrays["critic"]) if "critic" in arrays else None,
            }
            if found["critic"] is not None and not fits(found["critic"].moments):
                raise ValueError("its critic has numbers that are not finite")
            count = sum(name.startswith("optimizer.") for name in arrays)
            found["restored"] = [arrays[f"optimizer.{i}"] for i in range(count)]
            found["history"] = {name: list(arrays[f"history.{name}"]) for name in self.history}
            done = sum(self.settings["training"]["stages"][: found["stage"]]) + found["iteration"]
            lengths = {len(values) for values in found["history"].values()}
            if lengths != {done} or not fits(arrays["params"]):
                raise ValueError("its history does not fit its iteration")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a complete checkpoint: {error}") from None
        return found


class OtherSettingsError(InputError):
    """A checkpoint that belongs to other settings."""
