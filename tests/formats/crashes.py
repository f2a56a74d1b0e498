"""Fits that are killed again and again, at random moments, and go on each time. Prints what came of each, a line of JSON.

Run as `python -m tests.formats.crashes KILLS ESTIMATOR...`. Each life of a fit is a fork of this process, which has all code
loaded, so that many lives cost little.
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
    "MiniBatchKMeans": lambda: shoal.MiniBatchKMeans(12, max_iter=25, max_no_improvement=None, tol=0, random_state=1),
    "OnlineKMeans": lambda: shoal.OnlineKMeans(12, then="batch", max_iter=15, tol=0, random_state=1),
    "GradientKMeans": lambda: shoal.GradientKMeans(12, mode="online", max_iter=12, tol=0, random_state=1),
    "VarianceReducedKMeans": lambda: shoal.VarianceReducedKMeans(12, max_iter=12, tol=0, random_state=1),
    "SphericalMixture": lambda: shoal.SphericalMixture(12, n_init=2, init="random", max_iter=8, tol=0, random_state=1),
    "BinaryKMeans": lambda: shoal.BinaryKMeans(12, n_init=2, init="random", max_iter=10, random_state=1),
    "CompressedKMeans": lambda: shoal.CompressedKMeans(12, n_bits=32, learn="paper", max_iter=6, random_state=1),
    "MiniBatchSpectral": lambda: shoal.MiniBatchSpectral(12, batch_size=100, max_iter=6, tol=0, n_init=2, random_state=1),
    "PowerSpectral": lambda: shoal.PowerSpectral(12, max_iter=4, tol=0, n_init=2, random_state=1),
    "NystromSpectral": lambda: shoal.NystromSpectral(12, n_samples=100, n_init=2, random_state=1),
    "LandmarkSpectral": lambda: shoal.LandmarkSpectral(12, n_landmarks=50, n_init=2, random_state=1),
    "ExactSpectral": lambda: shoal.ExactSpectral(12, affinity="knn", n_init=2, random_state=1),
}


MAX_LIFE_SECONDS = 60  # one life takes less than 5 s on a busy machine
SPARED = ("seconds", "rows", "distances", "newest")


def digest(model):
    """Of all that a fit gives, but for times and work that was spared."""
    told = hashlib.sha256(model.labels_.tobytes())
    for name in ("cluster_centers_", "embedding_", "eigenvalues_"):
        told.update(np.ascontiguousarray(getattr(model, name, 0)).tobytes())
    steps = [{name: value for name, value in record.items() if name not in SPARED} for record in model.history_]
    told.update(repr((getattr(model, "inertia_", None), model.n_iter_, model.stop_reason_, steps)).encode())
    return told.hexdigest()


def live(make, folder):
    """One life: to the end, if nothing happens. The state is written after every step."""
    with shoal.Checkpoint(folder / "checkpoint.npz", every=0) as kept:
        kept.offer = lambda progress, offer=kept.offer: (setattr(kept, "_next", 0.0), offer(progress))
        (folder / "result").write_text(digest(make().set_params(n_threads=1).fit(X)))


def die_while_writing(calls):
    """Kill this process at the n-th of the calls that a write is made of: at an array, a digest, a sync or the renaming."""
    left = [calls]

    def deadly(call):
        def counted(*args, **options):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return counted

    archive._write_array, archive._digest = deadly(archive._write_array), deadly(archive._digest)
    os.fsync, os.replace = deadly(os.fsync), deadly(os.replace)


def life(make, folder, after=None, calls=None):
    """In a process of its own, which is killed after so many seconds, or inside a write. How long it took."""
    began = time.perf_counter()
    child = os.fork()
    if not child:
        status = 1
        try:
            faulthandler.dump_traceback_later(MAX_LIFE_SECONDS, exit=True)  # a life that hangs prints where, and ends
            if calls is not None:
                die_while_writing(calls)
            live(make, folder)
            status = 0
        finally:
            os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a life ended in an error")
    return time.perf_counter() - began


def has_ended(result):
    """A kill may come when the file is there and nothing in it yet."""
    return result.exists() and len(result.read_text()) == 64


def main(folder, name, kills):
    make, luck = MODELS[name], random.Random(name)
    expected = digest(make().set_params(n_threads=1).fit(X))
    longest, result = 1.2 * life(make, folder), folder / "result"
    lives = resumed = ends = same = 0
    while lives < kills or not has_ended(result):
        if has_ended(result):  # it came to its end: once more from the start
            ends, same = ends + 1, same + (result.read_text() == expected)
            result.unlink()
        resumed += (folder / "checkpoint.npz").exists()
        if lives >= kills:
            life(make, folder)
        elif lives % 2:
            life(make, folder, calls=luck.randrange(1, 60))
        else:
            life(make, folder, luck.uniform(0, longest))
        lives += 1
    ends, same = ends + 1, same + (result.read_text() == expected)
    left = sorted(path.name for path in folder.iterdir() if path != result)
    told = {"estimator": name, "same": same == ends, "lives": lives, "resumed": resumed, "ends": ends, "left": left}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder), name, int(sys.argv[1]))
