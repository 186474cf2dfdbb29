"""A decision about a learned policy as one self-contained HTML page, for the people who decide."""

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from gradband.play.reporting import charts, gain_charts, words
from gradband.play.reporting.html_parts import table, text

if TYPE_CHECKING:
    from gradband.core.statistics import Mean
    from gradband.evaluation.decision import Decision
    from gradband.evaluation.played_out import PlayedOut

MOODS = {"Adopt": "good", "Don't bother": "wait", "Can't tell": "bad"}
STORIES = ("A good run", "A typical run", "A bad run")
MOST_PARAMETERS = 6  # shown one by one


def page(found: "Decision", label: str = "") -> str:
    """The page as text. `label` names the problem."""
    here, advice = Path(__file__).parent, found.advice
    styles = (here / name for name in ("page.css", "decision.css"))
    return Template((here / "decision.html").read_text(encoding="utf-8")).substitute(
        style="".join(path.read_text(encoding="utf-8") for path in styles),
        title=text(f"{advice.word}: a policy for {label or 'your tests'}"),
        mood=MOODS[advice.word],
        verdict=text(f"{advice.word}:"),
        sentence=text(advice.sentence),
        cautions=_cautions(advice.cautions),
        summary=text(_summary(found, label)),
        data=_data(found),
        gain=_gain(found),
        lengths=_lengths(found),
        arms=_arms(found),
        wrong=_wrong(found),
        examples=_examples(found),
        trust=_trust(found),
        details=_details(found),
    )


def _cautions(cautions: tuple[str, ...]) -> str:
    items = "".join(f"<li>{text(caution)}</li>" for caution in cautions)
    return f'<ul class="cautions bad">{items}</ul>' if items else ""


def _summary(found: "Decision", label: str) -> str:
    problem = found.outcome.problem
    batch = problem.pulls_per_round
    batches = f", decided {words.grouped(batch)} at a time" if batch > 1 else ""
    later = f", and {words.grouped(problem.afterwards)} visitors afterwards" if problem.afterwards else ""
    return (
        f"{label + ': ' if label else ''}tests of {problem.arms} variants and "
        f"{words.grouped(problem.horizon)} visitors{batches}{later}. "
        "A policy decides which variant a visitor sees: it starts with all of them, and moves traffic to "
        "the better ones while the test runs. This one was learned from your past tests. Numbers in "
        "brackets are 95 % intervals."
    )


def _data(found: "Decision") -> str:
    past, spread, unit = found.past, found.spread, found.outcome.problem.unit
    tests = len(past.sizes)
    facts = {
        "past tests": words.grouped(tests),
        "of them held out to measure gains": words.grouped(len(past.held_out)),
        "visitors of a test, median": words.grouped(float(np.median(past.pulls))),
        "success rate" if unit else "mean reward": words.rate(spread.mean, unit),
        "it differs between tests by (sd)": words.rate(spread.between, unit),
        "between variants of a test by (sd)": words.rate(spread.within, unit),
        "best variant over the mean one": gain_charts.signed(100 * spread.lead / spread.mean)
        if spread.mean > 0
        else words.rate(spread.lead, unit),
    }
    listed = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items()
    )
    counts, low, high = gain_charts.histogram(past.rates)
    rates = gain_charts.bars(
        f"Observed {'success rates' if unit else 'mean rewards'} of past tests",
        counts.tolist(),
        (words.rate(low, unit), words.rate((low + high) / 2, unit), f"≥ {words.rate(high, unit)}"),
    )
    sizes = np.bincount(past.sizes)
    least, most = int(past.sizes.min()), min(int(past.sizes.max()), int(past.sizes.min()) + 11)
    heights = [*sizes[least:most].tolist(), int(sizes[most:].sum())]
    names = [*map(str, range(least, most)), f"{most}{'+' if past.sizes.max() > most else ''}"]
    here = found.outcome.problem.arms - least
    arms = gain_charts.bars("Past tests by their number of variants", heights, names, here)
    return f'<dl class="facts">{listed}</dl><div class="pair">{rates}{arms}</div>'


