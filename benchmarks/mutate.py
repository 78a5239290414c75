"""Mutation run over the rules: change one thing at a time, and see whether a test notices.

    python benchmarks/mutate.py [--examples 40] [--processes 2] [--only card_transaction]

Each mutant of `ledger/core` is compiled in a process forked from this one, so that nothing is
imported twice and no file is touched; tests/core runs against it until the first failure.
"""

import argparse
import ast
import copy
import gc
import importlib
import importlib.machinery
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CORE = ROOT / "ledger" / "core"
# The quick and sharp ones first: a mutant ends with its first failure.
TESTS = [
    "tests/core/test_lifecycles.py",
    "tests/core/test_card_transaction.py",
    "tests/core/test_write_offs.py",
    "tests/core/test_entries.py",
    "tests/core/test_authorization.py",
    "tests/core/test_money.py",
    "tests/core/test_properties.py",
]
_TIMEOUT_S = 120
# What the tests import, and what does not import the rules.
_PRELOADED = (
    "_pytest.terminal",
    "alembic",
    "cardledger.embedded.servers",
    "hypothesis.stateful",
    "cardledger.ledger.testing.machine",
    "psycopg",
    "pytest",
    "redis",
    "cardledger.schema.migrate",
    "cardledger.schema.wire.cards.card_transaction_events",
    "structlog",
)

_COMPARE: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}


class Mutant(NamedTuple):
    """One change of one file."""

    module: str
    line: int
    what: str
    tree: ast.Module


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of the file at `path`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = f"cardledger.ledger.core.{path.stem}"
    decorators = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        for decorator in node.decorator_list
        for part in ast.walk(decorator)
    }
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in decorators:
            continue  # How a class is made is no rule.
        for number in range(len(_changes(node))):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[place]
            before = ast.unparse(target)
            _apply(target, number)
            after = ast.unparse(target)
            line = getattr(node, "lineno", 0)
            yield Mutant(module, line, f"{before}  ->  {after}", ast.fix_missing_locations(changed))


# `_changes` chooses a change by the type of the node, so the change says what the node is. mypy
# cannot follow that: hence the ignores below.
def _changes(node: ast.AST) -> list[tuple[str, object]]:  # noqa: C901 - one branch a kind
    """Return what can be done to `node`, as words that `_apply` understands."""
    found: list[tuple[str, object]] = []
    match node:
        case ast.Compare(ops=[operator]):
            found += [("compare", kind) for kind in _COMPARE.get(type(operator), [])]
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
            found += [("arithmetic", None), ("left", None), ("right", None)]
        case ast.BoolOp(values=values):
            found += [("and-or", None), *(("drop", place) for place in range(len(values)))]
        case ast.UnaryOp(op=ast.Not()):
            found += [("no-not", None)]
        case ast.Call(func=ast.Name(id="min" | "max")):
            found += [("min-max", None)]
        case ast.Constant(value=bool()):
            found += [("flip", None)]
        case ast.Constant(value=int()):
            found += [("plus", 1), ("plus", -1)]
        case ast.IfExp():
            found += [("always", None), ("never", None)]
        case ast.If() | ast.match_case(guard=ast.expr()):
            found += [("always", None), ("never", None)]
        case ast.Call(func=ast.Name(id="replace"), keywords=keywords):
            found += [("forget", place) for place in range(len(keywords))]
    if isinstance(node, ast.FunctionDef):
        found += [("skip", place) for place in _droppable(node)]
    return found


def _droppable(node: ast.FunctionDef) -> list[int]:
    """Return the places of statements that can be left out without a NameError."""
    return [
        place
        for place, statement in enumerate(node.body)
        if (isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant))
        or isinstance(statement, ast.AugAssign)
        or (isinstance(statement, ast.Assign) and _assigns_again(node, place))
    ]


def _assigns_again(node: ast.FunctionDef, place: int) -> bool:
    [target, *_] = node.body[place].targets  # type: ignore[attr-defined]
    return isinstance(target, ast.Name) and target.id in {a.arg for a in node.args.args}


