"""What readers of a report's numbers should know."""

from gradband.play.reporting import words
from gradband.play.reporting.ledger import Ledger

BIAS = (
    "Naive means are biased: an arm that was unlucky is pulled less, and its bad luck stays. Prefer the "
    "estimate with its interval, or the always-valid interval if you look more than once."
)
CONTEXTS = (
    "Arms were chosen by contexts, so naive means are those of the visitors that an arm was chosen for. "
    "Estimates are what it would pay for everyone, for arms that had a chance in every decision. "
    "With contexts there is no P(best), and always-valid intervals contain every mean."
)


def notes_on(ledger: Ledger) -> list[str]:
    notes = [BIAS]
    if ledger.contexts:
        notes.append(CONTEXTS)
    if ledger.unweighted:
        some = "No decision" if ledger.unweighted == ledger.counted else "Not every decision"
        notes.append(
            f"{some} was logged with the probabilities of all arms (a journal of version 1 has none): "
            f"estimates and the check of allocation leave {words.count(ledger.unweighted, 'decision')} out."
        )
    if ledger.wait is None and ledger.open:
        notes.append(
            f"{words.count(ledger.open, 'decision waits', 'decisions wait')} for rewards and "
            f"{'does' if ledger.open == 1 else 'do'} not count. If zeros come later than ones, or never, "
            "set a wait: means are too high without it."
        )
    if ledger.late:
        notes.append(
            f"{words.count(ledger.late, 'reward')} came after the wait, and this report ignores "
            f"{'it' if ledger.late == 1 else 'them'}: it is about rewards within that time."
        )
    if not ledger.unit:
        notes.append(
            "Some rewards are outside [0, 1]: always-valid intervals hold for many pulls, not for few, and "
            "P(best) assumes normal means."
        )
    elif not ledger.binary:
        notes.append(
            "Some rewards are between 0 and 1: P(best) and the expected loss treat them as shares of "
            "successes, which is cautious."
        )
    if ledger.swaps:
        notes.append(
            f"The policy was swapped {words.count(ledger.swaps, 'time')}; all numbers hold regardless."
        )
    if ledger.before:
        notes.append(
            f"The journal's oldest files are gone: {words.count(ledger.before, 'event')} of theirs are not "
            "in this report."
        )
    return notes
