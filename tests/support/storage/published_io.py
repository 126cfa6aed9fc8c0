"""The local file system, which remembers what was published, for other programs may replace it without an error."""

from dataclasses import dataclass, field

from bucketline.state.store.storage.local_io import LocalIO


@dataclass(frozen=True)
class PublishedIO(LocalIO):
    """`published` maps the paths of files that were published through this object to what they held."""

    published: dict[str, bytes] = field(default_factory=dict)

    def publish(self, path: str, data: bytes) -> bool:
        done = super().publish(path, data)
        if done:
            self.published[path] = data
        return done

    def replaced(self) -> list[str]:
        """The published files that hold something else now."""
        return [path for path, data in self.published.items() if self.read_optional(path) not in (data, None)]
