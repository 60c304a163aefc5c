"""A program that is driven by lines: one for each thing that it does, and one with its answer."""

import subprocess


class LineProgram:
    """Talks with a program over its stdin and stdout. `process`: the program, started with both as pipes, in text."""

    process: "subprocess.Popen[str]"

    def ask(self, line: str) -> None:
        """Let the program begin something."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Return the program's next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the program ended: {self.process.wait()}"
        return line

    def say(self, line: str) -> str:
        """Let the program do something; return its answer."""
        self.ask(line)
        return self.answer()
