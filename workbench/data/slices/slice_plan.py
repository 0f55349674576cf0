"""The plan by which processes share the slices of one text: a JSON file in the cache, written before they start."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.data.slices.cutting import Slice
from workbench.data.sources import Code, Docs, File, Hub, Remote, Source
from workbench.errors import InputError, one_line
from workbench.spec.parts import DataSpec
from workbench.store.cache import checked_entry, write_entry

KINDS: dict[str, type[Source]] = {"docs": Docs, "python-code": Code, "file": File, "remote": Remote, "hub": Hub}


@dataclass(frozen=True)
class Plan:
    """The slices of a text, and what their tokens depend on besides: settings of the text, and the vocabulary.

    `root` is the folder of the cache, and `key` the name of the text there. Without a vocabulary, it is the plan of the
    signatures of slices. `duplicates` is the name of the folder that says which documents are left out as
    near-duplicates (`near_duplicates`), "" if all stay.
    """

    root: Path
    key: str
    data: DataSpec
    vocabulary: Path | None
    slices: tuple[Slice, ...]
    duplicates: str = ""

    @property
    def path(self) -> Path:
        """The file of the plan."""
        return self.root / "plans" / f"{self.key}.json"

    def name(self, number: int) -> str:
        """Return the name of a slice."""
        return f"{self.key}-{number:05d}"

    def folder(self, number: int) -> Path:
        """Return the folder of an encoded slice, or of its signatures, which exists when it is complete."""
        return self.root / ("signatures" if self.vocabulary is None else "slices") / self.name(number)

    def lock(self, number: int) -> Path:
        """Return the folder of the lease of a slice, which the process that encodes the slice holds."""
        return self.root / "locks" / self.name(number)

    def write(self) -> None:
        """Write the plan to its file. Raises OSError."""
        slices = [[_plain(source) for source in each.sources] for each in self.slices]
        data = self.data.model_dump(mode="json")
        name = self.vocabulary.name if self.vocabulary else None
        content = {"key": self.key, "data": data, "vocabulary": name, "slices": slices, "duplicates": self.duplicates}
        write_entry(self.path, content)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Return the plan in a file of the cache. Raises InputError if there is none."""
        try:
            value = checked_entry(path)
            root = path.absolute().parents[1]
            slices = tuple(Slice(tuple(map(_source, each))) for each in value["slices"])
            data = DataSpec.model_validate(value["data"])
            vocabulary = root / "tokenizers" / value["vocabulary"] if value["vocabulary"] else None
            return cls(root, value["key"], data, vocabulary, slices, value.get("duplicates", ""))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is no plan of a text's slices, which data prepare writes ({one_line(error)}); give that "
                f"command again"
            ) from None


def _plain(source: Source) -> dict[str, Any]:
    kind = next(name for name, each in KINDS.items() if isinstance(source, each))
    return {"kind": kind, **asdict(source)}


def _source(value: dict[str, Any]) -> Source:
    fields = {name: field for name, field in value.items() if name != "kind"}
    if fields.get("span"):
        fields["span"] = tuple(fields["span"])
    if value["kind"] == "file":
        fields |= {"path": Path(fields["path"]), "changed": tuple(fields["changed"])}
    return KINDS[value["kind"]](**fields)
