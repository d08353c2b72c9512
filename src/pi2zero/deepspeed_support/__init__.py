"""For DeepSpeed's notebooks and scripts: compiled operators, checkpoints of whole tensors."""
