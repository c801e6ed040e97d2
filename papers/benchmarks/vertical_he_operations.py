"""What the paper's circuit of Vertical HE would take, from the times of a product and of a rotation at N = 32768.

    python papers/benchmarks/vertical_he_operations.py [--output papers/benchmarks/results]

Times are processor seconds of one process, by primes left. The circuit is that of docs/vertical-he.md, "The paper's
circuit": 2 + 2 columns, 10,000 records, sign polynomials of degrees 15 and 7. Run it alone; with --output the tables are
also written to that folder.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.he.lattice import Parameters
from fastlloyd.protocols.vertical_he.he.seal import library
from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly
from fastlloyd_papers.engine.tables import markdown_table

REPEATS, DEGREE, SCALE = 3, 32768, 2.0**36
CLUSTERS = (5, 8)
LEVELS = (2, 4, 6, 8, 10, 12, 14)
SLOTS, RECORDS, COLUMNS = 16384, 10_000, 2


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor seconds of one call, the mean of a few."""
    start = time.process_time()
    for _ in range(REPEATS):
        work()
    return (time.process_time() - start) / REPEATS


def operations(k: int) -> tuple[list[int], list[int]]:
    """List the primes left at each product and at each rotation of one ciphertext."""
    tree = math.ceil(math.log2(k - 1))
    primes = 1 + 1 + 1 + 7 + tree  # the last one; squares of distances, the transposition's mask, the signs, the ranks
    doubling = math.ceil(math.log2(k)) if k & (k - 1) == 0 else 2 * math.floor(math.log2(k)) - 1
    products = [primes] * COLUMNS
    rotations = [primes - 1] * (doubling + math.ceil(math.log2(k))) + [primes - 2] * doubling
    top = primes - 2
    products += [top, top - 1, top - 1, top - 2, top - 2, top - 3, top - 4, top - 5, top - 5, top - 6]
    left, factors = top - 7, k - 1
    rotations += [left] * doubling
    while factors > 1:
        products += [left] * (factors // 2)
        left, factors = left - 1, (factors + 1) // 2
    return products, rotations


def main() -> None:
    """Write a row for each level, and one with the size of a key for each k."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    output: Path | None = parser.parse_args().output
    before, times = begin_quietly(), measure()
    commit = describe_commit(Path(__file__).parent, Path(__file__).name)
    levels = [[str(primes), f"{one:.3f}", f"{other:.3f}"] for primes, (one, other) in zip(LEVELS, times, strict=True)]
    header = [
        "k",
        "ciphertexts, of so many records",
        "rotations",
        "products",
        "s for one",
        "s for a round",
        "MB of a key",
    ]
    text = f"""# Vertical HE: what the paper's circuit would take

{describe_machine()}, commit {commit}; load before {before:.1f}. Processor seconds of one process at N = 32768, means of {REPEATS}. The
circuit: 2 + 2 columns, {RECORDS:,} records, added up level by level, between levels interpolated. A key: for one step of a rotation,
half of it as a seed. Made by `python papers/benchmarks/vertical_he_operations.py`.

{markdown_table(["primes left", "product, s", "rotation, s"], levels)}

{markdown_table(header, [circuit(k, times) for k in CLUSTERS])}
"""
    print(text)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "vertical_he_operations.md").write_text(text)


def measure() -> list[tuple[float, float]]:
    """Return the seconds of a product and of a rotation at each level."""
    parameters = Parameters(DEGREE, (60, *(36,) * 13, 60))
    context = Context(parameters)
    holder, evaluator = KeyHolder(context), context.evaluator
    relin, turn = context.load_relin_key(holder.relin_key()), library().GaloisKeys()
    holder._generator.create_galois_keys([3], turn)  # one slot to the left
    values = np.random.default_rng(0).uniform(-1.0, 1.0, parameters.degree // 2)
    plain = context.encode_slots(values, SCALE, context.level(parameters.digits))
    fresh = context.load_ciphertext(holder.encrypt(plain), scale=SCALE)
    times = []
    for primes in LEVELS:
        cipher = context.cipher()
        evaluator.mod_switch_to(fresh, context.level(primes), cipher)

        def multiply(cipher: Any = cipher) -> None:
            square = context.cipher()
            evaluator.square(cipher, square)
            evaluator.relinearize_inplace(square, relin)
            evaluator.rescale_to_next_inplace(square)

        def rotate(cipher: Any = cipher) -> None:
            evaluator.rotate_vector(cipher, 1, turn, context.cipher())

        times.append((seconds(multiply), seconds(rotate)))
    return times


def circuit(k: int, times: list[tuple[float, float]]) -> list[str]:
    """Return a row: what one round takes with k clusters."""
    product, rotation = zip(*times, strict=True)
    products, rotations = operations(k)
    one = np.interp(products, LEVELS, product).sum() + np.interp(rotations, LEVELS, rotation).sum()
    points = SLOTS // k**2
    ciphertexts = -(-RECORDS // points)
    chain = Parameters(DEGREE, (60, *(36,) * (products[0] - 1), 60))
    key = chain.digits * chain.public_key_bytes / 1e6
    return [
        str(k), f"{ciphertexts} of {points}", str(len(rotations)), str(len(products)), f"{one:.2f}",
        f"{one * ciphertexts:.1f}", f"{key:.1f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
