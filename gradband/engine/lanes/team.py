"""Threads that play the vectors of a short kernel together, without Python in between.

Waking a Python thread takes a tenth of a millisecond, as long as many kernels run. So helpers wait for the
next kernel in compiled code that polls a board in memory, and fall asleep only if none comes for a while.
The caller writes a kernel on the board, plays along, and closes the board when no vectors are left. Each
player repeatedly takes the next vectors, so all finish together, even if some started late.
"""

import atexit
import ctypes
import itertools
import os
import struct
import threading
from typing import Any

import numpy as np

PATIENCE = 20_000  # looks at the board before a helper falls asleep: some tenths of a millisecond
SHARES = 16  # pieces of work per player; each computes again what all vectors have in common
# Words on the board, of 8 bytes: those that helpers look at, and what a caller writes, of which `NEXT` and
# `RESULT` change while vectors are played. Each group has cache lines of its own.
OPEN, INSIDE = 0, 1
NEXT, RESULT = 8, 9
LAST, SIZE, HELPERS, KERNEL, INPUT, TABLES, OUT, SCRATCH, EACH, STOP, STRIDE = range(16, 27)
ORDER = struct.Struct("<2q48x11q")  # from NEXT to STRIDE


def _at(name: str, word: int) -> str:
    return f"  %{name} = getelementptr i64, ptr %board, i64 {word}"


def _read(name: str, word: int, kind: str) -> str:
    return f"{_at(name + '.at', word)}\n  %{name} = load {kind}, ptr %{name}.at, align 8"


_POINTERS = {"in": INPUT, "tables": TABLES, "out": OUT, "scratch": SCRATCH, "stop": STOP, "kernel": KERNEL}
_PLAY = f"""
; Plays the next few vectors, again and again, until none are left; `number` tells players apart.
define void @play(ptr %board, i64 %number) {{
{chr(10).join(_read(name, word, "ptr") for name, word in _POINTERS.items())}
{_read("each", EACH, "i64")}
{_read("stride", STRIDE, "i64")}
{_read("last", LAST, "i64")}
{_read("size", SIZE, "i64")}
{_at("next", NEXT)}
{_at("result", RESULT)}
  %shift = mul i64 %each, %number
  %own = getelementptr i8, ptr %scratch, i64 %shift
  br label %look
look:
  %vector = atomicrmw add ptr %next, i64 %size seq_cst
  %left = icmp slt i64 %vector, %last
  br i1 %left, label %some, label %over
some:
  %after = add i64 %vector, %size
  %inner = icmp slt i64 %after, %last
  %edge = select i1 %inner, i64 %after, i64 %last
  %first = trunc i64 %vector to i32
  %end = trunc i64 %edge to i32
  %code = call i32 %kernel(GIVEN, i64 %stride, i32 %first, i32 %end)
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %look, label %wrong
wrong:
  %wide = zext i32 %code to i64
  %old = atomicrmw max ptr %result, i64 %wide seq_cst
  br label %over
over:
  ret void
}}
"""
_LEAD = f"""
; Opens the board, plays along, closes it, and waits until no helper is left inside.
define i64 @lead(ptr %board, i64 %ticket) {{
entry:
{_at("open", OPEN)}
{_at("inside", INSIDE)}
{_at("result", RESULT)}
  store atomic i64 %ticket, ptr %open seq_cst, align 8
  call void @play(ptr %board, i64 0)
  store atomic i64 0, ptr %open seq_cst, align 8
  br label %wait
wait:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ], [ 0, %yield ]
  %others = load atomic i64, ptr %inside seq_cst, align 8
  %alone = icmp eq i64 %others, 0
  PAUSE
  %more = add i64 %looks, 1
  %long = icmp sgt i64 %more, 2000
  br i1 %alone, label %over, label %again
again:
  br i1 %long, label %yield, label %wait
yield:
  YIELD
  br label %wait
over:
  %code = load atomic i64, ptr %result seq_cst, align 8
  ret i64 %code
}}
"""
_HELP = f"""
; Plays along whenever the board opens with a new ticket; returns if none comes for a while.
define i64 @help(ptr %board, i64 %number, i64 %seen, i64 %patience) {{
entry:
{_at("open", OPEN)}
{_at("inside", INSIDE)}
{_at("helpers", HELPERS)}
  br label %look
look:
  %known = phi i64 [ %seen, %entry ], [ %known, %waited ], [ %ticket, %leave ]
  %looks = phi i64 [ 0, %entry ], [ %more, %waited ], [ 0, %leave ]
  %ticket = load atomic i64, ptr %open seq_cst, align 8
  %closed = icmp eq i64 %ticket, 0
  %same = icmp eq i64 %ticket, %known
  %nothing = or i1 %closed, %same
  br i1 %nothing, label %waited, label %enter
waited:
  PAUSE
  %more = add i64 %looks, 1
  %tired = icmp sgt i64 %more, %patience
  br i1 %tired, label %over, label %look
enter:
  ; Enter before looking again: the board is not rewritten while someone is inside.
  %before = atomicrmw add ptr %inside, i64 1 seq_cst
  %still = load atomic i64, ptr %open seq_cst, align 8
  %wanted = load i64, ptr %helpers, align 8
  %there = icmp eq i64 %still, %ticket
  %needed = icmp sle i64 %number, %wanted
  %go = and i1 %there, %needed
  br i1 %go, label %join, label %leave
join:
  call void @play(ptr %board, i64 %number)
  br label %leave
leave:
  %after = atomicrmw sub ptr %inside, i64 1 seq_cst
  br label %look
over:
  ret i64 %known
}}
"""


