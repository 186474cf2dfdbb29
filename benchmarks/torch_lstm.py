"""Train the paper's LSTM in eager PyTorch, in the way of its Appendix F.

An embedded arm and an embedded reward go through an `LSTMCell`, a `LeakyReLU` and a `Linear`; a Python
loop over rounds draws arms from a `Categorical` and collects their log probabilities, and one backward
pass through all rounds gives the gradient for Adam. Problem: two Bernoulli arms with uniform means.

The baseline 'self' is a second run on the same rewards. With `one`, as in the paper, it is only played;
with `both`, as in gradband, each run is the other's baseline and both give gradients, in one batch.
"""

import argparse
import json
import os
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

ARMS = 2
HIDDEN = 50
STYLES = ("one", "both")


class Network(nn.Module):
    """Logits of the arms [m, K] from what was pulled and what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.of_arm = nn.Embedding(ARMS, HIDDEN)
        self.of_reward = nn.Embedding(2, HIDDEN)
        self.cell = nn.LSTMCell(2 * HIDDEN, HIDDEN)
        self.bend = nn.LeakyReLU()
        self.head = nn.Linear(HIDDEN, ARMS)

    def begin(self, count: int) -> tuple[Tensor, Tensor]:
        """The memory before the first round, two of [m, d]."""
        return torch.zeros(count, HIDDEN), torch.zeros(count, HIDDEN)

    def logits(self, memory: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(self.bend(memory[0]))

    def forward(
        self, memory: tuple[Tensor, Tensor], arm: Tensor, reward: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        heard = torch.cat((self.of_arm(arm), self.of_reward(reward)), 1)
        memory = self.cell(heard, memory)
        return memory, self.logits(memory)


def play(network: Network, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Plays a table of rewards [m, n, K]; arms, their log probabilities and their rewards, all [n, m]."""
    memory = network.begin(len(table))
    logits = network.logits(memory)
    arms, log_ps, rewards = [], [], []
    for t in range(table.shape[1]):
        if t:
            memory, logits = network(memory, arms[-1], rewards[-1])
        choice = Categorical(logits=logits)
        arm = choice.sample()
        arms.append(arm)
        log_ps.append(choice.log_prob(arm))
        rewards.append(table[:, t].gather(1, arm.unsqueeze(1)).squeeze(1))
    return torch.stack(arms), torch.stack(log_ps), torch.stack(rewards)


def to_go(rewards: Tensor) -> Tensor:
    """What is still to come in each round, its own reward included: Σ_{s ≥ t} Y_s [n, m]."""
    return rewards.float().flip(0).cumsum(0).flip(0)


def surrogate(network: Network, means: Tensor, horizon: int, style: str) -> tuple[Tensor, Tensor]:
    """A loss whose gradient is less the estimate (eq. 3), and the mean regret, on means [m, K]."""
    count = len(means)
    table = torch.bernoulli(means.unsqueeze(1).expand(-1, horizon, -1)).long()
    if style == "one":
        arms, log_ps, rewards = play(network, table)
        with torch.no_grad():
            other = play(network, table)[2]
        advantage = to_go(rewards) - to_go(other)
    else:
        means = means.repeat(2, 1)
        arms, log_ps, rewards = play(network, table.repeat(2, 1, 1))
        advantage = to_go(rewards) - to_go(rewards.roll(count, 1))
    regret = means.amax(1) * horizon - means.gather(1, arms.T).sum(1)
    return -(log_ps * advantage).sum() / len(means), regret.mean()


class Training:
    """Adam at .001, a thousandth less in every iteration, on m fresh instances each."""

    def __init__(self, style: str, instances: int, horizon: int) -> None:
        self.style, self.instances, self.horizon = style, instances, horizon
        self.network = Network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)

    def iterate(self) -> float:
        """One iteration; the mean regret in it."""
        loss, regret = surrogate(self.network, torch.rand(self.instances, ARMS), self.horizon, self.style)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return regret.item()


def best_threads(style: str, instances: int, horizon: int) -> int:
    """One thread or one for each core, whichever plays a few rounds faster: small products gain little."""
    training = Training(style, instances, min(horizon, 20))
    training.iterate()
    times: dict[int, float] = {}
    for threads in 2 * sorted({1, len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)
        start = perf_counter()
        training.iterate()
        times[threads] = min(perf_counter() - start, times.get(threads, float("inf")))
    return min(times, key=times.__getitem__)


def main() -> None:
    """Time the training and print a JSON object; the regrets are those of the first and last ten."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--horizon", type=int, default=200)
    parser.add_argument("--threads", type=int, help="by default whichever is faster, one or all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--style", choices=STYLES, default="one")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    settings = arguments.style, arguments.instances, arguments.horizon
    threads = arguments.threads or best_threads(*settings)
    torch.set_num_threads(threads)
    training = Training(*settings)
    regrets = [training.iterate()]  # warm-up
    start = perf_counter()
    regrets += [training.iterate() for _ in range(arguments.iterations)]
    seconds = perf_counter() - start
    first, last = regrets[:10], regrets[-10:]
    report = {
        "seconds_per_iteration": seconds / arguments.iterations,
        "threads": threads,
        "regret_at_first": sum(first) / len(first),
        "regret": sum(last) / len(last),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
