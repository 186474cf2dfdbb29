"""Everything that the file of a policy imports, in one place."""

from gradband.core.arrays import Array, add_at, namespace, nn, one_hot, pick, real, stop_gradient
from gradband.core.errors import InputError
from gradband.policies.counting import Believing, Counting, Index
from gradband.policies.counts import Counts
from gradband.policies.policy import KEPT, Bounds, Greatest, OneParameter, Params, Policy, Spec, State, fits
from gradband.policies.seeing import Seeing
from gradband.policies.settings import Count, Flag, Number, Positive, Share, Whole, in_range, one_of

__all__ = ["Array", "InputError", "add_at", "namespace", "nn", "one_hot", "pick", "real", "stop_gradient"]
__all__ += ["KEPT", "Bounds", "Greatest", "OneParameter", "Params", "Policy", "Spec", "State", "fits"]
__all__ += ["Believing", "Counting", "Counts", "Index", "Seeing"]
__all__ += ["Count", "Flag", "Number", "Positive", "Share", "Whole", "in_range", "one_of"]
