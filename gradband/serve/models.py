"""Bodies of requests and answers, as the OpenAPI document describes them."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gradband.serve.library import PRETRAINED, WITHOUT_FILE
from gradband.serve.limits import FINGERPRINT, KEY, LABEL, LONGEST_ID, LONGEST_REASON, MOST_ARMS, TEXT

Key = Annotated[str, Field(pattern=KEY, description="The name of a test.")]
Label = Annotated[str, Field(pattern=LABEL, description="The name of an arm.")]


def refuse_pretrained(policy: Any) -> Any:
    """Says how to get a file of a policy whose arms and decisions a name does not tell."""
    if policy in PRETRAINED:
        how = f"gradband export {policy} --to safetensors writes one for the test's arms and decisions"
        raise PydanticCustomError("pretrained", f"upload {policy} as a file: {how}")
    return policy


Fingerprint = Annotated[
    str,
    BeforeValidator(refuse_pretrained),
    Field(
        pattern=f"{FINGERPRINT}|^({'|'.join(WITHOUT_FILE)})$",
        description="The fingerprint of an uploaded policy, or the name of one that needs no file.",
    ),
]
Reason = Annotated[str, Field(max_length=LONGEST_REASON, pattern=TEXT, description="Why; it is recorded.")]
Share = Annotated[float, Field(ge=0, le=1)]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


Numbers = list[float]
Features = Annotated[
    Numbers | list[Numbers] | dict[str, Numbers],
    Field(description="Features of the arms, in their order or by name, or of the visitor."),
]


class Given(BaseModel):
    """A body with no other keys than these, and without conversion of values."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Error(BaseModel):
    """What is wrong, in one sentence."""

    error: str


class Me(BaseModel):
    """The token of a request."""

    name: str
    role: Annotated[str, Field(pattern="^(read|admin)$")]


class NewTest(Given):
    """A test to create. Its settings are those of a player."""

    key: Key
    policy: Fingerprint
    arms: Annotated[list[Label], Field(min_length=1, max_length=MOST_ARMS)]
    wait: Annotated[
        Annotated[str, Field(max_length=32)] | Annotated[float, Field(gt=0, le=1e9)] | None,
        Field(description="Time until a decision without a reward gets the default: seconds, or 24h."),
    ] = None
    default: Annotated[float, Field(ge=-1e30, le=1e30)] = 0.0
    floor: Share = 0.0
    control: Label | None = None
    control_share: Share = 0.0
    cap: Share = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class Why(Given):
    """An optional reason."""

    reason: Reason = ""


class NewArm(Given):
    """An arm to add."""

    label: Label


class NewPolicy(Given):
    """Another policy for a test, and why."""

    policy: Fingerprint
    reason: Annotated[Reason, Field(min_length=1)]


class Arm(BaseModel):
    """An arm of a test."""

    label: str
    retired: bool
    share: float | None = None


class ContextShape(BaseModel):
    """How many features a context has, of each arm or, if `visitor`, also of the visitor alone."""

    features: int
    visitor: bool


class Change(BaseModel):
    """Who changed a test, how and why."""

    t: float
    actor: str
    action: str
    detail: str
    reason: str


class Test(BaseModel):
    """A test. `version` grows with every event."""

    __test__ = False  # pytest takes it for a test of ours

    key: str
    status: Annotated[str, Field(pattern="^(created|running|paused|ended)$")]
    policy: str
    arms: list[Arm]
    version: int
    decisions: int
    rewards: int
    waiting: int
    settings: dict[str, Any]
    history: list[Change] | None = None
    context: ContextShape | None = None


class Tests(BaseModel):
    """All tests."""

    tests: list[Test]


class Policy(BaseModel):
    """A stored policy."""

    fingerprint: str
    name: str
    arms: int
    horizon: int
    flexible: bool
    created: float


class Policies(BaseModel):
    """All policies."""

    policies: list[Policy]


class Weights(BaseModel):
    """The probability of each arm in the next decision."""

    version: int
    weights: dict[str, float]


class Segment(Given):
    """The context of a segment of visitors."""

    context: Features


class DecisionRequest(Given):
    """A decision to make. With an id, you can repeat the request; a returning unit keeps its arm."""

    id: Annotated[Id, Field(pattern="^[^#]")] | None = None
    unit: Id | None = None
    context: Features | None = None


class Decision(BaseModel):
    """The chosen arm."""

    id: str
    arm: int
    label: str
    propensity: float
    returning: bool


class RewardRequest(Given):
    """The reward of a decision."""

    id: Id
    reward: float


class Reward(BaseModel):
    """The rewarded decision; a late reward corrects the default."""

    id: str
    late: bool


class Context(BaseModel):
    """OpenFeature's evaluation context. Tests use its targetingKey, and features if they need them."""

    model_config = ConfigDict(extra="allow", strict=True)

    targeting_key: Annotated[Id, Field(alias="targetingKey")]
    features: Any = None


class Evaluation(BaseModel):
    """A request to evaluate flags."""

    model_config = ConfigDict(extra="allow", strict=True)

    context: Context


class Flag(BaseModel):
    """A test as a flag. Without a value, the default in the client's code applies."""

    key: str
    reason: str
    value: str | None = None
    variant: str | None = None
    metadata: dict[str, str | float] | None = None


class FlagError(BaseModel):
    """Why a flag cannot be evaluated."""

    code: Annotated[str, Field(alias="errorCode")]
    details: Annotated[str, Field(alias="errorDetails")] = ""
    key: str | None = None


class Flags(BaseModel):
    """All running tests as flags."""

    flags: list[Flag | FlagError]