def code(is_x86: bool) -> str:
    """The assembly of these functions. Waiting loops pause the processor, and finally yield to others."""
    known = {
        "PAUSE": ("void", "llvm.x86.sse2.pause", is_x86),
        "YIELD": ("i32", "sched_yield", os.name == "posix"),
    }
    text = _PLAY + _LEAD + _HELP
    for word, (kind, name, exists) in known.items():
        text = text.replace(word, f"call {kind} @{name}()" if exists else "")
        text = f"declare {kind} @{name}()\n{text}" if exists else text
    given = ", ".join(f"ptr %{name}" for name in ("in", "tables", "out", "own", "stop"))
    return text.replace("GIVEN", given)


class Team:
    """The callers of kernels, and helpers that play along; `functions` are addresses of compiled code."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions  # keeps them in memory
        word, board = ctypes.c_int64, ctypes.c_void_p
        self._lead = ctypes.CFUNCTYPE(word, board, word)(functions["lead"])
        self._help = ctypes.CFUNCTYPE(word, board, word, word, word)(functions["help"])
        memory = np.zeros(40, np.int64)
        start = -(memory.ctypes.data // 8) % 8  # where a cache line begins
        self._board = memory[start : start + STRIDE + 1]
        self._at = self._board.ctypes.data
        self._tickets = itertools.count(1)
        self._busy = threading.Lock()
        self._helpers: list[tuple[threading.Thread, threading.Lock]] = []
        self._asleep: list[bool] = []
        self._over = False
        atexit.register(self._end)

    def play(
        self, kernel: int, given: tuple[int, ...], vectors: tuple[int, int], players: int
    ) -> int | None:
        """Plays all vectors and returns the kernel's code, or None if the team is busy with another kernel.

        `given` are the addresses of input, tables, output and memory, the bytes of memory per player, the
        address of the stop flag, and the distance between rows.
        """
        if not self._busy.acquire(blocking=False):
            return None
        try:
            while len(self._helpers) < players - 1:
                self._hire()
            first, last = vectors
            size = max(1, (last - first) // (players * SHARES))
            ORDER.pack_into(self._board.data, 8 * NEXT, first, 0, last, size, players - 1, kernel, *given)
            for number, (_, door) in enumerate(self._helpers[: players - 1]):
                if self._asleep[number]:
                    self._asleep[number] = False
                    door.release()
            return int(self._lead(self._at, next(self._tickets)))
        finally:
            self._busy.release()

    def _hire(self) -> None:
        number, door = len(self._helpers) + 1, threading.Lock()
        door.acquire()
        thread = threading.Thread(target=self._serve, args=(number, door), daemon=True, name="lanes")
        self._asleep.append(False)
        self._helpers.append((thread, door))
        thread.start()

    def _serve(self, number: int, door: threading.Lock) -> None:
        seen = 0
        while not self._over:
            seen = self._help(self._at, number, seen, PATIENCE)
            self._asleep[number - 1] = True
            door.acquire()

    def _end(self) -> None:
        """Ends all helpers while their code is still in memory."""
        self._over = True
        for number, (thread, door) in enumerate(self._helpers):
            while thread.is_alive():
                if self._asleep[number] and door.locked():
                    door.release()
                thread.join(0.001)
