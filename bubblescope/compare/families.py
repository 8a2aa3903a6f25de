"""The family of a kernel: its name without what only says how it was instantiated.

- A demangled C++ name: its qualified name, without return type, template arguments, parameters
  and anonymous namespaces. CUTLASS's generic entry points stand for the kernel in their first
  template argument.
- A name of Tensile's (rocBLAS, hipBLASLt): its problem type, up to its solution's parameters.
- Any other name: without the words that are numbers, tile shapes ("64x8"), Triton's argument
  specialisations ("0d1d2de") or hashes; and, in names with a tile shape, without stages and
  alignments ("stage3", "align8").

`_fwd_kernel_stage1` and `_fwd_kernel_stage2` stay two. A mangled name is a family of its own.
"""

from __future__ import annotations

import re

_OPERATOR = re.compile(r"\boperator\s*(?:\(\)|<=>|<<=?|>>=?|<=|>=|->\*?|<|>)")
_NAMELESS = re.compile(r"(?:\(anonymous namespace\)|\{anonymous\}|<unnamed>|_GLOBAL__N_\w*)(?:::)?")
_CPP = re.compile(r"::|[<(]|^void ")
_ENTRY = re.compile(r"(?:^|::)cutlass::(?:Kernel2?|device_kernel)$")
_SHAPE = re.compile(r"^[A-Za-z]*\d+(?:x\d+)+$")
_NUMBER = re.compile(r"^\d+x?$")
_SPECIALISED = re.compile(r"^0[\dcde]*$")
_HASH = re.compile(r"^(?=[a-z]*\d)(?=\d*[a-z])[0-9a-f]{8,}$")
_SOLUTION = re.compile(r"_(?:MT\d|SN_)")
_GENERATED = re.compile(r"^(?:stages?|align[a-z]?|alignment)\d*$")


def family(name: str) -> str:
    """The family of a kernel's name; the name itself where nothing is to be left out."""
    if name.startswith("_Z"):
        return name
    if name.startswith("Cijk_"):
        return _SOLUTION.split(name, maxsplit=1)[0]
    if not _CPP.search(name):
        return _plain(name)
    bare = _NAMELESS.sub("", _OPERATOR.sub("operator", name))
    head, arguments = _head(bare)
    words = head.split()
    qualified = words[-1] if words else ""
    if _ENTRY.search(qualified) and arguments:
        return family(arguments)
    return _plain(qualified) if qualified else name


def _head(name: str) -> tuple[str, str]:
    """The name up to its parameters, without template arguments, and the first of these.

    Of several template argument lists, the last: the others belong to enclosing names.
    """
    kept: list[str] = []
    first: list[str] = []
    depth, taken = 0, False
    for character in name:
        if character == "<":
            depth += 1
            if depth == 1:
                first, taken = [], False
                continue
        elif character == ">" and depth:
            depth -= 1
            if not depth:
                continue
        elif character == "(" and not depth:
            break
        taken = taken or (character == "," and depth == 1)
        if not depth:
            kept.append(character)
        elif not taken:
            first.append(character)
    return "".join(kept), "".join(first).strip()


def _plain(name: str) -> str:
    """Without the words, between underscores, that only number, shape or hash it."""
    words = name.split("_")
    shaped = any(_SHAPE.match(word) for word in words)
    kept = [
        word
        for word in words
        if not (
            _SHAPE.match(word)
            or _NUMBER.match(word)
            or _SPECIALISED.match(word)
            or _HASH.match(word)
            or (shaped and _GENERATED.match(word))
        )
    ]
    return "_".join(kept) or name
