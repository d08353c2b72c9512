"""CNN/DailyMail from the cache or the hub, without a long wait where there is no network.

`load_dataset` tries for 23 s without a network, and for minutes behind a firewall that drops
packets. So the cache is looked at first, and then one header is requested from the hub, with 3 s
for the name, the connection and the answer.
"""

import contextlib
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY, CONFIG = "abisee/cnn_dailymail", "3.0.0"
LIMIT_S = 3.0  # s for the hub to answer
SIZE = "0.8 GB"  # of the download
COLUMNS = ["id", "article", "highlights"]


class UnavailableError(OSError):
    """The real set is not available. reason: why, as a part of a sentence."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(
            f"CNN/DailyMail cannot be loaded: {reason}. Expected: {REPOSITORY} in the cache of "
            "`datasets`, or a hub that answers. Call again with a network (HF_ENDPOINT names a "
            "mirror, HTTPS_PROXY a proxy), or give the path of a local copy, or use "
            "load('embedded')."
        )


def get(download: bool = True, say: Callable[[str], object] = print) -> tuple[str, dict]:
    """Return (where it came from, {split: Dataset}) of the real set: the cache, else the hub.

    The cache needs no request. download=False, HF_HUB_OFFLINE and HF_DATASETS_OFFLINE: from the
    cache only. Raises UnavailableError.
    """
    import datasets
    from huggingface_hub import constants

    try:
        return "from the cache of `datasets`, without a request to the hub", cached()
    except UnavailableError as error:
        why = error.reason
    if not download:
        raise UnavailableError(f"{why}, and downloads are switched off")
    if name := _offline_by_setting():
        raise UnavailableError(f"{why}, and {name} forbids to ask the hub")
    if reason := unreachable():
        raise UnavailableError(reason)
    say(
        f"CNN/DailyMail is loaded from {constants.ENDPOINT}: {SIZE}, once. "
        "(load('embedded') needs no download.)"
    )
    try:
        # The viewer's server may take 100 s, and the counter of downloads is not needed either.
        with _changed(datasets.config, USE_PARQUET_EXPORT=False, HF_UPDATE_DOWNLOAD_COUNTS=False):
            return f"from {constants.ENDPOINT}", _splits(datasets.load_dataset(REPOSITORY, CONFIG))
    except Exception as error:  # two libraries raise OSError, ValueError and errors of their own
        first_line = str(error).split("\n")[0].rstrip(".")
        raise UnavailableError(
            f"the hub answers, but the download failed ({type(error).__name__}: {first_line})"
        ) from error


def cached() -> dict:
    """{split: Dataset} from the cache of `datasets`. Raises UnavailableError if it has none.

    The files are read as they are: `load_dataset` would make a lock next to them, which it may not
    in a cache that a teacher has filled for all. No request is sent.
    """
    import datasets

    folder = Path(datasets.config.HF_DATASETS_CACHE)
    try:
        infos = folder.glob(f"{REPOSITORY.replace('/', '___')}/{CONFIG}/*/*/dataset_info.json")
        for info in sorted(infos, key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(ValueError, KeyError, TypeError, FileNotFoundError):
                return _splits(_read_arrow(info))  # else it is incomplete
    except OSError as error:
        why = f"the cache {folder} cannot be read ({error.strerror or error})"
        raise UnavailableError(why) from None
    raise UnavailableError("the cache has no complete copy")


def _read_arrow(info: Path) -> dict:
    """{split: Dataset} of the files next to a dataset_info.json. Raises if one is missing."""
    from datasets import Dataset, concatenate_datasets

    loaded = {}
    for split, about in json.loads(info.read_text())["splits"].items():
        files = sorted(info.parent.glob(f"*-{split}*.arrow"))
        loaded[split] = concatenate_datasets([Dataset.from_file(str(file)) for file in files])
        if len(loaded[split]) != about["num_examples"]:
            raise ValueError(f"{split} is not whole")
    return loaded


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """No request to the hub in the block. Both libraries read the environment at import only."""
    import datasets
    from huggingface_hub import constants

    with _changed(constants, HF_HUB_OFFLINE=True), _changed(datasets.config, HF_HUB_OFFLINE=True):
        yield


def unreachable(limit_s: float = LIMIT_S) -> str | None:
    """Why the hub cannot be used; None if it answers. Takes limit_s seconds at most.

    A time-out of the HTTP library does not hold for the look-up of the name, which the system does
    and no thread can interrupt. So a daemon thread asks, and is left behind if it takes too long.
    """
    answers = []
    thread = threading.Thread(target=lambda: answers.append(_ask(limit_s)), daemon=True)
    thread.start()
    thread.join(limit_s)
    return answers[0] if answers else _no_answer(limit_s)


def draw(split, count: int | None, seed: int):
    """`count` stories of a split, drawn with `seed`, in their order; all if there are fewer.

    The first ones may all be from one of the two newspapers, so a random part is drawn.
    """
    if count is None or count >= len(split):
        return split
    rows = random.Random(seed).sample(range(len(split)), count)
    return split.select(sorted(rows), keep_in_memory=True)


def _ask(limit_s):
    """What `unreachable` returns. It is the first request of `load_dataset`, by the same client, so
    proxies, certificates and HF_ENDPOINT hold. A firewall's log-in page lacks the header."""
    from huggingface_hub import constants, get_session, get_token
    from huggingface_hub.utils import httpx

    url = f"{constants.ENDPOINT}/datasets/{REPOSITORY}/resolve/main/README.md"
    try:
        token = get_token()  # from a file that may not be readable
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = get_session().head(url, headers=headers, timeout=limit_s)
    except httpx.TimeoutException:
        return _no_answer(limit_s)
    except Exception as error:  # no such name, refused, a proxy's error, a bad HF_ENDPOINT
        return f"the hub ({constants.ENDPOINT}) cannot be reached ({error or type(error).__name__})"
    header, steps = constants.HUGGINGFACE_HEADER_X_REPO_COMMIT, [*answer.history, answer]
    if any(header in step.headers for step in steps):
        return None
    return (
        f"{constants.ENDPOINT} answers, but not as the hub does "
        f"(status {answer.status_code} for {REPOSITORY})"
    )


def _no_answer(limit_s):
    from huggingface_hub import constants

    return f"no answer from the hub in {limit_s:g} s ({constants.ENDPOINT})"


def _offline_by_setting():
    """The name of the setting that forbids requests, or None. A notebook may set it after importing
    the libraries."""
    import datasets
    from huggingface_hub import constants

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        if os.environ.get(name, "").upper() in constants.ENV_VARS_TRUE_VALUES:
            return name
    return "offline mode" if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE else None


def _splits(loaded):
    """{split: Dataset} with the three columns, in order; ValueError if anything is missing."""
    splits = ("train", "validation", "test")
    missing = [split for split in splits if split not in loaded]
    missing += [
        f"{column} in {split}"
        for split in loaded
        for column in COLUMNS
        if column not in loaded[split].column_names
    ]
    if missing:
        raise ValueError(f"{REPOSITORY} came without {', '.join(missing)}")
    return {split: loaded[split].select_columns(COLUMNS) for split in splits}


@contextlib.contextmanager
def _changed(module, **values):
    """Attributes of a module have other values in the block."""
    former = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in former.items():
            setattr(module, name, value)
