"""SQL conditions as Arrow expressions, for tests of what files are skipped by."""

from collections.abc import Sequence

import pyarrow.compute as pc

from bucketline.state.sql.compute.filters import translate_filter
from bucketline.state.sql.compute.parsing import parse_value
from bucketline.state.types.logical import DataField


def parse_filter(text: str, fields: Sequence[DataField]) -> pc.Expression:
    """The condition as an expression; raises OptionError where rows would have to be computed."""
    return translate_filter(parse_value(text, "filter"), fields)
