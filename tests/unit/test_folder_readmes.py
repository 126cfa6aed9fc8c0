"""Each folder of the package has a README of one screen, and what it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(
    init.parent.relative_to(ROOT)
    for top in ("conf", "state", "streaming")
    for init in (ROOT / top).rglob("__init__.py")
)
READMES = [folder / "README.md" for folder in [*FOLDERS, Path("tests"), Path("tests/support")]]
READMES.append(Path("CONTRIBUTING.md"))
LONGEST = 80


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_each_folder_says_what_it_is_for_on_one_screen(folder: Path) -> None:
    lines = (ROOT / folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# {folder}/")
    assert any("The one idea: **" in line for line in lines)
    assert any("Never " in line or "never import" in line for line in lines)
    assert len(lines) <= LONGEST


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_readme_names_each_module_and_each_folder_beside_it(folder: Path) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{init.parent.name}/" for init in (ROOT / folder).glob("*/__init__.py")}
    named = {name for name in re.findall(r"[\w./]+\.py", text) if "/" not in name}
    linked = {f"{target}/" for target in re.findall(r"\]\((\w+)/README\.md\)", text)}
    assert sorted((modules - named) | (folders - linked)) == []


@pytest.mark.parametrize("readme", READMES, ids=str)
def test_modules_and_links_named_in_a_readme_exist(readme: Path) -> None:
    text, here = (ROOT / readme).read_text(encoding="utf-8"), (ROOT / readme).parent
    for name in re.findall(r"`([\w./]+\.py)`", text):
        assert (here / name).is_file() or (ROOT / name).is_file(), f"{readme}: there is no {name}"
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (here / target).exists(), f"{readme}: there is no {target}"


def test_the_tests_that_the_page_of_debeziums_cases_names_exist() -> None:
    text = (ROOT / "docs" / "debezium-cases.md").read_text(encoding="utf-8")
    folders = ("tests/unit/streaming/decode", "tests/unit/streaming", ".")
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", text))
    assert named
    assert [name for name in sorted(named) if not any((ROOT / f / name).is_file() for f in folders)] == []
