"""Says which module has which command. A module is loaded when its command runs, because loading all modules takes
longer than most commands.
"""

from collections.abc import Mapping

_ROOM = "bucketline.streaming.cli"

MODULE_OF_COMMAND: Mapping[str, str] = {
    command: f"{_ROOM}.{module}"
    for module, commands in {
        "bad_records_command": ("bad-records",),
        "maintain_commands": ("compact", "doctor", "expire", "orphans", "rescale"),
        "offsets": ("offsets",),
        "plan_commands": ("compactor", "plan"),
        "read_commands": ("files", "scan", "schema", "snapshots"),
        "ship": ("job-file", "py-files"),
        "spark_side": ("ingest", "quickstart"),
        "sql_command": ("sql",),
        "status": ("status",),
        "table_commands": ("create", "delete"),
        "version_commands": ("branch", "rollback", "tag"),
    }.items()
    for command in commands
}
