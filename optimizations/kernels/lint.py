"""Whether kernels that begin early wait before they touch what other kernels write.

A kernel here has a parameter `PDL`. Its source is walked in order, with the parameters that each
name's address begins with. What it may read before `gdc_wait` is declared in its module:

    BEFORE_WAIT = {"_kernel": Reads(constant=("weight",), settled=("state",))}

constant: nobody writes it while kernels run. settled: it was final before the kernel before this
one began, which holds as every kernel lets the next begin only after its own wait.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

WAIT, TRIGGER = "gdc_wait", "gdc_launch_dependents"
_READS = {"load", "atomic_add", "atomic_cas", "atomic_max", "atomic_min", "atomic_xchg"}
_WRITES = {"store"} | (_READS - {"load"})


@dataclass(frozen=True, slots=True)
class Reads:
    """Parameters that a kernel may read before its wait; see the module."""

    constant: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self.constant) | frozenset(self.settled)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """line: of the source given, from 1."""

    line: int
    kernel: str
    what: str


def faults(source: str) -> list[Fault]:
    """What is wrong with the kernels of a module, in order of lines.

    Raises:
        SyntaxError: it is not Python.
    """
    tree = ast.parse(source)
    declared = _declared(tree)
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_kernel(n)]
    found: list[Fault] = []
    for kernel in kernels:
        walk = _Walk(kernel.name, declared.get(kernel.name, Reads()), _parameters(kernel))
        if not walk.block(kernel.body, waited=False):
            walk.fault(kernel, "can end without a wait")
        found += walk.faults
    for name in declared.keys() - {k.name for k in kernels}:
        found.append(Fault(1, name, "is declared, but there is no such kernel"))
    return sorted(set(found))


def _is_kernel(function: ast.FunctionDef) -> bool:
    jit = any(ast.unparse(d) == "triton.jit" for d in function.decorator_list)
    return jit and any(a.arg == "PDL" for a in function.args.args)


def _parameters(kernel: ast.FunctionDef) -> set[str]:
    return {a.arg for a in kernel.args.args if a.annotation is None}


def _declared(tree: ast.Module) -> Mapping[str, Reads]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BEFORE_WAIT":
            value = node.value
            if isinstance(value, ast.Dict):
                return {
                    ast.literal_eval(key): _reads(entry)
                    for key, entry in zip(value.keys, value.values, strict=True)
                    if key is not None
                }
    return {}


def _reads(call: ast.expr) -> Reads:
    given = call.keywords if isinstance(call, ast.Call) else []
    return Reads(**{str(k.arg): ast.literal_eval(k.value) for k in given})


@dataclass(slots=True)
class _Walk:
    """One kernel. bases: parameters that a name's address can begin with."""

    kernel: str
    reads: Reads
    parameters: set[str]
    bases: dict[str, set[str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    loops: int = 0

    def fault(self, node: ast.AST, what: str) -> None:
        self.faults.append(Fault(getattr(node, "lineno", 1), self.kernel, what))

    def block(self, body: list[ast.stmt], waited: bool) -> bool:
        """Walk statements; whether the wait is behind whoever ran them."""
        for statement in body:
            waited = self._statement(statement, waited)
        return waited

    def _statement(self, node: ast.stmt, waited: bool) -> bool:
        match node:
            case ast.If(test=ast.Name(id="PDL")):
                return self.block(node.body, waited)
            case ast.If():
                self._expression(node.test, waited)
                before = {name: set(bases) for name, bases in self.bases.items()}
                first = self.block(node.body, waited)
                after, self.bases = self.bases, before
                second = self.block(node.orelse, waited)
                for name, bases in after.items():
                    self.bases[name] = self.bases.get(name, set()) | bases
                return first and second
            case ast.For() | ast.While():
                self._expression(node.iter if isinstance(node, ast.For) else node.test, waited)
                self.loops += 1
                for _ in range(2):  # what the first pass assigned is read by the second
                    self.block(node.body, waited)
                self.loops -= 1
            case ast.Assign(targets=[target], value=value):
                self._expression(value, waited)
                self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._expression(value, waited)
                self._assign(target, value)
            case ast.Return():
                if not waited:
                    self.fault(node, "can end without a wait")
                if node.value is not None:
                    self._expression(node.value, waited)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in (WAIT, TRIGGER):
                return self._control(node, name, waited)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expression(child, waited)
        return waited

    def _control(self, node: ast.stmt, name: str, waited: bool) -> bool:
        if name == WAIT:
            if self.loops:
                self.fault(node, "waits inside a loop, whose loads may be moved before it")
            return True
        if not waited:
            self.fault(node, "lets the next kernel begin before its own wait")
        return waited

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.bases[target.id] = self._base(value)
        elif isinstance(target, ast.Tuple):
            for element in target.elts:
                if isinstance(element, ast.Name):
                    self.bases[element.id] = self._all(value)

    def _base(self, node: ast.expr) -> set[str]:
        """Parameters that an address begins with: of a sum, those of its left side."""
        match node:
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp(left=left):
                return self._base(left)
            case ast.Subscript(value=value):
                return self._base(value)
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                return self._base(value)
            case ast.Call(func=ast.Attribute(attr="load")):
                return set()
        return self._all(node)

    def _all(self, node: ast.expr) -> set[str]:
        named = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return {base for name in named for base in self._named(name)}

    def _named(self, name: str) -> set[str]:
        if name in self.bases:
            return self.bases[name]
        return {name} if name in self.parameters else set()

    def _expression(self, node: ast.expr, waited: bool) -> None:
        if waited:
            return
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name in _WRITES:
                self.fault(call, f"writes {_names(self._base(call.args[0]))} before its wait")
            elif name in _READS:
                early = self._base(call.args[0]) - self.reads.names
                if early or not self._base(call.args[0]):
                    self.fault(call, f"reads {_names(early)} before its wait")


def _names(bases: set[str]) -> str:
    return ", ".join(sorted(bases)) or "an address that was read"
