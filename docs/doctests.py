"""Shows doctests as code, and names that packages hand on, to griffe, which reads the sources."""

import re
from pathlib import Path

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around every doctest of a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )

    def on_module(self, *, mod: griffe.Module, **kwargs: object) -> None:
        """What a module without `__all__` hands on as `x as x` is public, as type checkers have it."""
        if mod.exports is None and mod.is_init_module and isinstance(mod.filepath, Path):
            handed_on = re.findall(r"import (\w+) as \1\n", mod.filepath.read_text(encoding="utf-8"))
            own = [name for name, member in mod.members.items() if not (member.is_alias or name[0] == "_")]
            mod.exports = [*handed_on, *(name for name in own if not mod.members[name].is_module)]
