"""The state of training, which changes from iteration to iteration, and its checkpoint."""

import dataclasses
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
from gradband.core.errors import InputError, number, shown, whole
from gradband.core.pytrees import flattened
from gradband.core.statistics import Mean
from gradband.engine import processes
from gradband.gradient.critic import Critic
from gradband.gradient.estimator import FORWARD, Estimate
from gradband.learning import interruption
from gradband.learning.ascent import Steps
from gradband.policies import Params
from gradband.policies.base import fits
from gradband.policies.policy_file import params_in_words

HISTORY = ("horizon", "norm", "regret", "regret_se")
FRESH = 0.5  # weight of the last batch in the threshold of a tail
PARAMS = ("params", "stage_start", "good")
# What the first process sends to the others: that there is no file, its bytes, or why it is unreadable.
ABSENT, READ, UNREADABLE = b"", b"+", b"-"
WRITER = ThreadPoolExecutor(1, thread_name_prefix="gradband-checkpoint")  # one checkpoint at a time


@dataclasses.dataclass(frozen=True)
class Step:
    """What is reported about an iteration: the gradient's norm and the regret at its parameters."""

    iteration: int
    iterations: int
    horizon: int
    params: Params
    norm: float
    regret: float
    regret_se: float
    name: str = ""
    """of the policy, if several are learned in turn"""
    done: float | None = None
    """the share of the whole work, if this is a part of it"""

    @property
    def share(self) -> float:
        """The share of the work that is done."""
        return self.iteration / self.iterations if self.done is None else self.done

    def __str__(self) -> str:
        where = f"{self.iteration}/{self.iterations}  {params_in_words(self.params)}  n {self.horizon}"
        where = f"{self.name}  {where}" if self.name else where
        return f"{where}  |g| {self.norm:.3g}  regret {self.regret:.2f}"


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    return {k: v for name in settings for k, v in _flat(settings[name], f"{prefix}.{name}").items()}


def _found(path: Path) -> bytes:
    """The file at a path, as the first process sends it to the others, which need not have it."""
    try:
        return READ + files.read(path) if os.path.lexists(path) else ABSENT
    except InputError as error:
        return UNREADABLE + str(error).encode(errors="surrogateescape")


