"""The state of a DeepSpeed run in files that do not depend on the stage or on the number of ranks.

DeepSpeed's own checkpoints hold each rank's shard: they go on with the same number of ranks, and reading them runs what is
pickled in them. Here rank 0 writes whole tensors as safetensors (numbers only), in the form that transformers reads too.
It takes the memory of one rank for weights and moments, 12 bytes a parameter: enough for what a workshop trains.
"""

import json
import shutil
from pathlib import Path

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's

__all__ = ["find", "restore", "save", "set_rate"]


def find(folder: str | Path) -> Path | None:
    """The folder of the last whole checkpoint in `folder`, or None."""
    latest = Path(folder) / "latest"
    return Path(folder) / latest.read_text() if latest.exists() else None


def save(engine, tokenizer, folder: str | Path, progress: dict) -> str | None:
    """Write model, tokenizer, Adam's moments and `progress` (JSON, with "step") to folder/step<step>. All ranks call it.

    The new one is written beside the former, then the file `latest` names it: a kill at any moment leaves one whole. Returns
    what went wrong on rank 0 (a full disk), on every rank, or None.
    """
    import torch.distributed as dist

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        master, *both = [_whole(engine, parameter, key) for key in (None, *MOMENTS)]  # every rank asks for each, in one order
        if dist.get_rank() == 0:
            weights[name] = master.detach().cpu().clone()
            moments |= {f"{key}/{name}": moment.cpu().clone() for key, moment in zip(MOMENTS, both, strict=True)}
    problem = [None]
    if dist.get_rank() == 0:
        try:
            _write(Path(folder), weights, moments, engine.module.config, tokenizer, progress)
        except Exception as error:  # the others wait for the answer, whatever it is
            problem = [f"Cannot write the checkpoint {folder}/step{progress['step']}: {error}. The former one, if any, is whole."]
    dist.broadcast_object_list(problem)
    return problem[0]


def _write(folder, weights, moments, config, tokenizer, progress):
    from safetensors.torch import save_file

    part, done = folder / "writing", folder / f"step{progress['step']}"
    if not done.exists():  # else a run that was killed before it could name it in `latest` has written it, whole
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
        save_file(moments, part / "moments.safetensors")
        config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "progress.json").write_text(json.dumps(progress))
        part.rename(done)
    (folder / "latest.part").write_text(done.name)
    (folder / "latest.part").replace(folder / "latest")
    for old in set(folder.glob("step*")) - {done}:
        shutil.rmtree(old)


def restore(engine, checkpoint: Path, batch: dict) -> dict:
    """Give every rank its shard of the state in a checkpoint; returns its `progress`. All ranks call it.

    engine: fresh, its model read from the same checkpoint (transformers' `from_pretrained`). batch: any arguments of the model.
    """
    from deepspeed import utils
    from safetensors import safe_open

    set_rate(engine, 0.0)  # a step that changes no weight: after it Adam has moments, which can be filled
    engine.backward(engine(**batch).loss)
    engine.step()
    with (
        safe_open(checkpoint / "model.safetensors", "pt") as weights,
        safe_open(checkpoint / "moments.safetensors", "pt") as moments,
    ):
        for name, parameter in engine.module.named_parameters():
            if _is_dealt(parameter):  # in bf16 the master copies have more digits than the model
                utils.safe_set_full_fp32_param(parameter, weights.get_tensor(name).to(parameter.device))
            for key in MOMENTS:
                value = moments.get_tensor(f"{key}/{name}").to(parameter.device)
                if _is_dealt(parameter):
                    utils.safe_set_full_optimizer_state(parameter, value, key)
                else:
                    engine.optimizer.state[parameter][key].copy_(value)
    progress = json.loads((checkpoint / "progress.json").read_text())
    for state in getattr(engine.optimizer, "optimizer", engine.optimizer).state.values():
        state["step"].fill_(progress["step"])  # Adam's bias correction counts on
    return progress


def set_rate(engine, rate: float) -> None:
    """The learning rate of the next step, for all parameters."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def _is_dealt(parameter):
    """Whether its optimizer state is dealt out to the ranks (stages 1 to 3), or in a flat copy (bf16)."""
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _whole(engine, parameter, key=None):
    """The whole fp32 tensor of a parameter, or of one of its moments, on every rank."""
    from deepspeed import utils

    if _is_dealt(parameter):
        return utils.safe_get_full_optimizer_state(parameter, key) if key else utils.safe_get_full_fp32_param(parameter)
    return engine.optimizer.state[parameter][key] if key else parameter
