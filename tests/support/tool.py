"""Runs the command line under test and reads what it says."""
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("TWINFORGE_SHARED", ROOT.parent / "shared"))
BINARY = os.environ.get("TWINFORGE", str(ROOT / "build" / "release" / "cli" / "twinforge"))


class Result:
    def __init__(self, done, words):
        self.code, self.out, self.err, self.words = done.returncode, done.stdout, done.stderr, words

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def codes(self):
        """Diagnostic codes on stderr."""
        return [word.split("]")[0] for word in self.err.split("error[")[1:]]

    def __repr__(self):
        return f"{' '.join(self.words)} -> {self.code}\n{self.out[-2000:]}\n{self.err[-2000:]}"


class Tool:
    def __call__(self, *words, **kw):
        words = [BINARY, *map(str, words)]
        return Result(subprocess.run(words, capture_output=True, text=True, timeout=600, **kw), words)

    def json(self, *words, code=0):
        done = self(*words, "--format", "json")
        assert done.code == code, done
        return done.json

    def forge(self, model, recipe, out, *words):
        """Forges with a library recipe's name or a recipe's text."""
        if "{" in recipe:
            path = Path(str(out) + ".recipe.textproto")
            path.write_text(recipe)
            recipe = path
        return self("forge", model, "--recipe", recipe, "--out", out, "--progress", "none", *words)
