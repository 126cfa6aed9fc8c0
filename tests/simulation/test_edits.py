"""The holes and broken lines that the named parts of `.ci/run` put in still have their places in the code."""

import pytest

from tests.simulation.edits import ROOT, Edit
from tests.simulation.holes import HOLES
from tests.simulation.mutations import MUTATIONS


@pytest.mark.parametrize("edit", [*HOLES, *(m.edit for m in MUTATIONS)], ids=lambda edit: edit.name)
def test_the_text_of_an_edit_is_in_its_module_once(edit: Edit) -> None:
    assert edit.fits and edit.text != edit.instead


def test_the_tests_that_a_mutation_names_are_there() -> None:
    named = {test.partition("::")[0] for mutation in MUTATIONS for test in mutation.tests}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
