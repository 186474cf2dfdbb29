"""Train SoftElim's parameter in eager PyTorch, with the gradient from autograd.

The yardstick for differentiable programming: GradBand with the 'self' baseline, vectorised over
instances and runs.  A Python loop over rounds plays the policy and collects the log probabilities
of the pulled arms; a surrogate whose derivative is the gradient estimate is formed from them, and
one backward pass through all rounds does the rest.

`listing` is written as the paper's own code is, with `Categorical`; in `tuned` the tensors are laid out
[arm, run, instance], so that operations over arms work on contiguous rows, and arms are drawn by hand.
"""

import argparse
import json
from collections.abc import Callable
from math import sqrt
from time import perf_counter

import torch
from torch.distributions import Categorical

MEANS = ((0.6, 0.4), (0.4, 0.6))
RUNS = 2

THETA_START = 1.0
THETA_MIN = 1e-3


def listing(
    theta: torch.Tensor, mu: torch.Tensor, horizon: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Play every instance; return the surrogate, differentiable in theta, and the mean regret.

    ``mu`` holds the means of the instances, [arm, instance].
    """
    arms, instances = mu.shape
    mu = mu.T.expand(RUNS, instances, arms)
    wins = torch.zeros(RUNS, instances, arms)
    pulls = torch.zeros(RUNS, instances, arms)
    log_ps, rewards = [], []
    for t in range(horizon):
        if t < arms:
            action = torch.full((RUNS, instances), t)
        else:
            mean = wins / pulls
            gap = mean.amax(-1, keepdim=True) - mean
            policy = Categorical(logits=-2 * gap**2 * pulls / theta)
            action = policy.sample()
            log_ps.append(policy.log_prob(action))
        one_hot = torch.nn.functional.one_hot(action, arms)
        u = torch.rand(instances, generator=generator)
        reward = (u < (one_hot * mu).sum(-1)).float()
        wins = wins + one_hot * reward.unsqueeze(-1)
        pulls = pulls + one_hot
        if t >= arms:
            rewards.append(reward)
    score = torch.stack(log_ps).cumsum(0)
    reward = torch.stack(rewards)
    advantage = reward - reward.flip(1)
    regret = ((mu.amax(-1, keepdim=True) - mu) * pulls).sum(-1).mean()
    return (advantage * score).sum() / (RUNS * instances), regret


def tuned(
    theta: torch.Tensor, mu: torch.Tensor, horizon: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as `listing`, faster."""
    arms, instances = mu.shape
    mu = mu.unsqueeze(1).expand(arms, RUNS, instances)
    u_reward = torch.rand(horizon, instances, generator=generator)  # shared by arms and runs
    u_action = torch.rand(horizon, RUNS, instances, generator=generator)
    # Never 0: that would pull an arm of vanishing probability, whose enormous score would throw
    # the ascent off.
    u_action.clamp_(min=2.0**-25)

    # Each arm is pulled once.  The runs agree on these rounds, which so add nothing.
    wins = (u_reward[:arms].unsqueeze(1) < mu).float()
    pulls = torch.ones_like(wins)
    one = torch.ones(1, RUNS, instances)

    log_ps, rewards = [], []
    for t in range(arms, horizon):
        mean = wins / pulls
        gap = mean.amax(0) - mean
        spread = 2 * gap * gap * pulls
        log_p = torch.log_softmax(spread / -theta, 0)
        # Inverse transform: the arm is the number of cumulated probabilities the uniform passed.
        # The last sum is left out, for it may round to less than one.
        passed = log_p.detach()[:-1].exp().cumsum(0) <= u_action[t]
        arm = passed.sum(0, keepdim=True)
        reward = (u_reward[t] < mu.gather(0, arm)).float()
        wins.scatter_add_(0, arm, reward)
        pulls.scatter_add_(0, arm, one)
        log_ps.append(log_p.gather(0, arm))
        rewards.append(reward)

    score = torch.cat(log_ps).cumsum(0)  # [round, run, instance]; d score / d theta is z
    reward = torch.cat(rewards)
    advantage = reward - reward.flip(1)  # a run's baseline is the reward of the other
    regret = ((mu.amax(0) - mu) * pulls).sum(0).mean()
    return (advantage * score).sum() / (RUNS * instances), regret


def train(
    seed: int,
    *,
    surrogate: Callable[..., tuple[torch.Tensor, torch.Tensor]] = listing,
    iterations: int = 100,
    instances: int = 1000,
    horizon: int = 200,
    c: float = 5.0,
) -> tuple[float, list[float]]:
    """Train theta by GradBand; return the final theta and the mean regret of each iteration."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.tensor(MEANS).T.contiguous()
    theta = torch.tensor(THETA_START, requires_grad=True)
    alpha = 1 / (c * sqrt(iterations))
    regrets = []
    for _ in range(iterations):
        kind = torch.randint(len(MEANS), (instances,), generator=generator)
        objective, regret = surrogate(theta, means[:, kind], horizon, generator)
        objective.backward()
        with torch.no_grad():
            theta.add_(alpha * theta.grad).clamp_(min=THETA_MIN)
        theta.grad = None
        regrets.append(regret.item())
    return theta.item(), regrets


def main() -> None:
    """Time the training and print a JSON object; the regret is that of the last ten iterations."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--style", choices=["listing", "tuned"], default="listing")
    arguments = parser.parse_args()
    surrogate = {"listing": listing, "tuned": tuned}[arguments.style]

    torch.manual_seed(arguments.seed)
    train(arguments.seed, surrogate=surrogate, iterations=1)  # warm-up
    start = perf_counter()
    theta, regrets = train(arguments.seed, surrogate=surrogate, iterations=arguments.iterations)
    seconds = perf_counter() - start
    last = regrets[-10:]
    report = {
        "seconds_per_iteration": seconds / arguments.iterations,
        "theta": theta,
        "regret": sum(last) / len(last),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
