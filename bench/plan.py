"""Simulate a very large fit on many machines from costs measured on one, and validate the simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .measure import Lab
from .results import FOLDER, Entry, by_problem
from .scale import Cluster, Costs, RoundCost, Work
from .simulated import Fleet
from .suites import entry_of

GB, HOUR = 1e9, 3600.0
ROUNDS = 20
MACHINES, CORES, MEMORY, DOLLARS = 100, 32, 64, 1.3  # a machine's cores, GB, and dollars an hour: assumed
HUNDRED = Cluster(MACHINES, CORES, 1, CORES, link=1.25 * GB)
ROUGH = {"slow": 1e-3, "deaths": 1 / (100 * HOUR)}  # tasks that are slow, and machines that die: assumed
BILLION = Work(10**9, 768, 100_000, MACHINES * CORES)
MAX_ERROR = 0.25  # relative error of simulated figures
TINY = {"task": 4, "work": 4, "down": 1, "up": 3, "packing": 1, "arithmetic": 60, "moving 2": 0.3, "moving 20": 0.01}
NEEDS = "run `python -m bench scaleout --only overhead --only costs` first"


def plan(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Simulate a billion rows, 100,000 clusters and 100 machines; compare the simulation with measurements."""
    stored = {} if lab.quick else by_problem(FOLDER / "scaleout.json")
    measured = {row["cost"]: row["value"] for row in stored["costs"]["rows"]} if "costs" in stored else TINY
    if measured is TINY and not lab.quick:
        lab.leave_out(f"plan: {NEEDS}")
        return
    settings = [entry for name, entry in stored.items() if name.startswith("overhead")]
    parts = {"check": partial(check, settings), "rounds": rounds, "sensitivity": sensitivity}
    for name, part in parts.items():
        if not only or name in only:
            yield from part(lab, measured)


def costs_of(measured: dict[str, float], flops: float | None = None) -> Costs:
    ms = {name: measured[name] / 1e3 for name in ("task", "work")}
    ms_a_mb = {name: measured[name] / GB for name in ("down", "up", "packing")}
    return Costs(**ms, **ms_a_mb, flops=flops or measured["arithmetic"] * 1e9)


def check(settings: list[Entry], lab: Lab, measured: dict[str, float]) -> Iterator[Entry]:
    """Compare measured times of local workers with times simulated from those of threads."""
    rows: list[Entry] = []
    for setting in settings:
        threads, dask = setting["rows"]
        n, d, k, partitions = (dask[key] for key in ("rows", "columns", "clusters", "partitions"))
        here = Cluster(1, setting["made"]["cores"], dask["workers"], 1, driver_apart=False)
        for which, key, moving in (("first", "of the first", 1.0), ("later", "a step", dask["moving"])):
            cpu = threads["CPU seconds"] * threads[f"seconds {key}"] / threads["seconds a step"]
            work = Work(n, d, k, partitions, moving, which == "first")
            costs = costs_of(measured, 2.0 * n * d * k / cpu)
            if which == "later":  # small tasks are batched, and share the cost of a task
                share = dask["tasks"] / partitions
                costs = costs._replace(task=share * costs.task, work=share * costs.work)
            cost = Fleet(here, costs).run(_sending(work, 1e6 * dask[f"MB {key}"]))
            row: Entry = {"setting": setting["problem"], "step": which, "seconds measured": dask[f"seconds {key}"]}
            row |= {"seconds simulated": cost.seconds}
            if which == "later":
                row |= {"CPU measured": dask["CPU seconds"], "CPU simulated": cost.driver + cost.workers}
            row |= {"MB measured": dask[f"MB {key}"], "MB simulated": work.traffic() / 1e6}
            rows.append({**row, "the driver's share": cost.driver / cost.seconds})
    if rows:
        # In later steps, bytes depend on which clusters the reassigned rows belong to, so they do not test the simulation.
        figures = [{"what": "seconds: off by at most", "value": _max_error(rows, "seconds"), "limit": MAX_ERROR}]
        figures += [{"what": "MB of first steps: off by at most", "value": _max_error(rows[::2], "MB"), "limit": MAX_ERROR}]
        figures += [{"what": "MB of later steps: off by at most", "value": _max_error(rows[1::2], "MB")}]
        measure = (
            "Steps on workers of this machine, measured by `bench scaleout --only overhead`, and simulated: MB from the rows "
            "that move, seconds from the MB that were measured."
        )
        yield entry_of(lab, "check", measure, rows, figures)


def _sending(work: Work, size: float) -> Work:
    """Return the work with the fraction of reassigned rows that leads to `size` bytes per step."""

    def over(moving: float) -> float:
        return work._replace(moving=moving).traffic() - size

    return work._replace(moving=1.0 if over(1.0) <= 0 else brentq(over, 0.0, 1.0))


def _max_error(rows: list[Entry], what: str) -> float:
    return max(abs(row[f"{what} simulated"] / row[f"{what} measured"] - 1) for row in rows)


