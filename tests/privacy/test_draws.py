"""The list of every draw of secret randomness, and the tests that look at it: `draws.toml` lacks none.

A draw is a call that is given a source of secret bits (`SecretRandom`), takes bits from it or makes one, asks the
operating system, or expands a key. They are found in the syntax of all modules, so that whoever adds one must
say which tests see it go wrong.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import fastlloyd

ROOT = Path(fastlloyd.__file__).parent
TESTS = Path(__file__).parents[1]
LIST = Path(__file__).with_name("draws.toml")
SOURCE = "SecretRandom"
KEYED = ("keystream", "KeyStream", "MaskStream", "KeyedRandom")
FURTHER = ("exponentials", "_exceeds")
"""What takes further bits of several sources, each by a function."""
LIBRARIES = (
    "KeyGenerator",
    "create_relin_keys",
    "encrypt_symmetric",
    "encrypt_zero",
    "encrypt_zero_symmetric",
    "encapsulate",
    "generate",
)
"""What draws inside a library: keys, and encryptions."""
SYSTEM = ("os.urandom", "secrets.token_bytes", "secrets.token_hex", "secrets.randbits")


def draws_of(source: str) -> set[str]:
    """Return each draw of a module: the function that draws, and what it calls."""
    tree = ast.parse(source)
    kept = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr.endswith("secret")
    }
    return set(_inside(tree, "", kept))


def _inside(node: ast.AST, where: str, sources: set[str]) -> Iterator[str]:
    """Walk a module, a class or a function with the sources that it can name."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        own = {one.arg for one in arguments if one.annotation is not None and SOURCE in ast.unparse(one.annotation)}
        sources = (sources - {one.arg for one in arguments}) | own
    if isinstance(node, ast.FunctionDef):
        sources = sources | {
            name.id
            for one in ast.walk(node)
            if isinstance(one, ast.Assign)
            for target, value in _pairs(one)
            if f"{SOURCE}()" in {ast.unparse(one) for one in _branches(value)}
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        sources = sources | {name for one in node.generators for name in _each_of(one, sources)}
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        where = f"{where}.{node.name}".lstrip(".")
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        arguments = [*node.args, *(word.value for word in node.keywords)]
        inside = [one for several in arguments if isinstance(several, ast.List | ast.Tuple) for one in several.elts]
        given = [ast.unparse(one) for one in (*arguments, *inside)]
        # A method of the source, the source itself, or its method as it is.
        used = any(called.rpartition(".")[0] == name for name in sources) or any(
            one in (name, f"{name}.bytes", f"{name}.uint64", f"{name}.further") for one in given for name in sources
        )
        named = called.rpartition(".")[2] in (*KEYED, *FURTHER, *LIBRARIES)
        if (used and called != "zip") or called in (SOURCE, *SYSTEM) or named:
            yield f"{where} {called}".lstrip()
    for child in ast.iter_child_nodes(node):
        yield from _inside(child, where, sources)


def _each_of(loop: ast.comprehension, sources: set[str]) -> set[str]:
    """Return the names in a loop's target that stand for one of several sources: by their name."""
    several = any(isinstance(one, ast.Name) and one.id in sources for one in ast.walk(loop.iter))
    return {
        one.id for one in ast.walk(loop.target) if several and isinstance(one, ast.Name) and one.id.endswith("secret")
    }


def _branches(value: ast.expr) -> list[ast.expr]:
    """Return what a value may be."""
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]


def _pairs(assigned: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets of an assignment with their values, of tuples one by one."""
    target, value = assigned.targets[0], assigned.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def found() -> dict[str, set[str]]:
    """Return the draws of every module that has any."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    # Whatever draws has one of these names in it; to look at the syntax of all others takes twice as long.
    names = (SOURCE, "secret", *KEYED, *FURTHER, *(f"{one}(" for one in LIBRARIES), *SYSTEM)
    modules = {name: draws_of(text) for name, text in texts.items() if any(one in text for one in names)}
    return {name: draws for name, draws in modules.items() if draws}


@functools.cache
def named_in(path: str) -> set[str]:
    """Return the names of the tests of a file."""
    nodes = ast.walk(ast.parse((TESTS / path).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_draw_is_listed_with_tests_that_are_there() -> None:
    listed = tomllib.loads(LIST.read_text())
    assert {name: set(entry["draws"]) for name, entry in listed.items()} == found()
    for name, entry in listed.items():
        assert entry["tests"] or entry["why"], name
        for one in entry["tests"]:
            path, _, function = one.partition("::")
            assert function in named_in(path), f"{name}: {one}"


def test_a_new_draw_is_found_wherever_it_stands() -> None:
    source = """
def noise(plan, secret: SecretRandom | None, *, other: "SecretRandom"):
    fresh = SecretRandom() if secret is None else secret
    me, mine = party(), SecretRandom()
    def inner(scale):
        return sample(scale, secret)
    return inner(fresh.uint64(3)), partial(sample, secret=other), lambda x: sample(x, mine), len(me)

class Holder:
    def __init__(self, secret: SecretRandom):
        self._secret = secret

    def draw(self):
        return self._secret.bytes(8) + os.urandom(4) + keystream(key, nonce, 3)

def public(secret, stream):
    return stream.bytes(8), secret
"""
    assert draws_of(source) == {
        "noise SecretRandom",
        "noise.inner sample",
        "noise fresh.uint64",
        "noise partial",
        "noise sample",
        "Holder.draw self._secret.bytes",
        "Holder.draw os.urandom",
        "Holder.draw keystream",
    }