def _apply(node: ast.AST, number: int) -> None:  # noqa: C901, PLR0912 - one branch a kind
    what, detail = _changes(node)[number]
    match what:
        case "compare":
            node.ops = [detail()]  # type: ignore[attr-defined, operator]
        case "arithmetic":
            node.op = _ARITHMETIC[type(node.op)]()  # type: ignore[attr-defined]
        case "left":
            node.right = ast.Constant(0)  # type: ignore[attr-defined]
        case "right":
            node.left = ast.Constant(0)  # type: ignore[attr-defined]
        case "and-or":
            is_and = isinstance(node.op, ast.And)  # type: ignore[attr-defined]
            node.op = ast.Or() if is_and else ast.And()  # type: ignore[attr-defined]
        case "drop":
            del node.values[detail]  # type: ignore[attr-defined]
            node.values *= 2 if len(node.values) == 1 else 1  # type: ignore[attr-defined]
        case "no-not":
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)  # type: ignore[attr-defined]
        case "min-max":
            node.func.id = "max" if node.func.id == "min" else "min"  # type: ignore[attr-defined]
        case "flip":
            node.value = not node.value  # type: ignore[attr-defined]
        case "plus":
            node.value += detail  # type: ignore[attr-defined]
        case "always" | "never":
            value = ast.Constant(what == "always")
            name = "guard" if isinstance(node, ast.match_case) else "test"
            setattr(node, name, value)
        case "forget":
            del node.keywords[detail]  # type: ignore[attr-defined]
        case "skip":
            node.body[detail] = ast.Pass()  # type: ignore[attr-defined]


def survives(mutant: Mutant, examples: int) -> bool:
    """Return whether tests/core does not notice `mutant`; runs in a process of its own."""
    pid = os.fork()
    if not pid:
        _run(mutant, examples)
    until = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False  # It never ends: that is noticed.


def _run(mutant: Mutant, examples: int) -> None:
    """Run the tests with `mutant` in place of its module; never returns."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.getenv("MUTATE_LOUD") or os.dup2(null, 1)
        os.getenv("MUTATE_LOUD") or os.dup2(null, 2)
        _load(mutant)
        import pytest  # noqa: PLC0415 - the parent has it already
        from hypothesis import Phase, settings  # noqa: PLC0415 - the parent has it already

        settings.register_profile(
            "mutants",
            parent=settings.get_profile("default"),
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(__import__("hypothesis").HealthCheck),
        )
        os.environ["HYPOTHESIS_PROFILE"] = "mutants"
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
        code = int(pytest.main(["-x", "-q", "-p", "no:xdist", *quiet, *TESTS]))
    except BaseException:  # noqa: BLE001 - whatever a mutant does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _load(mutant: Mutant) -> None:
    """Import every module of the rules anew, `mutant` in place of its own."""
    code = compile(mutant.tree, mutant.module, "exec")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:  # noqa: ARG004 - what importlib calls
            if name != mutant.module:
                return None
            return importlib.machinery.ModuleSpec(name, Loader())  # type: ignore[arg-type]

    class Loader:
        @staticmethod
        def create_module(spec: object) -> None:  # noqa: ARG004 - what importlib calls
            return None

        @staticmethod
        def exec_module(module: ModuleType) -> None:
            exec(code, module.__dict__)  # noqa: S102 - ours

    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    importlib.import_module(mutant.module)


def main() -> int:
    """Test each mutant; print those that survive, and the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=40, help="Hypothesis examples a property")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="part of a file name of ledger/core")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in _PRELOADED:  # Once, for every process that is forked.
        importlib.import_module(name)
    assert not any(name.startswith("cardledger.ledger.core.") for name in sys.modules), (
        "imported too early"
    )
    found = [
        mutant
        for path in sorted(CORE.glob("*.py"))
        if arguments.only in path.stem
        for mutant in mutants(path)
    ]
    gc.freeze()  # Or every process would look through all these trees again and again.
    started = time.monotonic()
    alive: list[Mutant] = []
    with ThreadPoolExecutor(arguments.processes) as pool:
        results = pool.map(lambda mutant: survives(mutant, arguments.examples), found)
        for number, (mutant, survived) in enumerate(zip(found, results, strict=True), start=1):
            if survived:
                alive.append(mutant)
                print(f"survived: {mutant.module}:{mutant.line}: {mutant.what[:400]}", flush=True)
            if number % 50 == 0:
                print(f"{number} of {len(found)} tried, {len(alive)} survived", flush=True)
    score = 100 * (len(found) - len(alive)) / max(len(found), 1)
    took = time.monotonic() - started
    print(f"{len(found)} mutants, {len(alive)} survived: {score:.1f} % noticed, in {took:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
