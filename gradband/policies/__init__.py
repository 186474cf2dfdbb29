"""Bandit policies, one file each. A policy that is imported here is known by name and fully tested.

Formulas are written over the namespace of their arrays (`namespace`), so the same class is learned in JAX
and played in NumPy. JAX is imported only when something is learned, and a policy when it is first used.
"""

import functools
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.core.arrays import Array as Array
from gradband.core.arrays import namespace as namespace
from gradband.core.arrays import nn as nn
from gradband.core.arrays import one_hot as one_hot
from gradband.core.arrays import pick as pick
from gradband.core.arrays import stop_gradient as stop_gradient
from gradband.policies.base import Counting as Counting
from gradband.policies.base import Counts as Counts
from gradband.policies.base import Index as Index
from gradband.policies.base import OneParameter as OneParameter
from gradband.policies.base import Params as Params
from gradband.policies.base import Policy as Policy
from gradband.policies.base import Seeing as Seeing
from gradband.policies.base import Spec as Spec
from gradband.policies.base import State as State

if TYPE_CHECKING:
    from gradband.policies.bayes_ucb import BayesUCB as BayesUCB
    from gradband.policies.belief_index import BeliefIndex as BeliefIndex
    from gradband.policies.beta_softelim import BetaSoftElim as BetaSoftElim
    from gradband.policies.beta_ts import BetaTS as BetaTS
    from gradband.policies.boltzmann import Boltzmann as Boltzmann
    from gradband.policies.brezzi_lai import BetaBrezziLai as BetaBrezziLai
    from gradband.policies.by_group import ByGroup as ByGroup
    from gradband.policies.co_softelim import CoSoftElim as CoSoftElim
    from gradband.policies.directed_softelim import DirectedSoftElim as DirectedSoftElim
    from gradband.policies.discounted_index import DiscountedIndexNetwork as DiscountedIndexNetwork
    from gradband.policies.discounted_kl_softelim import DiscountedKLSoftElim as DiscountedKLSoftElim
    from gradband.policies.discounted_softelim import DiscountedSoftElim as DiscountedSoftElim
    from gradband.policies.discounted_ts import DiscountedTS as DiscountedTS
    from gradband.policies.dqn import DQN as DQN
    from gradband.policies.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
    from gradband.policies.exp3 import Exp3 as Exp3
    from gradband.policies.explore_then_commit import ExploreThenCommit as ExploreThenCommit
    from gradband.policies.forgetting import Forgetting as Forgetting
    from gradband.policies.gaussian_bayes_ucb import GaussianBayesUCB as GaussianBayesUCB
    from gradband.policies.gaussian_gittins import GaussianGittins as GaussianGittins
    from gradband.policies.gaussian_index import GaussianIndexNetwork as GaussianIndexNetwork
    from gradband.policies.gaussian_lstm import GaussianLSTM as GaussianLSTM
    from gradband.policies.gaussian_ogi import GaussianOptimisticGittins as GaussianOptimisticGittins
    from gradband.policies.gaussian_ts import GaussianTS as GaussianTS
    from gradband.policies.gaussian_v_ids import GaussianVarianceDirected as GaussianVarianceDirected
    from gradband.policies.gittins import Gittins as Gittins
    from gradband.policies.greedy import Greedy as Greedy
    from gradband.policies.hierarchical_ts import HierarchicalTS as HierarchicalTS
    from gradband.policies.ids import InformationDirected as InformationDirected
    from gradband.policies.index_by_arm import IndexByArm as IndexByArm
    from gradband.policies.index_network import IndexNetwork as IndexNetwork
    from gradband.policies.irs import InformationRelaxation as InformationRelaxation
    from gradband.policies.kl_softelim import KLSoftElim as KLSoftElim
    from gradband.policies.kl_ucb import KLUCB as KLUCB
    from gradband.policies.library import POLICIES as POLICIES
    from gradband.policies.library import TABLES as TABLES
    from gradband.policies.library import TRAINED as TRAINED
    from gradband.policies.library import as_policy as as_policy
    from gradband.policies.library import named as named
    from gradband.policies.lin_bayes_ucb import LinBayesUCB as LinBayesUCB
    from gradband.policies.lin_boltzmann import LinBoltzmann as LinBoltzmann
    from gradband.policies.lin_epsilon_greedy import LinEpsilonGreedy as LinEpsilonGreedy
    from gradband.policies.lin_greedy import LinGreedy as LinGreedy
    from gradband.policies.lin_kg import LinKnowledgeGradient as LinKnowledgeGradient
    from gradband.policies.lin_softelim import LinSoftElim as LinSoftElim
    from gradband.policies.lin_ts import LinTS as LinTS
    from gradband.policies.lin_ucb import LinUCB as LinUCB
    from gradband.policies.lin_v_ids import LinVarianceDirected as LinVarianceDirected
    from gradband.policies.linear_policy import LinearPolicy as LinearPolicy
    from gradband.policies.lstm import LSTM as LSTM
    from gradband.policies.ogi import OptimisticGittins as OptimisticGittins
    from gradband.policies.optimal import OptimalChoices as OptimalChoices
    from gradband.policies.optimal import OptimalGraph as OptimalGraph
    from gradband.policies.optimal import OptimalGrid as OptimalGrid
    from gradband.policies.optimal import OptimalThresholds as OptimalThresholds
    from gradband.policies.platform_ts import PlatformTS as PlatformTS
    from gradband.policies.pretrained_beta import PretrainedBeta as PretrainedBeta
    from gradband.policies.pretrained_index import Pretrained as Pretrained
    from gradband.policies.pretrained_index import pretrained as pretrained
    from gradband.policies.pretrained_linear import PretrainedLinear as PretrainedLinear
    from gradband.policies.sliding_window_ucb import SlidingWindowUCB as SlidingWindowUCB
    from gradband.policies.softelim import SoftElim as SoftElim
    from gradband.policies.split import Split as Split
    from gradband.policies.square_cb import SquareCB as SquareCB
    from gradband.policies.thompson import ThompsonSampling as ThompsonSampling
    from gradband.policies.ucb1 import UCB1 as UCB1
    from gradband.policies.ucb_v import UCBV as UCBV
    from gradband.policies.uniform import Uniform as Uniform
    from gradband.policies.v_ids import VarianceDirected as VarianceDirected


@functools.cache
def _modules_by_name() -> dict[str, str]:
    """The module of each name above, read from this file, so that a new policy is one line."""
    text = Path(__file__).read_text(encoding="utf-8")
    return {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as", text, re.M)}


def __getattr__(name: str) -> Any:
    home = _modules_by_name().get(name)
    if home is None:
        raise AttributeError(f"module 'gradband.policies' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
