"""Folds a test's events, one after the other, into the sums from which a report is made.

    ledger = Ledger(arms=3, wait=86_400)
    for event in events:
        ledger.observe(event)
    print(ledger.report().sentence)

Memory does not grow with the test, except for decisions that wait for their rewards.
"""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import MOST, InputError, number, number_of_arms, shown, whole
from gradband.play.reporting.totals import AT_ONCE, MOST_PAIRS, ROUNDED, Counted, Logged, Totals

if TYPE_CHECKING:
    from gradband.play.reporting.report import Report

Event = dict[str, Any]


class Ledger:
    """What a report needs to know of a test, folded from its events."""

    def __init__(
        self,
        arms: int,
        labels: Sequence[str] | None = None,
        wait: float | None = None,
        default: float = 0.0,
    ) -> None:
        """Starts with no events.

        Args:
            arms: The number of arms at first.
            labels: Their names; by default their numbers.
            wait: Seconds after which a decision counts, with the reward that it has by then or the default.
                Without it a decision counts when its reward comes.
            default: The reward of a decision that got none in time.
        """
        self.arms = number_of_arms(arms)
        self.labels = (
            [str(arm) for arm in range(arms)] if labels is None else [str(name) for name in labels]
        )
        if len(self.labels) != arms:
            raise InputError(f"labels must name all {arms} arms, not {shown(labels)}")
        self.wait = None if wait is None else number("wait", wait, 0)
        self.default = number("default", default)
        self.active = np.ones(arms, bool)
        self.totals = Totals(arms, self.default)
        self.now: float | None = None  # the time of the latest event
        self.decisions = self.counted = self.late = self.defaults = self.unweighted = self.swaps = 0
        self.unit = self.binary = True  # all rewards so far are in [0, 1], are 0 or 1
        self.contexts = False  # whether arms were chosen by contexts
        self.before = 0  # events before the first, which are not known any more
        self.latest: list[float] | None = None  # probabilities of the latest decision
        self._open: OrderedDict[str, Logged] = OrderedDict()  # in the order of decisions
        self._known: np.ndarray | None = None
        self._drawn: list[Logged] = []  # to be summed
        self._counted: list[Counted] = []

    @property
    def open(self) -> int:
        """The number of decisions that don't count yet."""
        return len(self._open)

    @property
    def pairs(self) -> bool:
        """Whether the evidence that an arm is better than another is known for all pairs."""
        return self.arms**2 <= MOST_PAIRS and self.counted > self.unweighted

    def observe(self, event: Event) -> None:
        """Folds the next event of the test."""
        if not isinstance(event, dict):
            raise InputError(f"an event must be a dictionary, not {shown(event)}")
        if event.get("t") is not None:
            time = number("t of an event", event["t"])
            self.now = time if self.now is None else max(self.now, time)
            self._settle()
        op = event.get("op")
        if op == "select":
            self._select(event)
        elif op == "update":
            self._update(event)
        elif op == "expire":
            self._expire(event)
        elif op == "add":
            self._add(event)
        elif op == "retire":
            self._retire(event)
        elif op == "swap":
            self.swaps += 1
        else:
            raise InputError(f"there is no op {shown(op)}")

    def begin_with(self, state: Any) -> None:
        """Begins in the middle of a test, with the arms that a player's state says.

        Decisions that were open then never count: those of them that got rewards meanwhile are lost, so the
        others would be a biased sample.
        """
        active = state.get("active") if isinstance(state, dict) else None
        if not isinstance(active, list):
            raise InputError("this snapshot does not say which arms are active")
        places = [self._arm(arm) for arm in active]
        self.active = np.isin(np.arange(self.arms), places)
        if not places:
            raise InputError("this snapshot has no active arm")
        labels = state.get("labels")
        if isinstance(labels, list) and len(labels) == self.arms:
            self.labels = [str(label) for label in labels]

    def report(
        self, now: float | None = None, confidence: float = 0.95, tolerance: float = 0.0
    ) -> "Report":
        """The report on everything that counts by `now`, in seconds since 1970.

        Args:
            now: At least the time of the last event, which is also the default.
            confidence: Of all intervals and of the advice.
            tolerance: A difference in reward per decision that does not matter to you.
        """
        from gradband.play.reporting.report import make_report

        then = copy.copy(self)
        then.totals = copy.deepcopy(self.totals)
        then._open = self._open.copy()
        then._drawn, then._counted = list(self._drawn), list(self._counted)
        if now is not None:
            then.now = max(number("now", now), then.now or now)
        then._settle()
        then._sum_drawn()
        then._sum_counted()
        return make_report(then, confidence, tolerance)

    def _select(self, event: Event) -> None:
        id, time = event.get("id"), event.get("t")
        if not isinstance(id, str) or id in self._open:
            raise InputError(f"a decision needs an id that is not in use, not {shown(id)}")
        if "arms" in event:
            given = _numbers("arms", event["arms"], self.arms, 0, MOST)
            pulls: Any = [whole("pulls", int(n) if n == int(n) else n, 0) for n in given]
            propensity: Any = _numbers("p", event.get("p"), self.arms, 0, 1 + 1e-9)
            shares = propensity
            if any(n and not p for n, p in zip(pulls, shares, strict=True)):
                raise InputError("an arm with probability 0 cannot be pulled")
        else:
            pulls = self._arm(event.get("arm"))
            propensity = number("p", event.get("p"), 0, 1 + 1e-9)
            if propensity == 0:
                raise InputError("an arm with probability 0 cannot be pulled")
            shares = event.get("ps")
            if shares is not None:
                shares = _numbers("ps", shares, self.arms, 0, 1 + ROUNDED)
                if pulls >= len(shares) or abs(shares[pulls] - propensity) > 2 * ROUNDED:
                    raise InputError(f"ps must have the chosen arm's probability p, {propensity:g}")
        if shares is not None and not 0.5 < sum(shares) < 1.5:
            raise InputError(f"probabilities must sum to 1, not {sum(shares):g}")
        if self._known is None:
            self._known = self.totals.counts[:2].copy()
        made = Logged(time, pulls, propensity, shares, self.active, self._known)
        self.contexts = self.contexts or "xs" in event
        self._open[id] = made
        self.latest = shares
        self.decisions += 1 if isinstance(pulls, int) else int(sum(pulls))
        self._drawn.append(made)
        if len(self._drawn) == AT_ONCE:
            self._sum_drawn()

    def _update(self, event: Event) -> None:
        id = event.get("id")
        made = self._open.get(id) if isinstance(id, str) else None
        if made is None or made.over:
            if self.wait is None and not event.get("late") and not self.before:
                raise InputError(f"no decision {shown(id)} waits for its reward")
            self.late += not self.before or bool(event.get("late"))
            return
        if isinstance(made.pulls, int):
            reward: Any = number("a reward", event.get("reward"))
        else:
            reward = _numbers("sums", event.get("sums"), len(made.pulls))
            if any(not 0 <= ones <= pulls for ones, pulls in zip(reward, made.pulls, strict=True)):
                raise InputError(
                    "in a report, rewards of a batch must be 0 or 1, so no sum may exceed the number of "
                    "pulls: send other rewards one by one"
                )
        self._finish(str(id), made, reward)

    def _expire(self, event: Event) -> None:
        id = str(event.get("id"))
        made = self._open.get(id)
        if made is not None:
            self._finish(id, made, None)

    def _finish(self, id: str, made: Logged, reward: "float | list[float] | None") -> None:
        """A reward has come, or none will."""
        if self.wait is None or made.time is None:
            del self._open[id]
            self._count(made, made.known, reward)
        else:
            made.reward, made.over = reward, reward is None
            self._settle()

    def _settle(self) -> None:
        """Counts decisions in their order, from the oldest to the first that may still get a reward."""
        while self._open and self.wait is not None and self.now is not None:
            timed = ((id, made) for id, made in self._open.items() if made.time is not None)
            id, made = next(timed, ("", None))
            if made is None or (self.now < (made.time or 0) + self.wait and not made.over):
                return
            del self._open[id]
            # In the order of decisions, all earlier rewards may be used, whenever they came.
            self._count(made, self.totals.counts[:2].copy(), made.reward)

    def _count(self, made: Logged, known: np.ndarray, reward: Any) -> None:
        """Lets a decision count, with the default if it has no reward."""
        counts = self.totals.counts
        if isinstance(made.pulls, int):
            self.defaults += reward is None
            value: Any = self.default if reward is None else reward
            counts[0, made.pulls] += 1
            counts[1, made.pulls] += value
            counts[2, made.pulls] += value * value
            self.counted += 1
            self.unit = self.unit and 0 <= value <= 1
            self.binary = self.binary and value in (0, 1)
        else:
            pulls = np.array(made.pulls, float)
            self.defaults += int(pulls.sum()) if reward is None else 0
            value = (self.default * pulls).tolist() if reward is None else reward
            squares = self.totals.squares_of(pulls, np.array(value), reward is None)
            counts[:, : len(pulls)] += [pulls, value, squares]
            self.counted += int(pulls.sum())
            if reward is None:
                self.unit = self.unit and 0 <= self.default <= 1
                self.binary = self.binary and self.default in (0, 1)
        self._known = None
        self._counted.append(Counted(made, known, value, reward is None))
        if len(self._counted) == AT_ONCE:
            self._sum_counted()

    def _add(self, event: Event) -> None:
        arm = whole("arm", event.get("arm"), 0)
        if arm != self.arms:
            raise InputError(f"the next arm has the number {self.arms}, not {arm}")
        self._sum_drawn()
        self._sum_counted()
        self.arms = number_of_arms(arm + 1)
        self.labels = [*self.labels, str(event.get("label") or arm)]
        self.active = np.append(self.active, True)
        self.totals.widen(self.arms)
        self._known = None

    def _retire(self, event: Event) -> None:
        arm = self._arm(event.get("arm"))
        if self.active.sum() == 1:
            raise InputError(f"arm {arm} is the last one, and cannot be retired")
        self.active = self.active.copy()
        self.active[arm] = False

    def _arm(self, given: Any) -> int:
        """The number of an active arm."""
        arm = whole("arm", given, 0)
        if arm >= self.arms or not self.active[arm]:
            raise InputError(f"there is no arm {arm}")
        return arm

    def _sum_drawn(self) -> None:
        """Adds the latest decisions to the totals."""
        if self._drawn:
            self.totals.add_drawn(self._drawn)
            self._drawn = []

    def _sum_counted(self) -> None:
        """Adds the latest decisions that count to the totals."""
        if self._counted:
            self.unweighted += self.totals.add_counted(self._counted, self.contexts, self.unit)
            self._counted = []


def _numbers(what: str, given: Any, most: int, low: float = -np.inf, high: float = np.inf) -> list[float]:
    """A list of finite numbers, one for each arm that there was, or an error that names it."""
    if not isinstance(given, list | tuple) or not 0 < len(given) <= most:
        raise InputError(f"{what} must have a number for each of the {most} arms, not {shown(given)}")
    if all(type(entry) is float and low <= entry <= high for entry in given):  # nearly always, and fast
        return list(given)
    return [number(what, entry, low, high) for entry in given]
