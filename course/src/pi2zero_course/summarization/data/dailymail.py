"""CNN/DailyMail from the cache or the hub, without a long wait where there is no network.

`load_dataset` tries for 23 s without a network, and for minutes behind a firewall that drops packets. So the cache is asked
first, in offline mode, and then the hub is asked for one header, with 3 s for the name, the connection and the answer.
"""

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator

REPOSITORY, CONFIG = "abisee/cnn_dailymail", "3.0.0"
LIMIT_S = 3.0  # s for the hub to answer
SIZE = "0.8 GB"  # of the download
COLUMNS = ["id", "article", "highlights"]


class Unavailable(OSError):
    """The real set cannot be had. reason: why, to go into a sentence."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(
            f"CNN/DailyMail cannot be loaded: {reason}. Expected: {REPOSITORY} in the cache of `datasets`, or a hub that "
            "answers. Call again with a network (HF_ENDPOINT names a mirror, HTTPS_PROXY a proxy), or give the path of a "
            "local copy, or use load('embedded')."
        )


def get(download: bool = True, say: Callable[[str], object] = print) -> tuple[str, dict]:
    """(where it came from, {split: Dataset}) of the real set: from the cache without a request, else from the hub.

    download=False, HF_HUB_OFFLINE and HF_DATASETS_OFFLINE: from the cache only. Raises Unavailable.
    """
    import datasets
    from huggingface_hub import constants

    if stored := cached():
        return "from the cache of `datasets`, without a request to the hub", stored
    if not download:
        raise Unavailable("the cache has no complete copy, and downloads are switched off")
    if name := _offline_by_setting():
        raise Unavailable(f"the cache has no complete copy, and {name} forbids to ask the hub")
    if reason := unreachable():
        raise Unavailable(reason)
    say(
        f"CNN/DailyMail is loaded from {constants.ENDPOINT}: {SIZE}, once. (load('embedded') needs no download.)"
    )
    try:
        # Not asked: the viewer's server, which has 100 s to answer, and the counter of downloads. Neither is needed.
        with _changed(datasets.config, USE_PARQUET_EXPORT=False, HF_UPDATE_DOWNLOAD_COUNTS=False):
            return f"from {constants.ENDPOINT}", _splits(datasets.load_dataset(REPOSITORY, CONFIG))
    except (
        Exception
    ) as error:  # of two libraries, which raise OSError, ValueError and errors of their own
        first_line = str(error).split("\n")[0].rstrip(".")
        raise Unavailable(
            f"the hub answers, but the download failed ({type(error).__name__}: {first_line})"
        ) from error


def cached() -> dict | None:
    """{split: Dataset} from the cache of `datasets`, or None; no request is sent."""
    import datasets

    if not any(
        datasets.config.HF_DATASETS_CACHE.glob(
            f"{REPOSITORY.replace('/', '___')}/{CONFIG}/*/*/dataset_info.json"
        )
    ):
        return None
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity_error()  # else two warnings say what `Stories.why` says
    try:
        with offline():
            return _splits(datasets.load_dataset(REPOSITORY, CONFIG))
    except (OSError, ValueError):  # incomplete
        return None
    finally:
        datasets.logging.set_verbosity(verbosity)


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """No request to the hub meanwhile. The environment is too late for that: both libraries read it at their import."""
    import datasets
    from huggingface_hub import constants

    with _changed(constants, HF_HUB_OFFLINE=True), _changed(datasets.config, HF_HUB_OFFLINE=True):
        yield


def unreachable(limit_s: float = LIMIT_S) -> str | None:
    """Why the hub cannot be used; None if it answers. Takes limit_s seconds at most.

    A time-out of the HTTP library holds for each step of its own and does not hold for the look-up of the name, which the
    system does and nobody can interrupt. So a thread asks, and is left behind when it takes too long.
    """
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(_ask(limit_s)), daemon=True, name="ask-the-hub"
    )
    thread.start()
    thread.join(limit_s)
    return answers[0] if answers else _no_answer(limit_s)


def draw(split, count: int | None, seed: int):
    """`count` stories of a split, drawn with `seed`, in their order; all, if there are no more. Drawn, because the first ones
    may all be of one of the two newspapers."""
    if count is None or count >= len(split):
        return split
    return split.select(
        sorted(random.Random(seed).sample(range(len(split)), count)), keep_in_memory=True
    )


def _ask(limit_s):
    """What `unreachable` returns. The question is the first that `load_dataset` has, through the same client, so that
    proxies, certificates and HF_ENDPOINT hold; its answer has a header that a firewall's log-in page lacks."""
    from huggingface_hub import constants, get_session, get_token
    from huggingface_hub.utils import httpx

    token = get_token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = f"{constants.ENDPOINT}/datasets/{REPOSITORY}/resolve/main/README.md"
    try:
        answer = get_session().head(url, headers=headers, timeout=limit_s)
    except httpx.TimeoutException:
        return _no_answer(limit_s)
    except (
        Exception
    ) as error:  # no such name, refused, a proxy's error, a bad address in HF_ENDPOINT
        return f"the hub ({constants.ENDPOINT}) cannot be reached ({error or type(error).__name__})"
    if any(
        constants.HUGGINGFACE_HEADER_X_REPO_COMMIT in step.headers
        for step in [*answer.history, answer]
    ):
        return None
    return f"{constants.ENDPOINT} answers, but not as the hub does (status {answer.status_code} for {REPOSITORY})"


def _no_answer(limit_s):
    from huggingface_hub import constants

    return f"no answer from the hub in {limit_s:g} s ({constants.ENDPOINT})"


def _offline_by_setting():
    """The name of the setting that forbids requests, or None. Both libraries read it at their import; a notebook may set it
    later."""
    import datasets
    from huggingface_hub import constants

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        if os.environ.get(name, "").upper() in constants.ENV_VARS_TRUE_VALUES:
            return name
    return "offline mode" if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE else None


def _splits(loaded):
    """{split: Dataset} with the three columns, in order; ValueError if anything is missing."""
    missing = [split for split in ("train", "validation", "test") if split not in loaded]
    missing += [
        f"{column} in {split}"
        for split in loaded
        for column in COLUMNS
        if column not in loaded[split].column_names
    ]
    if missing:
        raise ValueError(f"{REPOSITORY} came without {', '.join(missing)}")
    return {
        split: loaded[split].select_columns(COLUMNS) for split in ("train", "validation", "test")
    }


@contextlib.contextmanager
def _changed(module, **values):
    """Attributes of a module have other values meanwhile."""
    former = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in former.items():
            setattr(module, name, value)
