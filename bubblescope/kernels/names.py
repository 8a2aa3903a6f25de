"""Names of kernels, made short enough for a table."""

from __future__ import annotations

import re

_NAMELESS = re.compile(r"(\(anonymous namespace\)|\{anonymous\}|<unnamed>)::")
_QUALIFIER = re.compile(r"\b[A-Za-z_]\w*::")
_LAMBDA = re.compile(r"::\{lambda\([^()]*\)#\d+\}")
_CALL = re.compile(r"::operator\(\)\([^()]*\)(?: const)?")
_GENERIC = re.compile(r"(?:\w+::)?\b(?:kernel|Kernel2?|device_kernel)(?=<|$)")
_CPP = re.compile(r"::|[<(]|^void ")


def short(name: str) -> str:
    """A demangled name without return type, parameters, namespaces and lambdas; others as they are.

    Template arguments stay: they tell instances of one function apart. A function that is only
    called "kernel" keeps its namespace.
    """
    if not _CPP.search(name):
        return name
    bare = _NAMELESS.sub("", name)
    bare = _LAMBDA.sub("", _CALL.sub("", bare))
    bare = _without_return_type(_without_parameters(bare))
    generic = _GENERIC.search(bare.partition("<")[0])
    said = generic[0].rpartition("::")[0] + "::" if generic and "::" in generic[0] else ""
    return said + _QUALIFIER.sub("", bare) or name


def function(name: str) -> str:
    """The bare identifier of a demangled name, as ncu filters by it; others as they are.

    "gemm" of "void a::gemm<4>(int)".
    """
    if not _CPP.search(name):
        return name
    bare = _without_return_type(_without_parameters(_NAMELESS.sub("", name)))
    return _QUALIFIER.sub("", bare).partition("<")[0] or name


def _without_parameters(name: str) -> str:
    """Up to the first parenthesis that stands in no template arguments."""
    depth = 0
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not name[:at].endswith("operator"):
            return name[:at]
    return name


def _without_return_type(name: str) -> str:
    """After the last space that stands in no template arguments."""
    depth = at = 0
    for number, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == " " and depth == 0:
            at = number + 1
    return name[at:]
