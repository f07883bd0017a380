"""docs/cli.md and --help say the same: no flag, verb or value is in one of them alone."""
import re

import pytest
from tool import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def verbs(tool):
    return re.findall(r"^  (\w+) {2,}", tool("--help").out.split("Subcommands:")[1], re.M)


def rows():
    """Flag -> the verbs that the table says have it, and the row's text."""
    said = {}
    for flag, whose, what in re.findall(r"^\| `(--[a-z-]+)[^`]*` \| ([^|]+) \| (.+) \|$", PAGE, re.M):
        assert flag not in said, f"{flag} has two rows"
        said[flag] = ({word.strip() for word in whose.split(",")}, what)
    return said


def options(tool, verb):
    """Flag -> the values that --help lists for it, of one verb."""
    text = tool(verb, "--help").out.split("Options:")[1].split("Examples:")[0]
    lines = re.findall(r"^  (?:-\w,)?(--[a-z-]+)(.*)$", text, re.M)
    return {flag: (re.search(r"\{([^}]*)\}", rest) or [None, ""])[1].split(",") for flag, rest in lines}


def test_every_verb_has_a_row(tool):
    described = re.findall(r"^\| `(\w+)[^`]*` \| ", PAGE, re.M)
    assert sorted(described) == sorted(verbs(tool))


def test_every_flag_of_every_verb_is_in_the_page(tool):
    said = rows()
    for verb in verbs(tool):
        theirs = {flag for flag, (whose, _) in said.items() if whose & {verb, "all"}}
        assert theirs == set(options(tool, verb)), verb
    known = {*verbs(tool), "all"}
    assert all(whose <= known for whose, _ in said.values()), said


def test_every_listed_value_is_in_the_page(tool):
    said = rows()
    for verb in verbs(tool):
        for flag, values in options(tool, verb).items():
            for value in filter(None, values):
                assert re.search(rf"\b{value}\b", said[flag][1]), (verb, flag, value)


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_no_page_names_a_flag_that_does_not_exist(tool, page):
    """In command lines and in prose; flags of other programs stand behind their program's name."""
    known = {"--version"} | {flag for verb in verbs(tool) for flag in options(tool, verb)}
    text = "\n".join(line for line in (ROOT / page).read_text().splitlines() if not re.search(r"python3|pip |cmake|ctest|ninja|git |apt|_test --", line))
    assert set(FLAG.findall(text)) <= known, page


def test_examples_name_flags_of_their_verb(tool):
    for verb in verbs(tool):
        examples = tool(verb, "--help").out.split("Examples:")[1]
        for whose, words in re.findall(r"twinforge (\w+) (.*)", examples.replace("\\\n", " ")):
            assert set(FLAG.findall(words)) <= set(options(tool, whose)), (verb, words)
    for words in re.findall(r"^\s*(?:\$ ?)?\$?twinforge (\w+ [^#\n]*)", (ROOT / "README.md").read_text(), re.M):
        verb = words.split()[0]
        assert set(FLAG.findall(words)) <= set(options(tool, verb)), words


def test_forge_takes_no_config_alone(tool, configs, tmp_path):
    """It has no tensors to write: plan is for configs."""
    assert "--from-config" not in tool("forge", "--help").out
    done = tool("forge", "--from-config", configs / "llama-3.1-8b" / "config.json", "--recipe", "tpu-exact-portable", "--out", tmp_path / "out")
    assert done.code == 2 and done.codes == ["TF1001"], done


PAGES = sorted(path for path in ROOT.glob("**/*.md") if path.relative_to(ROOT).parts[0] not in ("build", "third_party") and not path.relative_to(ROOT).parts[0].startswith("."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """To files of the repository, and to headings that the page has."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?://", target):
            continue
        path, _, heading = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), (page, target)
        names = {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in there.read_text().splitlines() if line.startswith("#")} if heading else set()
        assert not heading or heading in names, (page, target)


def test_lists_are_whole():
    """docs/README.md has a row for each page, bench/README.md for each program."""
    listed = set(re.findall(r"^\| `([\w.-]+)`", (ROOT / "docs" / "README.md").read_text(), re.M))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    programs = set(re.findall(r"twinforge_binary\(NAME (\w+)", (ROOT / "bench" / "CMakeLists.txt").read_text())) | {path.name for path in (ROOT / "bench").glob("*.py")}
    text = (ROOT / "bench" / "README.md").read_text()
    assert {name for name in programs if f"`{name}`" not in text} == set()


def test_codes_that_pages_name_are_codes(tool):
    known = set(re.findall(r"TF\d{4}", tool("explain").out))
    assert len(known) > 100
    for page in PAGES:
        assert set(re.findall(r"TF\d{4}", page.read_text())) <= known, page
