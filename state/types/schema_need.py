"""A schema need: the fields that records have and the table lacks, and the columns that need wider types."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SchemaNeed:
    """The changes that a table's schema needs before it can hold some records. `type` is a struct of the fields that
    are new or need a wider type, and of the fields in which such fields are nested. `type` is Arrow's null type if no
    change is needed.
    """

    type: pa.DataType

    @property
    def columns(self) -> pa.Schema:
        """Returns the columns that are new or need a wider type."""
        return pa.schema([] if pa.types.is_null(self.type) else list(self.type))

    def __bool__(self) -> bool:
        return not pa.types.is_null(self.type)

    def encode(self) -> bytes:
        """Returns this need as bytes, which `decode_need` reads."""
        encoded: bytes = self.columns.serialize().to_pybytes()
        return encoded


NOTHING_NEEDED = SchemaNeed(pa.null())


def decode_need(data: bytes) -> SchemaNeed:
    """Returns the schema need (the columns and types that records have and the table lacks) that `SchemaNeed.encode`
    turned into these bytes.
    """
    return SchemaNeed(pa.struct(list(pa.ipc.read_schema(pa.py_buffer(data)))))
