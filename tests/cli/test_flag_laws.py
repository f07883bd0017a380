"""Every verb, every flag: an unknown one, one without its value and one with a value of another kind are usage errors."""
import re

import pytest

VERBS = ["inspect", "plan", "forge", "score", "check", "compile", "advise", "prove", "unforge", "eval", "export", "recipe", "chip", "explain", "doctor"]
OPTION = re.compile(r"^  (?:-\w,)?(--[a-z-]+)(?: (\S.*?))?(?:  .*)?$", re.M)


@pytest.fixture(scope="session")
def flags(tool):
    """Verb -> flag -> what --help says of its value: "INT:INT in [1 - 256]", "TEXT:{human,json}", "" for a switch."""
    return {verb: {flag: kind for flag, kind in OPTION.findall(tool(verb, "--help").out.split("Options:")[1].split("Examples:")[0])}
            for verb in VERBS}


def one_usage_error(done, *says):
    assert done.code == 2 and done.codes == ["TF1001"] and done.out == "", done
    assert done.err.count("error[") == 1 and done.err.count("\n  hint: ") == 1 and all(word in done.err for word in says), done


def test_these_are_the_verbs(tool):
    assert sorted(VERBS) == sorted(re.findall(r"^  (\w+) {2,}", tool("--help").out.split("Subcommands:")[1], re.M))


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_flag(tool, flags, verb):
    one_usage_error(tool(verb, "--zzzzzzzzzz"), "--zzzzzzzzzz", f"twinforge {verb} --help")
    for flag in set(flags[verb]) - {"--help"}:
        typo = flag[:-1] + ("q" if flag[-1] != "q" else "x")  # one letter off: the hint knows it
        if typo not in flags[verb]:
            one_usage_error(tool(verb, typo, "1"), "did you mean `--")


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_without_its_value_or_with_another_kind_of_value(tool, flags, verb):
    for flag, kind in flags[verb].items():
        if kind.startswith(("INT", "UINT", "TEXT")):
            one_usage_error(tool(verb, flag), flag)
        if kind.startswith(("INT", "UINT")):
            for word in ("many", "1.5", "0x10", "-1", "99999999999999999999", ""):
                one_usage_error(tool(verb, flag, word), flag)
        elif "{" in kind:
            one_usage_error(tool(verb, flag, "zzz"), flag, "zzz")


@pytest.mark.parametrize("words", [["zzz"], ["scor"], ["--zzz"], ["score", "forge", "--zzz"]])
def test_an_unknown_verb(tool, words):
    done = tool(*words)
    assert done.code == 2 and done.codes == ["TF1001"] and done.err.count("  hint: ") == 1, done


@pytest.mark.parametrize("verb, words", [
    ("forge", ["--recipe", "tpu-exact-native", "--out", "y", "--memory", "lots"]), ("forge", ["--recipe", "tpu-exact-native", "--out", "y", "--shard-size", "-1"]),
    ("score", ["--mesh", "xp=2"]), ("score", ["--mesh", "tp=0"]), ("score", ["--mesh", "tp"]), ("score", ["--mesh", "tp=2,tp=4"]),
    ("score", ["--vary", "batch"]), ("score", ["--vary", "batch=8,,16"]), ("score", ["--vary", "batch=8,"]), ("score", ["--vary", "mesh=zp=2"]), ("score", ["--vary", "batch=1..0:1"]),
    ("advise", ["--mesh", "ep=3,tp=2"]), ("compile", ["--topology", "v6e"]), ("compile", ["--topology", "v6e:1x1", "--option", "novalue"])])
def test_a_text_of_another_form(tool, tiny, configs, verb, words):
    """What the verb itself reads: sizes, meshes, ranges."""
    model = [tiny] if verb == "forge" else ["--from-config", configs / "llama-3.1-8b" / "config.json"]
    done = tool(verb, *model, *(["--chip", "v6e"] if verb in ("score", "advise") else []), *words)
    assert done.code == 2 and len(done.codes) == 1 and done.err.count("  hint: ") == 1, done
