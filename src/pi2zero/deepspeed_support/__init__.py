"""What DeepSpeed's notebooks and scripts share: its compiled operators, and checkpoints of whole tensors."""
