"""Whether kernels that begin early wait before they touch what other kernels write.

A kernel here has a parameter `PDL`. Its source is walked in order, with the parameters that each
name's address begins with. What it may read before `gdc_wait` is declared in its module:

    BEFORE_WAIT = {"_kernel": Reads(constant=("weight",), settled=("state",))}

constant: nobody writes it while kernels run. settled: it was final before the kernel before this
one began, which holds as every kernel lets the next begin only after its own wait. Whether that is
so the order of launches says, not the source: a declaration is a promise of whoever launches.

It is also a fault to read a parameter and write it in one kernel: not all programs run at once, and
one that begins later would read what another has written.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

WAIT, TRIGGER = "gdc_wait", "gdc_launch_dependents"
_ATOMIC = "atomic_"
_UNSEEN = "inline_asm_elementwise"
_BUILT_IN = {"bool", "float", "int", "len", "max", "min", "print", "range", "tuple"}


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
    early = declared(tree)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_compiled(n)]
    kernels = [n for n in functions if any(a.arg == "PDL" for a in _arguments(n))]
    helpers = {n.name: _touches(n, functions) for n in functions if n not in kernels}
    found: list[Fault] = []
    for kernel in kernels:
        walk = _Walk(kernel.name, early.get(kernel.name, Reads()), _parameters(kernel), helpers)
        if not walk.block(kernel.body, waited=False):
            walk.fault(kernel, "can end without a wait")
        walk.finish(kernel)
        found += walk.faults
    for name in early.keys() - {k.name for k in kernels}:
        found.append(Fault(1, name, "is declared, but there is no such kernel"))
    for function in functions:
        if function not in kernels and _called(function) & {WAIT, TRIGGER}:
            what = "waits or lets the next begin, but has no parameter PDL"
            found.append(Fault(function.lineno, function.name, what))
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)):
        for alias in node.names:
            if alias.name in (WAIT, TRIGGER) and alias.asname not in (None, alias.name):
                found.append(Fault(node.lineno, alias.name, f"is imported as {alias.asname}"))
    return sorted(set(found))


def _is_compiled(function: ast.FunctionDef) -> bool:
    names = {ast.unparse(d).split("(")[0] for d in function.decorator_list}
    return bool(names & {"triton.jit", "jit"})


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _parameters(kernel: ast.FunctionDef) -> set[str]:
    return {a.arg for a in _arguments(kernel) if a.annotation is None}


def _called(function: ast.FunctionDef) -> set[str]:
    """Names of all functions and methods that it calls."""
    return {_name(n) for n in ast.walk(function) if isinstance(n, ast.Call)}


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _touches(function: ast.FunctionDef, functions: list[ast.FunctionDef]) -> tuple[bool, bool]:
    """Whether a function, with those of the module that it calls, reads memory, and writes it."""
    reached, names = [function], _called(function)
    for other in reached:
        new = [f for f in functions if f.name in _called(other) and f not in reached]
        reached += new
        names |= _called(other)
    return "load" in names or _UNSEEN in names, any(_writes(n) for n in names)


def _writes(name: str) -> bool:
    return name == "store" or name.startswith(_ATOMIC) or name == _UNSEEN


def declared(tree: ast.Module) -> Mapping[str, Reads]:
    """`BEFORE_WAIT` of a module."""
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
    """One kernel.

    helpers: functions of its module, whether they read memory and whether they write it. bases:
    parameters that a name's address can begin with. read, written: parameters, in all of it.
    """

    kernel: str
    reads: Reads
    parameters: set[str]
    helpers: Mapping[str, tuple[bool, bool]]
    bases: dict[str, set[str]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    loops: int = 0

    def fault(self, node: ast.AST, what: str) -> None:
        self.faults.append(Fault(getattr(node, "lineno", 1), self.kernel, what))

    def finish(self, kernel: ast.FunctionDef) -> None:
        """Faults of the kernel as a whole."""
        for name in sorted(self.read & self.written):
            self.fault(kernel, f"reads and writes {name}: a later program reads what was written")
        for name in sorted(self.reads.names & self.written):
            self.fault(kernel, f"writes {name}, which is declared final before it begins")
        for name in sorted(self.reads.names - self.parameters):
            self.fault(kernel, f"has no parameter {name}, which is declared")

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
                over = node.iter if isinstance(node, ast.For) else node.test
                self._expression(over, waited)
                if isinstance(node, ast.For):
                    self._assign(node.target, over)
                self.loops += 1
                for _ in range(2):  # what the first pass assigned is read by the second
                    self.block(node.body, waited)
                self.loops -= 1
            case ast.Assign(targets=targets, value=value):
                self._expression(value, waited)
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._expression(value, waited)
                self._assign(target, value)
            case ast.Return():
                if not waited:
                    self.fault(node, "can end without a wait")
                if node.value is not None:
                    self._expression(node.value, waited)
            case ast.Expr(value=ast.Call() as call) if _name(call) in (WAIT, TRIGGER):
                return self._control(node, _name(call), waited)
            case ast.With() | ast.Try() | ast.Match() | ast.FunctionDef():
                self.fault(node, "has a statement that is not understood")
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
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                self._assign(part.target, part.value)
            elif isinstance(part, ast.Call):
                self._call(part, waited)

    def _call(self, call: ast.Call, waited: bool) -> None:
        name = _name(call)
        given = [*call.args, *(k.value for k in call.keywords)]
        all_of = {base for argument in given for base in self._all(argument)}
        match call.func:
            case ast.Attribute(value=ast.Name(id="tl")):
                address = self._base(given[0]) if given else set()
                if name == "load":
                    self._touch(call, address, waited, reads=True)
                elif name == _UNSEEN:
                    self._touch(call, all_of, waited, reads=True, writes=True)
                elif _writes(name):
                    self._touch(call, address, waited, writes=True)
            case ast.Attribute(value=of) if name in ("load", "store"):  # of a descriptor
                self._touch(
                    call, self._base(of), waited, reads=name == "load", writes=name == "store"
                )
            case ast.Name(id=name) if name in self.helpers:
                reads, writes = self.helpers[name]
                self._touch(call, all_of, waited, reads=reads, writes=writes)
            case ast.Name(id=name) if name not in _BUILT_IN and all_of and not waited:
                self.fault(call, f"gives {_names(all_of)} to {name} before its wait")
            case ast.Attribute(value=ast.Name(id=module)):
                strange = module not in self.bases and module not in self.parameters
                if strange and all_of and not waited:
                    self.fault(call, f"gives {_names(all_of)} to {module}.{name} before its wait")

    def _touch(
        self,
        call: ast.Call,
        bases: set[str],
        waited: bool,
        *,
        reads: bool = False,
        writes: bool = False,
    ) -> None:
        """Memory is read or written at an address that begins with one of these parameters."""
        self.read |= bases if reads else set()
        self.written |= bases if writes else set()
        if waited:
            return
        early = bases - self.reads.names
        if writes:
            self.fault(call, f"writes {_names(bases)} before its wait")
        elif reads and (early or not bases):
            self.fault(call, f"reads {_names(early)} before its wait")


def _names(bases: set[str]) -> str:
    return ", ".join(sorted(bases)) or "an address that was read"
