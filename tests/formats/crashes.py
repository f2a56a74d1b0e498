"""Kill fits at random moments and resume them. Prints a line of JSON per estimator.

Run as `python -m tests.formats.crashes KILLS ESTIMATOR...`. Each run of a fit is a fork of this process, which has loaded all
code, so that runs start fast.
"""

import faulthandler
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import shoal
from shoal.formats import archive
from tests.strategies import blobs

X = (blobs(4000, 6, 12, spread=4)[0]).astype(np.float32)
MODELS = {
    "KMeans": lambda: shoal.KMeans(12, n_init=2, init="random", max_iter=12, tol=0, random_state=1),
    "NestedKMeans": lambda: shoal.NestedKMeans(12, batch_size=100, quality=1e-6, max_iter=25, tol=0, random_state=1),
    "HierarchicalKMeans": lambda: shoal.HierarchicalKMeans(60, n_levels=2, n_neighbors=8, max_iter=12, tol=0, random_state=1),
    "MiniBatchKMeans": lambda: shoal.MiniBatchKMeans(12, max_iter=25, max_no_improvement=None, tol=0, random_state=1),
    "OnlineKMeans": lambda: shoal.OnlineKMeans(12, then="batch", max_iter=15, tol=0, random_state=1),
    "GradientKMeans": lambda: shoal.GradientKMeans(12, mode="online", max_iter=12, tol=0, random_state=1),
    "VarianceReducedKMeans": lambda: shoal.VarianceReducedKMeans(12, max_iter=12, tol=0, random_state=1),
    "SphericalMixture": lambda: shoal.SphericalMixture(12, n_init=2, init="random", max_iter=8, tol=0, random_state=1),
    "BinaryKMeans": lambda: shoal.BinaryKMeans(12, n_init=2, init="random", max_iter=10, random_state=1),
    "CompressedKMeans": lambda: shoal.CompressedKMeans(12, n_bits=32, max_iter=6, random_state=1),
    "MiniBatchSpectral": lambda: shoal.MiniBatchSpectral(12, batch_size=100, max_iter=6, tol=0, n_init=2, random_state=1),
    "PowerSpectral": lambda: shoal.PowerSpectral(12, max_iter=4, tol=0, n_init=2, random_state=1),
    "NystromSpectral": lambda: shoal.NystromSpectral(12, n_samples=100, n_init=2, random_state=1),
    "LandmarkSpectral": lambda: shoal.LandmarkSpectral(12, n_landmarks=50, n_init=2, random_state=1),
    "ExactSpectral": lambda: shoal.ExactSpectral(12, affinity="knn", n_init=2, random_state=1),
}


UNCHECKED = ("seconds", "rows", "distances", "newest")
MAX_RUN_SECONDS = 60  # one run takes less than 5 s on a busy machine


def digest(model):
    """Return a digest of all results of a fit except times and operation counts, which a resumed fit may save."""
    hasher = hashlib.sha256(model.labels_.tobytes())
    for name in ("cluster_centers_", "embedding_", "eigenvalues_"):
        hasher.update(np.ascontiguousarray(getattr(model, name, 0)).tobytes())
    steps = [{name: value for name, value in record.items() if name not in UNCHECKED} for record in model.history_]
    hasher.update(repr((getattr(model, "inertia_", None), model.n_iter_, model.stop_reason_, steps)).encode())
    return hasher.hexdigest()


def run_fit(make, folder):
    """Run a fit, or resume it, and write a checkpoint after every step and the digest of the result."""
    with shoal.Checkpoint(folder / "checkpoint.npz", every=0) as store:
        store.offer = lambda progress, offer=store.offer: (setattr(store, "_next", 0.0), offer(progress))
        (folder / "result").write_text(digest(make().set_params(n_threads=1).fit(X)))


def die_while_writing(calls):
    """Kill this process at the n-th call of a write: of an array, a digest, a sync or the renaming."""
    left = [calls]

    def failing(call):
        def counted(*args, **options):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return counted

    archive._write_array, archive._digest = failing(archive._write_array), failing(archive._digest)
    os.fsync, os.replace = failing(os.fsync), failing(os.replace)


def run_once(make, folder, after=None, calls=None):
    """Run a fit in a forked process, which is killed after some seconds or during a write; return its duration."""
    began = time.perf_counter()
    child = os.fork()
    if not child:
        status = 1
        try:
            faulthandler.dump_traceback_later(MAX_RUN_SECONDS, exit=True)  # a run that hangs prints where, and ends
            if calls is not None:
                die_while_writing(calls)
            run_fit(make, folder)
            status = 0
        finally:
            os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a fit ended in an error")
    return time.perf_counter() - began


def has_ended(result):
    """Return whether the digest was written completely: a kill may leave an empty file."""
    return result.exists() and len(result.read_text()) == 64


def main(folder, name, kills):
    """Kill a fit `kills` times; print whether all completed fits gave the expected result."""
    make, rng = MODELS[name], random.Random(name)
    expected = digest(make().set_params(n_threads=1).fit(X))
    longest, result = 1.2 * run_once(make, folder), folder / "result"
    lives = resumed = ends = same = 0
    while lives < kills or not has_ended(result):
        if has_ended(result):  # the fit has ended: start another one
            ends, same = ends + 1, same + (result.read_text() == expected)
            result.unlink()
        resumed += (folder / "checkpoint.npz").exists()
        if lives >= kills:
            run_once(make, folder)
        elif lives % 2:
            run_once(make, folder, calls=rng.randrange(1, 60))
        else:
            run_once(make, folder, rng.uniform(0, longest))
        lives += 1
    ends, same = ends + 1, same + (result.read_text() == expected)
    left = sorted(path.name for path in folder.iterdir() if path != result)
    record = {"estimator": name, "same": same == ends, "lives": lives, "resumed": resumed, "ends": ends, "left": left}
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder), name, int(sys.argv[1]))
