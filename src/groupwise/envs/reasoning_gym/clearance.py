"""Which scorers of reasoning-gym were reviewed, and the grammar that reads an answer where a scorer would evaluate it.

Somebody read the scorer of every family of the versions in `READ_VERSIONS`, and what it calls. Most compare texts,
numbers or JSON. Five evaluate the answer as Python, five give it to sympy; inside the verifier's process those read it
by a grammar (`answer_grammars`), and what is outside scores as the family scores an answer that it cannot read. A
package with one other line of code is not the one that was read: its families are not cleared.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from groupwise.core.confinement.process import find_boundaries
from groupwise.core.errors import ConfigError
from groupwise.envs.verifier.answer_grammars import read_literal
from groupwise.envs.verifier.sympy_guard import guard_sympy

PACKAGE = "reasoning_gym"
READ_VERSIONS = {"0.1.25": "2827d43e1825011663c8c7ccf5a0b72154f232b90053604276f80ea37dc6992f"}
"""Versions whose scorers were read, with the digest of their code."""
LITERAL, EXPRESSION, OF_ITS_PARTS = "literal", "expression", "those of the families it is made of"
GRAMMARS = {
    "binary_matrix": LITERAL,
    "n_queens": LITERAL,
    "number_sorting": LITERAL,
    "spiral_matrix": LITERAL,
    "string_insertion": LITERAL,
    "countdown": EXPRESSION,
    "intermediate_integration": EXPRESSION,
    "polynomial_multiplication": EXPRESSION,
    "puzzle24": EXPRESSION,
    "simple_integration": EXPRESSION,
    "composite": OF_ITS_PARTS,
}
"""Families whose scorers would evaluate, and what reads their answers instead."""
EVALUATORS = (
    "reasoning_gym.algorithmic.binary_matrix",
    "reasoning_gym.algorithmic.number_sorting",
    "reasoning_gym.algorithmic.spiral_matrix",
    "reasoning_gym.algorithmic.string_insertion",
    "reasoning_gym.games.n_queens",
)
"""Modules whose `eval` becomes a reader of literals; the expressions of the others go through sympy."""
_COMPARING = """
    ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
    bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio coin_flip
    color_cube_rotation complex_arithmetic count_bits count_primes course_schedule cryptarithm decimal_arithmetic
    decimal_chain_sum dice emoji_mystery family_relationships figlet_font fraction_simplification futoshiki game_of_life
    game_of_life_halting gcd graph_color group_anagrams gsm_symbolic isomorphic_strings jugs kakurasu knight_swap
    knights_knaves largest_island lcm leg_counting letter_counting letter_jumble list_functions mahjong_puzzle
    manipulate_matrix maze mini_sudoku modulo_grid needle_haystack number_filtering number_format number_sequence
    palindrome_generation palindrome_partitioning path_star polynomial_equations pool_matrix power_function
    prime_factorization products propositional_logic quantum_lock ransom_note rearc rectangle_count rotate_matrix
    rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering shortest_path simple_equations
    simple_geometry sokoban spell_backward string_manipulation string_splitting string_synthesis sudoku survo syllogism
    time_intervals tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
    """
COMPARING = frozenset(_COMPARING.split())
"""Families whose scorers compare: nothing in them evaluates."""
WRITING = frozenset(("knight_swap",))
"""Families whose scorers write into the question that they were given; they are given a copy."""


def is_cleared(family: str) -> bool:
    """Whether nothing in the installed scorer of a family evaluates an answer."""
    return (family in COMPARING or family in GRAMMARS) and package_digest() in READ_VERSIONS.values()


def require_boundary(family: str) -> None:
    """Refuse a family whose scorer was not read where nothing would hold what its answers may do."""
    if is_cleared(family) or "system calls" in find_boundaries():
        return
    raise ConfigError(
        f"reasoning_gym {family!r}: its scorer may evaluate what a model answers, and this system has no seccomp to "
        f"hold that; install reasoning-gym=={max(READ_VERSIONS)}, whose scorers were read, or train on Linux"
    )


def install_readers() -> None:
    """Within a verifier's process: import the families, and have their answers read instead of evaluated."""
    import_module(PACKAGE)
    guard_sympy()
    for name in EVALUATORS:
        import_module(name).__dict__["eval"] = read_literal


@cache
def package_digest() -> str:
    """Fingerprint of the installed package's code; empty where there is none."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return ""
    folder = Path(next(iter(spec.submodule_search_locations)))
    digest = sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
