"""The policies that come with gradband, which commands take in place of a file. This needs no JAX."""

from typing import TYPE_CHECKING

from gradband.core.errors import InputError, number_of_dims, positive, whole

if TYPE_CHECKING:
    from gradband.policies import Policy

ON_COUNTS, ON_FEATURES = "pretrained", "pretrained-linear"
FILE = f"A policy file, or {ON_COUNTS} or {ON_FEATURES}: policies that come with gradband."
HORIZON = "For pretrained policies: how many decisions there will be."
DIMS = f"For {ON_FEATURES}: how many features arms or visitors have."
PRIOR = f"For {ON_COUNTS}: a and b of the Beta(a, b) prior of an arm's mean (default: 1,1)."


def is_pretrained(text: str) -> bool:
    """Whether this is the name of a policy that comes with gradband, maybe with settings."""
    return text.partition(":")[0] in (ON_COUNTS, ON_FEATURES)


def refuse(given: dict[str, object]) -> None:
    """Raises an error if a policy file is given together with options for pretrained policies."""
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} is for pretrained policies: a policy file has its own")


def pretrained(
    text: str, arms: int | None, horizon: int | None, dims: int | None = None, prior: str | None = None
) -> "Policy":
    """The policy that comes with gradband under this name, with settings as `name:setting=value+…`."""
    name, _, settings = text.partition(":")
    policy = (
        _on_features(settings, dims, prior) if name == ON_FEATURES else _on_counts(settings, dims, prior)
    )
    if not arms or horizon is None or getattr(policy, "dims", None) == 0:
        more = ", --horizon and --dims" if name == ON_FEATURES else " and --horizon"
        raise InputError(f"{name} needs --arms{more}")
    return policy.bind(arms, whole("--horizon", horizon))


def _on_counts(settings: str, dims: int | None, prior: str | None) -> "Policy":
    from gradband.policies import pretrained
    from gradband.policies.text import with_settings

    if dims is not None:
        raise InputError(f"--dims is for {ON_FEATURES}: {ON_COUNTS} sees no features")
    return with_settings(pretrained(*parse_prior(prior)), settings)


def _on_features(settings: str, dims: int | None, prior: str | None) -> "Policy":
    from gradband.policies import PretrainedLinear
    from gradband.policies.text import with_settings

    if prior is not None:
        how = f"say what {ON_FEATURES} believes as in {ON_FEATURES}:mean=0.1+within=0.3+sd=0.5"
        raise InputError(f"--prior is for {ON_COUNTS}: {how}")
    known = 0 if dims is None else number_of_dims("--dims", dims)
    return with_settings(PretrainedLinear(dims=known), settings)


def parse_prior(text: str | None) -> tuple[float, float]:
    """a and b of a beta prior, from `a,b`; 1 and 1 by default."""
    try:
        a, b = (float(word) for word in (text or "1,1").split(","))
    except ValueError:
        raise InputError(f"--prior must be two numbers, as 1,30, not {text!r}") from None
    return positive("a of --prior", a), positive("b of --prior", b)
