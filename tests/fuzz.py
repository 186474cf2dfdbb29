"""Coverage-guided fuzzing of whatever reads files: `make fuzz`, or one loader by name.

Without a name all are fuzzed, as many at a time as there are cores; their words go to runs/fuzz/LOADER/log.

    .venv/bin/python tests/fuzz.py journal --minutes 20

A finding is any exception but an `InputError`, a hang, much memory, a file opened outside the folder, a
program started. libFuzzer writes it to runs/fuzz, and `tests/fuzz.py LOADER FILE` plays it again.
"""

import argparse
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[1]
SOLVERS = ROOT.glob("gradband/solvers/*.py")
COMPILED = [f"gradband.solvers.{file.stem}" for file in SOLVERS]  # by Numba, which knows no instruments

with atheris.instrument_imports(include=["gradband"], exclude=COMPILED):
    from loaders import LOADERS, corpus, scratch

    from gradband.core import parquet, resources
    from gradband.core.errors import InputError

MEMORY = 4 << 30
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "socket.connect", "ctypes.dlopen")
READABLE = [sys.prefix, sys.base_prefix, "/proc", "/sys", ROOT / "gradband", ROOT / "tests"]
armed = False
forbidden: list[str] = []  # what was done and must not be: loaders may catch what a hook raises


def watch(event, arguments):
    """An audit hook: while a loader runs, it opens no file outside its folder and starts nothing."""
    if not armed:
        return
    trial = event == "subprocess.Popen" and list(arguments[1][1:4]) == ["-P", "-c", parquet.TRIAL]
    if event in FORBIDDEN and not trial:
        forbidden.append(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[0], str):
        path = Path(arguments[0]).resolve()
        if not any(path.is_relative_to(folder) for folder in (scratch(), *READABLE)):
            forbidden.append(f"opened {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loader", nargs="?", choices=LOADERS)
    parser.add_argument("file", nargs="?", help="play this finding again, and nothing else")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--cases", type=int, default=10_000_000)
    given = parser.parse_args()
    if given.loader is None:
        sys.exit(fuzz_all(["--minutes", str(given.minutes), "--cases", str(given.cases)]))
    load = LOADERS[given.loader]
    seeds = corpus(given.loader)

    def one(content):
        global armed
        armed = True
        try:
            load(content)
        except InputError as error:
            if not str(error).strip():
                raise AssertionError("an error without words") from error
        finally:
            armed = False
        if forbidden:
            raise AssertionError(forbidden)

    for content in seeds:  # imports what is imported late, and shows that the seeds are good
        try:
            load(content)
        except InputError as error:
            print(f"of the seeds, refused: {error}", file=sys.stderr)
    sys.addaudithook(watch)
    if given.file:
        one(Path(given.file).read_bytes())
        print("accepted, or refused as it should be")
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    known, found = Path("runs/fuzz", given.loader, "corpus"), Path("runs/fuzz", given.loader, "findings")
    for folder in (known, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds):
        (known / f"seed-{number}").write_bytes(content)
    limits = [f"-max_total_time={60 * given.minutes:.0f}", f"-runs={given.cases}", "-timeout=10"]
    limits += ["-rss_limit_mb=8192", "-max_len=16384", "-print_final_stats=1", f"-artifact_prefix={found}/"]
    atheris.Setup([sys.argv[0], *limits, str(known)], one)
    atheris.Fuzz()


def fuzz_all(limits):
    """Fuzzes each loader in a process of its own; the worst of their exit codes."""

    def fuzz(loader):
        log = Path("runs/fuzz", loader, "log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            command = [sys.executable, __file__, loader, *limits]
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-6:]
        print(f"{loader}: exit code {code}", *last, sep="\n    ", flush=True)
        return abs(code)

    with ThreadPoolExecutor(resources.cores()) as threads:
        return max(threads.map(fuzz, LOADERS))


if __name__ == "__main__":
    main()
