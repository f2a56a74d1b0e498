"""Typed settings of a command: how the rows are read, how they are clustered, and which engine runs the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

FROM_MODEL = ("n_features", "preprocessing")  # settings that no run records


@dataclass(frozen=True)
class RowSettings:
    """Options of `shoal.open_rows`, under the names of its parameters."""

    columns: list[str | int] | None = None
    id_column: str | None = None
    limit_rows: int | None = None
    array: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    zero_based: bool | None = None
    scratch: str | None = None
    text_column: str | None = None
    exclude: list[str | int] | None = None
    categorical: str | None = None
    missing: str | None = None
    dates: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    preprocessing: Any = None  # taken from a model, like `n_features`
    n_features: int | None = None  # taken from a model, never from the command line, and not stored in run.json

    def open_rows_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `shoal.open_rows`."""
        return {entry.name: getattr(self, entry.name) for entry in fields(RowSettings)}


@dataclass(frozen=True)
class FitSettings(RowSettings):
    """Settings of one fit. All fields but those taken from a model are stored in run.json under their own names."""

    method: str = "auto"
    clusters: int = 1
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)  # further estimator parameters, from --set
    metric: Literal["euclidean", "cosine"] = "euclidean"
    init: str | None = None  # name of an initialization, or path of a file with centroids
    standardize: bool = False
    time: float | None = None  # seconds
    memory: float | None = None  # bytes
    threads: int | None = None
    engine: Literal["threads", "dask"] | None = None
    image: tuple[int, ...] | None = None  # height, width[, channels] of the rows in the report
    report: bool = True
    join: bool = False  # write the whole table with the labels

    def to_json(self) -> dict[str, Any]:
        """Return the fields that run.json stores."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in FROM_MODEL}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> FitSettings:
        """Return the settings that were stored in run.json. The values must have been checked before."""
        settings = cls(**stored)
        return settings if settings.image is None else replace(settings, image=tuple(settings.image))


@dataclass(frozen=True)
class EngineSettings:
    """Engine of one command. Kept apart from `FitSettings` so that a cluster address is never written to run.json."""

    engine: Literal["threads", "dask"] | None = None
    scheduler: str | None = None
    workers: int | None = None

    def to_arguments(self) -> list[str]:
        """Return the command-line arguments that select this engine."""
        options = {"engine": self.engine, "scheduler": self.scheduler, "workers": self.workers}
        return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