def _gain(found: "Decision") -> str:
    held, names = found.held_out, found.rivals
    shown = [
        (f"than {names[row.name]}", found.gain(held, row.name))
        for row in held.table.rows
        if row.name in names
    ]
    shown.sort(key=lambda row: -row[1].mean)
    cells = [
        (
            words.capital(names.get(row.name, "the learned policy")),
            words.plain(held.reward(row.name).mean),
            *(
                (
                    words.with_error(held.gain(row.name).mean, held.gain(row.name).se, unit=False),
                    gain_charts.interval(found.gain(held, row.name), found.scale),
                )
                if row.name in names
                else ("", "")
            ),
        )
        for row in held.table.rows
    ]
    what = found.past.unit or "successes"
    heads = ("policy", f"{what} per test", "gain per thousand visitors, ± se", f"gain, {found.scale}")
    return (
        f"<p>How many more {text(what)} the learned policy has on held-out tests, which took no part in "
        f"learning:</p>{gain_charts.rows(shown, found.scale)}{_ceiling(found)}"
        + table(
            f"{words.capital(what)} of each policy, and the gain of the learned one over it", heads, cells
        )
    )


def _ceiling(found: "Decision") -> str:
    """How much of the greatest possible gain the policy reaches."""
    reached = found.ceiling()
    price = found.outcome.price
    told = "" if price is None else f" {price.in_words()}"
    if reached is not None:
        best, share = reached
        told = (
            f"If the best variant of each test were known from the start, there would be {best:.1f} % more "
            f"{found.past.unit or 'successes'} than with an equal split. The learned policy gets "
            f"{100 * share:.0f} % of that.{told}"
        )
    return f"<p>{text(told)}</p>" if told else ""


def _lengths(found: "Decision") -> str:
    lengths = [entry.pulls for entry in found.lengths]
    if len(lengths) < 2:
        return "<p>This policy cannot be played at other lengths than the one it was learned for.</p>"
    series: dict[str, list[Mean]] = {
        f"gain over {words_for}": [found.gain(entry, name) for entry in found.lengths]
        for name, words_for in found.today.items()
    }
    return (
        "<p>The same policy, without learning again, in shorter and longer tests. It was learned for "
        f"{text(words.grouped(found.outcome.problem.pulls))} visitors.</p>"
        + gain_charts.curve(
            "Gain by visitors of a test", "visitors of a test", lengths, series, found.scale
        )
    )


def _arms(found: "Decision") -> str:
    problem, own = found.outcome.problem, found.outcome.name
    tests = len(found.past.sizes)
    if not found.other_sizes:
        more = " This policy would also play other numbers without learning again."
        return f"<p>All past tests have {problem.arms} variants.{more if found.plays_all_sizes else ''}</p>"
    told = (
        f"{words.grouped(found.other_sizes)} of the {words.grouped(tests)} past tests "
        f"({words.percent(found.other_sizes / tests)}) have another number of variants than "
        f"{problem.arms}. "
    )
    if not found.sizes:
        known = (
            "A policy of counts, such as the index network (--policy index), is learned once and plays all."
        )
        return f"<p>{text(told + ('' if found.plays_all_sizes else known))}</p>"
    plays = (
        f"This policy ({own}) plays all of them without learning again. These are held-out tests by their "
        f"own number of variants, with {words.grouped(problem.horizon)} visitors each:"
    )
    rows = [
        (
            f"{arms} variants, {entry.experiments} tests",
            *(gain_charts.interval(found.gain(entry, name), found.scale) for name in found.today),
        )
        for arms, entry in found.sizes.items()
    ]
    heads = ("held-out tests", *(f"over {plain}" for plain in found.today.values()))
    return f"<p>{text(told + plays)}</p>" + table(
        f"Gain ({found.scale}) by the number of variants", heads, rows
    )


def _wrong(found: "Decision") -> str:
    rows = [
        (words.capital(found.truths[entry.name]), found.gain(entry, entry.rival), found.rivals[entry.rival])
        for entry in found.outcome.situations
    ]
    heads = ("truth", "gain", "over the best of the others there")
    return (
        "<p>A learned policy relies on a prior: what past tests say about the next one. Here the truth is "
        "something else, and the gain is over whichever of the other policies is best there.</p>"
        + gain_charts.rows([(name, value) for name, value, _ in rows], found.scale)
        + table(
            "Gain over the best of the others, by what the truth is",
            heads,
            [(name, gain_charts.interval(value, found.scale), rival) for name, value, rival in rows],
        )
    )


def _examples(found: "Decision") -> str:
    unit, what = found.outcome.problem.unit, found.past.unit or "successes"
    told = "".join(
        f"<div><h3>{title}</h3>{_example(example, unit, what)}</div>"
        for title, example in zip(STORIES, found.examples, strict=True)
    )
    return (
        "<p>Simulated on held-out tests: how the policy divides visitors among the variants, from the "
        "first to the last. A is the best variant, which the policy does not know. Of such tests one in "
        "ten loses less than the first of these, and one in ten more than the third.</p>"
        f'<div class="three">{told}</div>'
    )


