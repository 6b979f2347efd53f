"""Many programs, one after another."""

from collections import Counter

from . import programs, runner, shrink


def run(seeds, modes=runner.MODES, salts=2, epoch=programs.EPOCH, show=False, tally=None):
    """Yields a report for each family of programs that does not do what it does on the CPU.

    tally, a Counter, is told how many sets of numbers were compared, and how many were left out.
    """
    failed, tally = None, Counter() if tally is None else tally
    for seed in seeds:
        if failed == seed // programs.FAMILY:
            continue
        program = programs.program(seed, epoch)
        if show:
            print(f"# {seed}", *program.lines, sep="\n", flush=True)
        for salt in range(salts):
            failure = runner.check(program.lines, program.marks, modes, salt, tally)
            if failure:
                failed = seed // programs.FAMILY
                yield report(program, salt, *failure)
                break


def report(program, salt, mode, found):
    """Seed, what differs, and a small script that shows it."""
    lines = shrink.shrink(program.lines, program.marks, mode, salt)
    again = runner.check(lines, program.marks, (mode,), salt)
    sentences = "\n".join(again[1] if again else ["(not always)", *found])
    return (
        f"program {program.seed}, numbers {salt}, mode {mode}:\n{sentences}\n"
        f"--- script ---\n{shrink.script(lines, mode, salt)}"
    )