class TrainingState:
    """The state of training, which can be saved and restored."""

    def __init__(self, params: Params, checkpoint: Path | None, settings: dict[str, Any]) -> None:
        self.params = self.stage_start = self.good = params
        self.stage = self.iteration = 0
        self.state: Any = None
        self.stopped = ""
        self.critic: Critic | None = None
        self.threshold: float | None = None
        self.history: dict[str, list[Any]] = {name: [] for name in (*HISTORY, "params")}
        self.checkpoint = checkpoint
        self.settings = files.finite(settings)
        self.restored: list[np.ndarray] | None = None
        self._settings = files.to_json(self.settings)
        self._keep = True
        self._writing: Future[None] | None = None

    def start_at(self, params: Params) -> Params:
        """Starts from these parameters, unless training was restored; returns them."""
        if self.restored is None:
            self.params = self.stage_start = self.good = params
        return params

    def enter(self, stage: int) -> None:
        """Starts a stage, unless it was restored."""
        if self.restored is None:
            self.stage, self.iteration, self.critic, self.threshold = stage, 0, None, None
            self.stage_start = self.params

    def move_threshold(self, quantile: float) -> None:
        """Moves τ towards the quantile of a batch, for the batches that follow.

        A batch never uses its own quantile, which would bias the gradient.
        """
        before = quantile if self.threshold is None else self.threshold
        self.threshold = before + FRESH * (quantile - before)

    def begin(self, state: Any, critic: Critic | None) -> None:
        """Sets the optimiser's first state and the critic, or those that were restored."""
        if self.restored is None:
            self.state, self.critic = state, critic
            return
        shapes = [None if given is None else given.moments.shape for given in (self.critic, critic)]
        if shapes[0] != shapes[1]:
            raise InputError("the checkpoint was written with another critic")
        if [np.shape(leaf) for leaf in jax.tree.leaves(state)] != [a.shape for a in self.restored]:
            raise InputError("the checkpoint was written with another optimiser")
        self.state = jax.tree.unflatten(jax.tree.structure(state), self.restored)
        self.restored = None

    def take(self, est: Estimate, steps: Steps, alpha: float, horizon: int) -> None:
        """One step of gradient ascent; returns to the last good parameters if these fail."""
        self.iteration += 1
        if self.critic is not None and est.moments is not None:
            self.critic = self.critic.after(est.moments)
        flat = flattened(self.params)
        regret = Mean.of(est.regrets)
        few = flat if flat.size <= FORWARD else flat[:0]  # a network has too many weights to keep
        norm = est.norm
        seen = (horizon, norm, regret.mean, regret.se, few)
        for name, value in zip(self.history, seen, strict=True):
            self.history[name].append(value)
        if est.fault or not math.isfinite(norm):
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
        """Writes the checkpoint, in the first process, while learning continues; `close` waits for it."""
        if self.checkpoint is None or not processes.first():
            return
        arrays = {name: flattened(getattr(self, name)) for name in PARAMS}
        if self.critic is not None:
            arrays["critic"] = self.critic.moments
        for i, leaf in enumerate(jax.tree.leaves(self.state)):
            arrays[f"optimizer.{i}"] = np.asarray(leaf)
        for name, values in self.history.items():
            arrays[f"history.{name}"] = np.asarray(values, np.float64)
        place: dict[str, Any] = {"stage": self.stage, "iteration": self.iteration, "stopped": self.stopped}
        place |= {} if self.threshold is None else {"threshold": self.threshold}
        about = f'{{"settings": {self._settings}, {files.to_json(place)[1:]}'
        self.close()
        content = self.checkpoint, "checkpoint", arrays, about, self._keep
        self._writing = WRITER.submit(tensor_file.save, *content)
        self._keep = True

    def interrupted(self, number: int) -> interruption.Interrupted:
        """The exception to raise after a signal, which says what is saved."""
        done, total = len(self.history["regret"]), sum(self.settings["training"]["stages"])
        place = f"in {self.checkpoint}" if processes.first() else "by the first process"
        what = f"interrupted after iteration {done} of {total}, which is saved {place}"
        return interruption.Interrupted(f"{what}: resume continues from there", number)

    def curves(self) -> dict[str, np.ndarray]:
        """The history as arrays, without the weights of a network."""
        found = {name: np.asarray(self.history[name], np.float32) for name in HISTORY}
        kept = np.asarray(self.history["params"], np.float32)
        count = flattened(self.params).size
        return found | {"params": kept.reshape(len(found["regret"]), count if count <= FORWARD else 0)}

    def close(self) -> None:
        """Waits until the last checkpoint is on disk."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def restore(self) -> None:
        """Returns to the checkpoint, if there is one, or to the previous one if it is damaged."""
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
                warnings.warn(f"{fault}; resuming from {path}, iteration {self.iteration}", stacklevel=2)
            self._keep = not damage  # a damaged file must not replace the good one before it
            return
        if damage:
            raise damage[0]

    def _compare(self, about: dict[str, Any], path: Path) -> None:
        """Raises an error that names the difference if a checkpoint has other settings."""
        try:
            theirs, mine = _flat(about.get("settings")), _flat(self.settings)
        except RecursionError:
            raise InputError(
                f"{path} is not a complete checkpoint: its settings are nested too deeply"
            ) from None
        for name in mine | theirs:
            if not name.startswith(".versions") and theirs.get(name) != mine.get(name):
                was, now = (shown(given[name]) if name in given else "not set" for given in (theirs, mine))
                raise OtherSettingsError(
                    f"{path} was written with other settings: {name[1:]} was {was}, now it is {now}"
                )

    def _restored(self, arrays: dict[str, np.ndarray], about: dict[str, Any], path: Path) -> dict[str, Any]:
        """The training state in a checkpoint, which must be complete."""
        try:
            unravel = ravel_pytree(self.params)[1]
            found: dict[str, Any] = {
                **{name: unravel(jnp.asarray(arrays[name])) for name in PARAMS},
                "stage": whole("stage", about["stage"], 0),
                "iteration": whole("iteration", about["iteration"], 0),
                "stopped": str(about["stopped"]),
                "threshold": None if (tau := about.get("threshold")) is None else number("threshold", tau),
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
    """A checkpoint with other settings."""