def _example(example: "PlayedOut", unit: bool, what: str) -> str:
    names = [
        f"{_letter(place)} ({words.rate(mean, unit)})" for place, mean in enumerate(example.means.tolist())
    ]
    if len(example.shares) < 2:
        return "<p>There is only one decision.</p>"
    drawn = charts.stacked(
        names,
        example.shares,
        "Shares of visitors",
        ("first visitor", f"{words.grouped(example.pulls[-1])}"),
    )
    best, visitors = words.percent(float(example.total[0])), float(example.pulls[-1])
    ahead = f"{visitors * example.ahead:+.1f}".replace("-", "−")
    return (
        f"{drawn}<p>{best} of the visitors saw the best variant. {ahead} {text(what)} against an equal "
        f"split, {visitors * example.regret:.1f} less than with the best variant throughout.</p>"
    )


def _letter(place: int) -> str:
    """A, B, …, Z, A1, B1, …"""
    return f"{chr(ord('A') + place % 26)}{place // 26 or ''}"


def _trust(found: "Decision") -> str:
    checks = found.held_out.check
    if not checks:
        return "<p>These tests allow no check without a model.</p>"
    rows = [
        (
            f"{100 * check.share:.0f} %",
            f"{check.promised:.2f}",
            f"{check.real.mean:.2f} ± {check.real.se:.2f}",
            {True: "yes", False: "no", None: "too few tests"}[check.holds],
        )
        for check in checks
    ]
    heads = ("of the visitors explored", "promised", "came true, ± se", "within 2 se")
    return (
        "<p>A check without any model. Part of the visitors of each held-out test explore; the variant "
        "that is best among them is measured on the rest of the visitors. If what came true differs from "
        "what was promised, the gains above are off as well.</p>"
        + table("Gain of the winner over the mean variant, per thousand visitors", heads, rows)
    )


def _details(found: "Decision") -> str:
    outcome = found.outcome
    arrays = outcome.learned.arrays
    few = sum(map(np.size, arrays.values())) <= MOST_PARAMETERS
    values = [
        (name, f"{float(leaf):.6g}" if few and np.ndim(leaf) == 0 else f"shape {list(np.shape(leaf))}")
        for name, leaf in arrays.items()
    ]
    regrets = [
        (row.name, f"{row.regret.mean:.3f}", f"{row.regret.se:.3f}") for row in outcome.standing.table.rows
    ]
    if outcome.standing.optimum is not None:
        regrets.append(("optimum", f"{outcome.standing.optimum:.4f}", "exact"))
    heads = ("policy", "regret", "± se")
    return (
        f"<h3>{text(outcome.name)}</h3>"
        + table("Parameters θ", ("name", "value"), values)
        + f"<p>{text(outcome.verdict.in_words(outcome.problem))}</p>"
        + table(f"Bayes regret on {outcome.standing.instances} fresh instances", heads, regrets)
        + _likelihoods(found)
        + f'<p class="code">{text(_made(found))}</p>'
    )


def _likelihoods(found: "Decision") -> str:
    """How well each prior predicts held-out tests, and the numbers of the chosen one."""
    fits, prior = found.past.likelihoods(), found.outcome.problem.prior
    rows = []
    for entry in fits:
        below = entry.as_dict(fits[0])
        gap = (f"{below['below']:.3f}", f"{below['below_se']:.3f}") if entry is not fits[0] else ("", "")
        rows.append((entry.name, f"{entry.score.mean:.3f}", *gap))
    heads = ("prior", "mean", "below the best", "± se")
    numbers = ", ".join(
        f"{key} {value:.6g}" for key, value in prior.describe().items() if isinstance(value, float)
    )
    chosen = f'<p class="code">{text(f"Chosen prior: {prior.label} ({numbers}).")}</p>'
    return (table("Log-likelihood of a held-out test", heads, rows) if rows else "") + chosen


def _made(found: "Decision") -> str:
    about = found.outcome.learned.about
    training = about.get("training", {})
    versions = about.get("versions", {})
    told = ", ".join(f"{name} {value}" for name, value in versions.items())
    return (
        f"Learned with seed {about.get('seed', '?')} in {training.get('iterations', '?')} iterations of "
        f"{training.get('instances', '?')} instances. {told}"
    )
