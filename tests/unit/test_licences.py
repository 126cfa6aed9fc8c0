"""Which licences of dependencies are allowed, and how they are read."""

import importlib.util
from email.message import Message
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", ROOT / ".ci" / "licences.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("Apache-2.0", True),
        ("Apache Software License, MIT License", True),
        ("BSD-3-Clause AND MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-2.0-only", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("MPL-2.0", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_a_licence_is_allowed_by_its_words(licences: ModuleType, licence: str, allowed: bool) -> None:
    assert licences.is_allowed("some-package", licence) == allowed


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "other")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "x")], "MIT License"),
        ([("Classifier", "License :: OSI Approved"), ("License", "BSD\nmore text")], "BSD"),
        ([("Classifier", "Topic :: Database")], ""),
    ],
)
def test_the_licence_is_what_the_package_states(
    licences: ModuleType, fields: list[tuple[str, str]], licence: str
) -> None:
    metadata = Message()
    for name, text in fields:
        metadata[name] = text
    assert licences.licence_of(SimpleNamespace(metadata=metadata)) == licence
