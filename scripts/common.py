"""What the training scripts share: digits, options, output, checkpoints. Nothing here is parallel.

torch is imported inside the functions: `options` and `parse` answer --help without it, and the
environment of TensorFlow has none.
"""

import argparse
import hashlib
import json
import math
import zipfile
from pathlib import Path

TRAINING_IMAGES = 1437


# --- options and output ---------------------------------------------------------------------------


def number(kind, lowest, highest=math.inf):
    """A type for argparse: an int or a float in lowest..highest."""

    def convert(text):
        value = kind(text)
        if not lowest <= value <= highest:
            limits = f"at least {lowest}" if highest == math.inf else f"in {lowest}..{highest}"
            raise argparse.ArgumentTypeError(f"{text} is not possible: it must be {limits}")
        return value

    convert.__name__ = kind.__name__  # argparse names it where the text is no number
    return convert


def parser_of(description):
    """A parser that keeps the lines of the description."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=formatter)


def option(parser, name, kind, default, text, **more):
    """Add an option whose help states its default."""
    default_text = "no limit" if default == math.inf else default
    text = f"{text} (default: {default_text})".strip()
    parser.add_argument(name, type=kind, default=default, help=text, **more)


def options(description, checkpoint=True):
    """A parser with the options that all training scripts have."""
    parser = parser_of(description)
    option(parser, "--epochs", number(int, 0), 5, "passes over the images")
    batch = number(int, 1, TRAINING_IMAGES)
    option(parser, "--batch-size", batch, 64, "images per step, over all ranks")
    option(parser, "--lr", number(float, 0), 0.1, "learning rate")
    option(parser, "--momentum", number(float, 0, 0.9999), 0.9, "of SGD, 0 for none")
    option(parser, "--seed", int, 0, "of the first weights and the order of the images")
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON, one object per line")
    if checkpoint:
        add("--checkpoint", metavar="PATH", help="write the state to PATH after each epoch")
        add("--resume", action="store_true", help="go on from --checkpoint if it exists")
    return parser


def parse(parser):
    """The options of this call. Ends the program with a sentence if they are wrong."""
    args = parser.parse_args()
    if getattr(args, "resume", False) and not args.checkpoint:
        parser.error("--resume needs --checkpoint PATH: where to go on from")
    return args


def check(condition, message):
    """End the program with the message unless the condition is true."""
    if not condition:
        raise SystemExit(message)


def batch_share(args, ranks):
    """The images of a batch that each rank takes. Ends the program if the ranks cannot share it."""
    size = args.batch_size
    check(size % ranks == 0, f"--batch-size {size} is not a multiple of the {ranks} ranks")
    return size // ranks


def check_equal(value, what, advice=""):
    """End all ranks of torch.distributed if one rank's value differs from rank 0's."""
    import torch.distributed as dist

    dist.all_gather_object(values := [None] * dist.get_world_size(), value)
    for rank, other in enumerate(values):
        check(other == values[0], f"The {what} of rank {rank} differ from rank 0's{advice}")


def report(args, **values):
    """Print one line: JSON with --json, else words."""
    words = (
        f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )
    print(json.dumps(values) if args.json else ", ".join(words), flush=True)


# --- digits ---------------------------------------------------------------------------------------


def digit_arrays():
    """Training images, their labels, test images, their labels: float32 in 0..1, shape (n, 64)."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=360, random_state=0
    )
    return train_x, train_y, test_x, test_y


def digits():
    """1,437 training and 360 test images with their labels 0..9, as two TensorDatasets."""
    import torch
    from torch.utils.data import TensorDataset

    train_x, train_y, test_x, test_y = map(torch.from_numpy, digit_arrays())
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def accuracy(model, data, device="cpu"):
    """The share of images that the model reads correctly."""
    import torch

    images, labels = data.tensors
    with torch.no_grad():
        guesses = model(images.to(device)).argmax(dim=1).cpu()
    return (guesses == labels).float().mean().item()


def fingerprint(model):
    """16 hex digits that differ if one bit of one parameter differs."""
    if hasattr(model, "get_weights"):  # Keras
        arrays = model.get_weights()
    else:
        arrays = [parameter.detach().cpu().float().numpy() for parameter in model.parameters()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


# --- checkpoints ----------------------------------------------------------------------------------


def batches_of(args):
    """What decides which images a step takes. A resumed run has to keep it."""
    return f"--seed {args.seed} --batch-size {args.batch_size}"


def save(args, epochs, model, optimizer, before_rename=lambda: None):
    """Write the checkpoint, if one is wanted, under another name and rename it.

    So a kill at any moment leaves the former checkpoint whole.
    """
    import torch

    if not args.checkpoint:
        return
    state = {"epochs": epochs, "batches": batches_of(args)}
    state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{args.checkpoint}.part")
    before_rename()
    Path(f"{args.checkpoint}.part").replace(args.checkpoint)


def resume(args, model, optimizer):
    """With --resume, fill model and optimizer from the checkpoint. Returns the epochs done."""
    import torch

    if not args.resume or not Path(args.checkpoint).exists():
        return 0
    try:
        check_zip(args.checkpoint)
        state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epochs, batches = state["epochs"], state["batches"]
    except Exception as error:  # what a damaged file raises depends on where the damage is
        refuse(args, "is damaged, or of another network", error)
    check_batches(args, batches)
    optimizer.param_groups[0].update(lr=args.lr, momentum=args.momentum)  # this call's options win
    if not args.momentum:
        optimizer.state.clear()
    return epochs


def resume_engine(args, engine, latest):
    """The same for DeepSpeed's engine. latest: the file that names the folder of this epoch."""
    if not args.resume or not latest.exists():
        return 0
    try:
        for file in latest.with_name(latest.read_text()).glob("*.pt"):
            check_zip(file)
        _, state = engine.load_checkpoint(latest.parent)
    except Exception as error:
        refuse(args, "is damaged, or of another stage or number of ranks", error)
    check_batches(args, state["batches"])
    return state["epochs"]


def check_epochs(epochs):
    """The epochs that all ranks have done, each by its own checkpoint. Ends them if they differ."""
    same = len(set(epochs)) == 1
    files = f"The ranks' checkpoints are from different epochs: {epochs}."
    check(same, f"{files} Delete them to start anew.")
    return epochs[0]


def check_zip(path):
    """torch.save writes a zip file, and torch.load does not compare its checksums."""
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise ValueError("wrong checksum")


def refuse(args, problem, error):
    """End the program: this checkpoint cannot be used."""
    import torch.distributed as dist

    cause = str(error).splitlines()[0] if str(error) else type(error).__name__
    if dist.is_initialized() and dist.get_world_size() > 1:
        cause = f"rank {dist.get_rank()}: {cause}"
    advice = "Delete it to start anew."
    raise SystemExit(f"Cannot resume: {args.checkpoint} {problem} ({cause}). {advice}") from None


def check_batches(args, batches):
    """A resumed run must take the images in the same order."""
    if batches != batches_of(args):
        wanted = f"was made with {batches}, not with {batches_of(args)}"
        raise SystemExit(f"Cannot resume: {args.checkpoint} {wanted}")
