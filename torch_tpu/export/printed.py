"""What the core prints as a program (core/hlo/print.c), read again as far as an export needs."""

import re

HEAD = "module @jit_tt {\nfunc.func public @main("
DONATED = re.compile(r" \{tf\.aliasing_output = \d+ : i32\}")
SAME = re.compile(r'(%\d+) = "stablehlo\.(?:reshape|optimization_barrier)"\((%\w+)\) :')
TAKEN = re.compile(
    r'(%\d+) = "stablehlo\.(?:slice|reshape|bitcast_convert)"\((%\w+)\) '
    r"(?:\{start_indices = array<i64: (\d+)>, limit_indices = array<i64: (\d+)>[^}]*\} )?"
    r": \(tensor<(?:(\d+)x)?"
)
VALUE = re.compile(r"%\w+")


class Printed:
    """A program's one function.

    signature: its parameters and results, without what says which may be overwritten. params,
    results: their types.
    """

    def __init__(self, text: str) -> None:
        head, _, rest = text.partition("\n}\n}\n")
        if not head.startswith(HEAD) or rest.strip():
            raise RuntimeError(
                "a program's text has another form than expected; please report this"
            )
        signature, _, self.body = head.removeprefix(HEAD).partition("\n")
        self.signature = DONATED.sub("", signature).removesuffix(" {")
        params, _, results = self.signature.partition(") -> (")
        self.params = [part.partition(": ")[2] for part in params.split(", ")] if params else []
        self.results = results.removesuffix(")").split(", ")
        returned = self.body.rpartition('"func.return"(')[2].partition(")")[0]
        self._returned = returned.split(", ")
        self._same = {match[1]: match[2] for match in SAME.finditer(self.body)}

    def is_parameter(self, result: int, parameter: int) -> bool:
        """Whether a result is a parameter as it was."""
        value = self._returned[result]
        while value in self._same:
            value = self._same[value]
        return value == f"%arg{parameter}" and self.results[result] == self.params[parameter]

    def reads_words(self, at: int, count: int) -> bool:
        """Whether anything depends on these of the words, which are its last parameter."""
        words = f"%arg{len(self.params) - 1}"
        spans = {words: (0, int(self.params[-1].removeprefix("tensor<").partition("x")[0]))}
        for line in map(str.strip, self.body.splitlines()):
            taken = TAKEN.match(line)
            if taken and taken[2] in spans:  # words as they are, or numbers of several
                first, last = spans[taken[2]]
                if taken[3]:
                    each = (last - first) // int(taken[5])
                    first, last = first + int(taken[3]) * each, first + int(taken[4]) * each
                spans[taken[1]] = first, last
            elif any(
                spans[one][0] < at + count and at < spans[one][1]
                for one in VALUE.findall(line)
                if one in spans
            ):
                return True
        return False