def variants() -> dict[str, tuple[Cluster, Work]]:
    finer = BILLION._replace(partitions=4 * BILLION.partitions)
    return {
        "as it is": (HUNDRED, BILLION),
        "the same, rough": (HUNDRED._replace(**ROUGH), BILLION),
        "files: partitions of 65,536 rows": (HUNDRED, BILLION._replace(partitions=-(-(10**9) // 65_536))),
        "a process a core": (HUNDRED._replace(processes=CORES, threads=1), BILLION),
        "10,000 clusters": (HUNDRED, BILLION._replace(clusters=10_000)),
        "1,000 clusters": (HUNDRED, BILLION._replace(clusters=1_000)),
        "added up on each machine": (HUNDRED, finer._replace(groups=MACHINES)),
        "added up on each machine, rough": (HUNDRED._replace(**ROUGH), finer._replace(groups=MACHINES)),
    }


def machine_gb(cluster: Cluster, work: Work, cost: RoundCost) -> float:
    """Return the memory of a machine: rows, centroids (packed and unpacked), sums and answers of tasks, and waiting answers."""
    rows = 4.0 * work.rows * work.columns / cluster.machines
    tasks = cluster.threads * 2 * work.share(work.partitions)
    return (rows + cluster.processes * (2 * work.order() + tasks) + cost.held) / GB


def driver_gb(work: Work) -> float:
    """Return the memory of the driver: labels and sums (old and new), centroids, and one answer (packed and unpacked)."""
    return (8.0 * work.rows + 3 * 8.0 * work.clusters * work.columns + 2 * work.answer()) / GB


def fitted(cluster: Cluster, work: Work, measured: dict[str, float]) -> tuple[list[RoundCost], dict[str, float]]:
    """Simulate some rounds of a fit; return their costs and the totals, with the other rounds interpolated."""
    moving = {int(name.split()[1]): share for name, share in measured.items() if name.startswith("moving")}
    fleet = Fleet(cluster, costs_of(measured))
    costs_by_round = [fleet.run(work), *(fleet.run(work._replace(moving=share, first=False)) for share in moving.values())]
    every = range(1, ROUNDS + 1)
    whole = {name: np.interp(every, [1, *moving], [getattr(t, name) for t in costs_by_round]) for name in ("seconds", "moved")}
    return costs_by_round, {name: float(values.sum()) for name, values in whole.items()}


def rounds(lab: Lab, measured: dict[str, float]) -> Iterator[Entry]:
    """Simulate traffic, hours, memory and cost of the plan and of its variants."""
    rows = [_row(lab, name, cluster, work, measured) for name, (cluster, work) in variants().items()]
    kinds = [row for row in rows if "rough" not in row["variant"]]
    figures = [{"what": f"{row['variant']}: GB of a machine", "value": row["GB machine"], "limit": MEMORY} for row in kinds]
    saved = rows[0]["hours"] / rows[-2]["hours"]
    figures.append({"what": "times that adding up on each machine is faster", "value": saved})
    measure = (
        f"Simulated: 10^9 x 768 float32, {ROUNDS} rounds on {MACHINES} machines. Assumed: {CORES} cores, {MEMORY} GB, 10 Gbit/s"
        f" and {DOLLARS} dollars an hour each. Rough: a task in 1,000 takes 8 times as long, a machine lives for 100 hours."
    )
    yield entry_of(lab, "rounds", measure, rows, figures)


def _row(lab: Lab, name: str, cluster: Cluster, work: Work, measured: dict[str, float]) -> Entry:
    if lab.quick:
        work = work._replace(clusters=50, partitions=200)
    costs_by_round, whole = fitted(cluster, work, measured)
    flops = 2.0 * work.rows * work.clusters * work.columns / costs_of(measured).flops
    return {
        "variant": name,
        "partitions": work.partitions,
        "min of arithmetic": flops / (cluster.machines * cluster.cores) / 60,
        "min first round": costs_by_round[0].seconds / 60,
        "min last round": costs_by_round[-1].seconds / 60,
        "GB first round": costs_by_round[0].moved / GB,
        "driver busy": costs_by_round[0].driver / costs_by_round[0].seconds,
        "GB machine": max(machine_gb(cluster, work, t) for t in costs_by_round),
        "GB driver": driver_gb(work),
        "TB": whole["moved"] / 1e12,
        "hours": whole["seconds"] / HOUR,
        "tasks again": sum(t.again for t in costs_by_round),
        "machines lost": sum(t.deaths for t in costs_by_round),
        "dollars": whole["seconds"] / HOUR * MACHINES * DOLLARS,
    }


def sensitivity(lab: Lab, measured: dict[str, float]) -> Iterator[Entry]:
    """Simulate the minutes of the first round for several links and numbers of partitions."""
    rows: list[Any] = []
    for name, groups in {"as it is": 0, "added up on each machine": MACHINES}.items():
        for times in (1,) if lab.quick else (1, 4):
            row: Entry = {"minutes of the first round": name, "partitions": times * BILLION.partitions}
            for gbits in (1, 10, 100):
                work = BILLION._replace(partitions=row["partitions"], groups=groups)
                if lab.quick:
                    work = work._replace(clusters=50, partitions=200)
                fleet = Fleet(HUNDRED._replace(link=gbits / 8 * GB), costs_of(measured))
                row[f"{gbits} Gbit/s"] = fleet.run(work).seconds / 60
            rows.append(row)
    yield entry_of(lab, "sensitivity", "The first of these rounds by bandwidth and partitions. Simulated.", rows, [])
